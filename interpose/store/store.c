/*
 * Creates and ends the run directory, and writes its JSON files. See store.h for the invariant.
 */
#define _GNU_SOURCE
#include "store/store.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "store/disk.h"
#include "store/manifest.h"
#include "store/merge.h"
#include "store/internal.h"

#define PROCESSES 1000000
#define CLOSE_WAIT_MS 2000 /* limits the wait at the program's end for a thread that never releases its lock */

/* ---- around every call ---- */

static bool is_closed(const store *s)
{
	return __atomic_load_n(&s->closed, __ATOMIC_ACQUIRE);
}

bool store_has_failed(const store *s)
{
	return __atomic_load_n(&s->failure, __ATOMIC_ACQUIRE) != 0;
}

bool store_fail(store *s, const char *what, const char *path, int error)
{
	int none = 0;

	if (__atomic_compare_exchange_n(&s->failure, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		file_explain(s->reason, sizeof(s->reason), what, path, error);
		__atomic_store_n(&s->failure, 2, __ATOMIC_RELEASE);
	}
	return false;
}

bool store_fail_write(store *s, const struct file *f)
{
	return store_fail(s, "writing", f->path ? f->path : s->folder.path, errno);
}

void store_leave(pthread_mutex_t *m, struct visit v)
{
	pthread_mutex_unlock(m);
	visit_end(v);
}

/* Drops uncommitted contents, which only take space; postponed while a lane is being written. */
static void roll_back_idle(store *s)
{
	unsigned held = 0;

	while (held < TT_DATA_LANES && !pthread_mutex_trylock(&s->writing[held]))
		held++;
	if (held == TT_DATA_LANES)
		store_roll_back(s);
	while (held)
		pthread_mutex_unlock(&s->writing[--held]);
}

bool store_enter(store *s, pthread_mutex_t *m, struct visit *v)
{
	if (!s || is_closed(s))
		return false;
	*v = visit_begin();
	pthread_mutex_lock(m);
	if (!is_closed(s) && !s->sealed && !store_has_failed(s))
		return true;
	if (m == &s->capture && !is_closed(s))
		roll_back_idle(s);
	store_leave(m, *v);
	return false;
}

/* ---- open and close ---- */

static bool make_run_directory(store *s, const char *path, bool *made, char *error, size_t size)
{
	*made = !mkdir(path, 0700);
	if (!*made && errno != EEXIST) {
		file_explain(error, size, "creating run directory", path, errno);
		return false;
	}
	if (folder_find(&s->run, path))
		return true;
	file_explain(error, size, "opening run directory", path, errno);
	return false;
}

static bool make_process_directory(store *s, char *error, size_t size)
{
	char name[16];

	for (unsigned i = 0; i < PROCESSES; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		if (folder_make(&s->folder, &s->run, name)) {
			s->process = i;
			if (s->folder.owner == s->run.owner)
				return true;
			file_explain(error, size, "recording to", s->run.path, FILE_FOREIGN);
			return false;
		}
		if (errno != EEXIST)
			break;
	}
	file_explain(error, size, "creating a process directory in", s->run.path, errno);
	return false;
}

static bool create_files(store *s)
{
	const struct folder *d = &s->folder;

	return strings_create(&s->strings, d) && store_begin_records(s, RECORDS_REGIONS) &&
	       store_begin_records(s, RECORDS_FUNCTIONS) && store_begin_records(s, RECORDS_MODULES) &&
	       file_create_records(&s->digests.file, d, "digests.bin", true, TT_FILE_DIGESTS, sizeof(struct tt_digest), 0, 0) &&
	       file_create_records(&s->blocks.file, d, "blocks.bin", true, TT_FILE_BLOCKS, sizeof(struct tt_block), 0, 0) &&
	       store_begin_data(s, &s->data[0], 0) &&
	       file_create_records(&s->epochs, d, "epochs.bin", false, TT_FILE_EPOCHS, sizeof(struct tt_epoch), 0, 0);
}

typedef void file_ending(struct file *f);

struct record_files {
	struct file *files[RECORDS_FILES + 4];
};

static struct record_files record_files(store *s)
{
	struct record_files r = {{&s->strings.file}};
	size_t n = 1;

	for (unsigned i = 0; i < RECORDS_FILES; i++)
		r.files[n++] = &s->records_of[i];
	r.files[n++] = &s->epochs;
	r.files[n++] = &s->digests.file;
	r.files[n] = &s->blocks.file;
	return r;
}

static void file_unopened(struct file *f)
{
	*f = FILE_CLOSED;
}

static void end_files(store *s, file_ending *end)
{
	struct record_files r = record_files(s);

	for (size_t i = 0; i < sizeof(r.files) / sizeof(r.files[0]); i++)
		end(r.files[i]);
	for (unsigned i = 0; i < TT_DATA_LANES; i++) {
		end(&s->data[i].file);
		end(&s->data_before[i].file);
	}
}

static void close_files(store *s)
{
	end_files(s, file_close);
	strings_close(&s->strings);
	for (unsigned i = 0; i < TT_DATA_LANES; i++)
		compress_close(&s->compressors[i]);
	retain_free(&s->kept);
	dedup_clear(&s->dedup);
}

static void open_failed(store *s, const char *made)
{
	end_files(s, file_discard);
	close_files(s);
	if (s->folder.path)
		rmdir(s->folder.path);
	if (made)
		rmdir(made);
	folder_free(&s->folder);
	folder_free(&s->run);
	free(s);
}

store *store_open(const store_config *config, char *error, size_t error_size)
{
	struct visit v = visit_begin();
	store *s = calloc(1, sizeof(*s));
	struct timespec t;
	bool made = false;

	if (!s) {
		snprintf(error, error_size, "opening run directory %s: out of memory", config->run_dir);
		visit_end(v);
		return NULL;
	}
	s->deterministic = config->deterministic;
	s->retain = config->retain;
	s->encoding = config->encoding;
	s->level = config->level;
	s->rank = config->rank;
	end_files(s, file_unopened);
	pthread_mutex_init(&s->records, NULL);
	pthread_mutex_init(&s->capture, NULL);
	pthread_mutex_init(&s->images, NULL);
	for (unsigned i = 0; i < TT_DATA_LANES; i++)
		pthread_mutex_init(&s->writing[i], NULL);
	pthread_mutex_init(&s->json, NULL);
	dedup_init(&s->dedup, DEDUP_BYTES);
	clock_gettime(CLOCK_REALTIME, &t);
	file_set_created(s->deterministic ? 0 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
	if (!make_run_directory(s, config->run_dir, &made, error, error_size) ||
	    (!made && !merge_may(&s->run, error, error_size)) || !make_process_directory(s, error, error_size)) {
		open_failed(s, made ? config->run_dir : NULL);
		s = NULL;
	} else if (!create_files(s)) {
		file_explain(error, error_size, "creating files in", s->folder.path, errno);
		open_failed(s, made ? config->run_dir : NULL);
		s = NULL;
	} else {
		disk_limit(&s->run, config->max_disk);
		s->digests.committed = s->digests.file.size;
		s->blocks.committed = s->blocks.file.size;
		s->data[0].committed = s->data[0].file.size;
	}
	visit_end(v);
	return s;
}

static bool lock_for_close(pthread_mutex_t *m)
{
	struct timespec until = clock_in(CLOSE_WAIT_MS);

	return !pthread_mutex_timedlock(m, &until);
}

/* Takes all locks or none: a thread may have ended with one. */
struct all_locks {
	pthread_mutex_t *locks[4 + TT_DATA_LANES];
	size_t held;
};

static void unlock_all(struct all_locks *a)
{
	while (a->held)
		pthread_mutex_unlock(a->locks[--a->held]);
}

static bool lock_all(store *s, struct all_locks *a)
{
	size_t all = 2;

	*a = (struct all_locks){.locks = {&s->json, &s->images}};
	for (unsigned i = 0; i < TT_DATA_LANES; i++)
		a->locks[all++] = &s->writing[i];
	a->locks[all++] = &s->capture;
	a->locks[all++] = &s->records;
	for (; a->held < all; a->held++)
		if (!lock_for_close(a->locks[a->held])) {
			unlock_all(a);
			return false;
		}
	return true;
}

/* Caller holds all locks. */
static void settle(store *s)
{
	store_roll_back(s);
	store_flush_records(s);
	s->sealed = true;
}

void store_seal(store *s)
{
	struct all_locks a;

	if (!s || is_closed(s))
		return;
	struct visit v = visit_begin();
	if (lock_all(s, &a)) {
		settle(s);
		unlock_all(&a);
	}
	visit_end(v);
}

void store_files(store *s, struct json *j)
{
	struct record_files r = record_files(s);
	struct visit v = visit_begin();

	if (lock_for_close(&s->records)) {
		for (size_t i = 0; s->sealed && i < sizeof(r.files) / sizeof(r.files[0]); i++)
			if (r.files[i]->fd >= 0) {
				struct file_end end = file_end(r.files[i]);
				file_end_json(j, strrchr(r.files[i]->path, '/') + 1, &end);
			}
		pthread_mutex_unlock(&s->records);
	}
	visit_end(v);
}

void store_close(store *s)
{
	struct all_locks a;

	if (!s || __atomic_exchange_n(&s->closed, true, __ATOMIC_ACQ_REL))
		return;
	struct visit v = visit_begin();
	if (lock_all(s, &a)) {
		struct manifest_source m = {
			.folder = &s->folder,
			.process = s->process,
			.rank = s->rank,
			.regions = &s->records_of[RECORDS_REGIONS],
			.epochs = &s->epochs,
			.digests = &s->digests.file,
			.strings = &s->strings,
			.oldest_segment = s->oldest_segment,
		};
		settle(s);
		if (!manifest_write(&m))
			store_fail(s, "writing manifest.json in", s->folder.path, errno);
		else if (!merge_processes(MERGE_MANIFEST, &s->run, &s->folder))
			store_fail(s, "writing manifest.json in", s->run.path, errno);
		close_files(s);
		unlock_all(&a);
	}
	visit_end(v);
}

void store_forget(store *s)
{
	if (!s || __atomic_exchange_n(&s->closed, true, __ATOMIC_ACQ_REL))
		return;
	struct visit v = visit_begin();
	end_files(s, file_close);
	visit_end(v);
}

bool store_failed(const store *s, char *reason, size_t size)
{
	if (!s || !store_has_failed(s))
		return false;
	while (__atomic_load_n(&s->failure, __ATOMIC_ACQUIRE) != 2)
		sched_yield(); /* another thread is writing the reason */
	snprintf(reason, size, "%s", s->reason);
	return true;
}

bool store_digests_only(const store *s, uint32_t *since, char *reason, size_t size)
{
	if (store_takes_contents(s))
		return false;
	*since = s->digests_only_since;
	snprintf(reason, size, "%s", s->digests_only_reason);
	return true;
}

int store_texts_lost(const store *s)
{
	return __atomic_load_n(&s->texts_lost, __ATOMIC_RELAXED);
}

unsigned store_process_index(const store *s)
{
	return s->process;
}

const char *store_directory(const store *s)
{
	return s->folder.path;
}

const struct folder *store_folder(const store *s)
{
	return &s->folder;
}

/* ---- process.json ---- */

bool store_process(store *s, const char *json)
{
	struct file f;
	bool good = false;

	if (!s || is_closed(s))
		return false;
	struct visit v = visit_begin();
	if (lock_for_close(&s->json)) {
		/* A failed store writes this too, to record the failure. */
		if (!is_closed(s)) {
			good = file_create(&f, &s->folder, "process.json.tmp", true);
			if (good && !(good = file_append(&f, json, strlen(json))))
				file_discard(&f);
			good = (good && file_publish(&f, &s->folder, "process.json")) ||
			       store_fail(s, "writing process.json in", s->folder.path, errno);
			/* If the lock is not available, the next process that gets it writes run.json. */
			if (good && !merge_processes(MERGE_RUN, &s->run, &s->folder))
				good = errno != ETIMEDOUT && store_fail(s, "writing run.json in", s->run.path, errno);
		}
		pthread_mutex_unlock(&s->json);
	}
	visit_end(v);
	return good;
}
