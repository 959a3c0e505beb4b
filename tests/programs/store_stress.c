/*
 * Drives the run directory and the event slots hard, without any CUDA: the tests build it with
 * the recorder's drain sources, once plainly and once under the sanitizers, and read what it
 * left behind.
 *
 *   store_stress events DIR THREADS EACH   THREADS at once, EACH slots a thread
 *   store_stress brief DIR THREADS EACH    THREADS one after the other, four alive at a time
 *   store_stress late DIR THREADS          closes while THREADS still take and fill slots
 *   store_stress hold DIR EACH             keeps the first slot until EACH others were taken
 *   store_stress store DIR EPOCHS RETAIN   epochs beside threads that add records
 *   store_stress fork DIR                  a child lets go, the parent goes on
 *   store_stress closed DIR                the program closes every descriptor it finds
 *   store_stress forever DIR               until it is killed
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../interpose/util/xxh3.h"
#include "../../interpose/store/events.h"
#include "../../interpose/store/store.h"

#define REGIONS 12
#define BLOCKS 5
#define SIZE (4 * (uint64_t)TT_BLOCK_SIZE + 777)

static _Atomic uint64_t seq;
static _Atomic int running;
static unsigned each;

static void die(const char *what)
{
	fprintf(stderr, "store_stress: %s\n", what);
	exit(3);
}

static void fill(struct tt_event *e, uint32_t thread, uint32_t id)
{
	e->seq = atomic_fetch_add(&seq, 1) + 1;
	e->thread = thread;
	e->id = id;
	e->bytes = e->seq * 3;
	events_publish(e, TT_EVENT_LAUNCH);
}

static void *take_each(void *index)
{
	for (uint32_t i = 0; i < each; i++) {
		struct tt_event *e = events_next();
		if (e)
			fill(e, (uint32_t)(uintptr_t)index, i);
	}
	return NULL;
}

static void *take_until_stopped(void *index)
{
	for (uint32_t i = 0; atomic_load(&running); i++) {
		struct tt_event *e = events_next();
		if (e)
			fill(e, (uint32_t)(uintptr_t)index, i);
	}
	return NULL;
}

static void nap(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

static void open_events(const char *directory)
{
	static struct folder kept; /* the events go on using it */
	char error[512];

	folder_free(&kept);
	if (!folder_find(&kept, directory) || !events_open(&kept, error, sizeof(error)))
		die(error);
}

static void report_events(void)
{
	printf("%llu %llu\n", (unsigned long long)events_count(), (unsigned long long)events_lost());
}

/* At most `alive` threads at a time. */
static void run_threads(unsigned threads, unsigned alive, void *(*body)(void *))
{
	pthread_t t[256];

	for (unsigned i = 0; i < threads + alive; i++) {
		if (i >= alive)
			pthread_join(t[(i - alive) % 256], NULL);
		if (i < threads && pthread_create(&t[i % 256], NULL, body, (void *)(uintptr_t)i))
			die("no thread");
	}
}

static void late(const char *directory, unsigned threads)
{
	pthread_t t[64];

	open_events(directory);
	atomic_store(&running, 1);
	for (unsigned i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, take_until_stopped, (void *)(uintptr_t)i);
	nap(30);
	events_close();
	report_events();
	nap(30);
	atomic_store(&running, 0);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

static void hold(const char *directory)
{
	open_events(directory);
	struct tt_event *first = events_next();
	take_each(NULL);
	fill(first, 1, TT_NO_ID);
	struct tt_event *last = events_next();
	events_close();
	fill(last, 1, TT_NO_ID);
	report_events();
}

/* ---- the store ---- */

static store *open_store(const char *run, unsigned retain)
{
	store_config config = {.run_dir = run, .retain = retain};
	char error[512];
	store *s = store_open(&config, error, sizeof(error));

	if (!s)
		die(error);
	return s;
}

static void contents_of(uint8_t *to, uint32_t region, uint32_t block, uint32_t version, uint32_t length)
{
	uint64_t x = region % 4 * 1000003ull + block * 10007ull + version + 1; /* regions share contents */

	for (uint32_t i = 0; i < length; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		to[i] = (uint8_t)(x >> 56);
	}
}

static bool one_epoch(store *s, uint32_t number, bool full, bool abandon)
{
	static uint8_t contents[TT_BLOCK_SIZE];
	uint64_t bytes = 0;

	if (!store_epoch_begin(s, number, full, true))
		return false;
	for (uint32_t r = 0; r < REGIONS; r++) {
		if (!full && (r + number) % 3)
			continue;
		for (uint32_t b = 0; b < BLOCKS; b++) {
			uint32_t length = b + 1 < BLOCKS ? TT_BLOCK_SIZE : SIZE % TT_BLOCK_SIZE;
			uint64_t digest, place;
			contents_of(contents, r, b, number / 2, length);
			digest = xxh3_64(contents, length);
			struct tt_block record = {r, b, digest, 0, length, 0};
			if (!store_find(s, &record, 1, &place))
				return false;
			record.offset = place;
			if (!store_blocks(s, &record, 1, place ? NULL : contents, b % TT_DATA_LANES))
				return false;
			bytes += length;
		}
		if (!store_digest(s, r, number * 100ull + r, BLOCKS))
			return false;
	}
	if (abandon) {
		store_epoch_abandon(s);
		return true;
	}
	struct tt_epoch e = {
		.number = number,
		.trigger = TT_TRIGGER_SYNC,
		.flags = full ? TT_EPOCHF_FULL : 0,
		.label = store_string(s, number % 2 ? "odd" : NULL),
		.bytes_read = REGIONS * SIZE,
		.bytes_changed = bytes,
		.regions = REGIONS,
	};
	return store_epoch_commit(s, &e);
}

static store *shared;

static void *add_records(void *index)
{
	uint32_t me = (uint32_t)(uintptr_t)index;

	for (uint32_t i = 0; i < 200 && atomic_load(&running); i++) {
		char text[64];
		snprintf(text, sizeof(text), "kernel %u", i);
		struct tt_function f = {.id = me * 1000 + i, .name = store_string(shared, text), .module = TT_NO_ID};
		store_function(shared, &f);
		struct tt_module m = {.id = me * 1000 + i, .kind = TT_MODULE_PTX, .path = TT_NO_ID};
		store_module(shared, &m, i % 10 ? NULL : text, strlen(text));
		struct tt_event *e = events_next();
		if (e)
			fill(e, me, i);
	}
	return NULL;
}

static void add_regions(store *s)
{
	for (uint32_t r = 0; r < REGIONS; r++) {
		struct tt_region region = {.op = TT_REGION_BORN, .id = r, .base = 0x1000000ull * (r + 1), .size = SIZE,
					   .kind = TT_REGION_DEVICE, .flags = TT_REGIONF_CAPTURED, .label = TT_NO_ID,
					   .call = TT_NO_ID, .module = TT_NO_ID};
		store_region(s, &region);
	}
}

static void run_store(const char *run, uint32_t epochs, unsigned retain)
{
	pthread_t t[4];

	shared = open_store(run, retain);
	open_events(store_directory(shared));
	atomic_store(&running, 1);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, add_records, (void *)i);
	add_regions(shared);
	for (uint32_t n = 0; n < epochs; n++) {
		if (n % 5 == 3 && !one_epoch(shared, n, n % 4 == 0, true))
			die("epoch to abandon");
		if (!one_epoch(shared, n, n % 4 == 0, false))
			die("epoch");
	}
	for (uintptr_t i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	events_close();
	store_process(shared, "{\"process\":0}");
	store_close(shared);
	store_close(shared);
	if (one_epoch(shared, epochs, true, false) || store_string(shared, "x") != TT_NO_ID)
		die("a closed store took something");
	report_events();
}

static void fork_and_go_on(const char *run)
{
	int status;

	shared = open_store(run, 0);
	open_events(store_directory(shared));
	fill(events_next(), 0, 1);
	one_epoch(shared, 0, true, false);
	pid_t child = fork();
	if (child == 0) {
		events_forget();
		store_forget(shared);
		if (events_next() || one_epoch(shared, 1, true, false))
			die("the child went on recording");
		store *own = open_store(run, 0);
		open_events(store_directory(own));
		fill(events_next(), 0, 3);
		events_close();
		one_epoch(own, 0, true, false);
		store_process(own, "{\"process\":1}");
		store_close(own);
		exit(0);
	}
	waitpid(child, &status, 0);
	fill(events_next(), 0, 2);
	one_epoch(shared, 1, false, false);
	events_close();
	store_process(shared, "{\"process\":0}");
	store_close(shared);
	if (status)
		die("the child failed");
}

static void descriptors_closed(const char *run)
{
	shared = open_store(run, 0);
	one_epoch(shared, 0, true, false);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	FILE *own[64];
	for (int i = 0; i < 64; i++) {
		own[i] = tmpfile();
		dup2(fileno(own[i]), 200 + i);
	}
	add_regions(shared);
	one_epoch(shared, 1, false, false);
	store_process(shared, "{\"process\":0}");
	store_close(shared);
	for (int i = 0; i < 64; i++)
		if (lseek(200 + i, 0, SEEK_END) != 0)
			die("a file of the program was written to");
}

static void forever(const char *run)
{
	shared = open_store(run, 3);
	open_events(store_directory(shared));
	add_regions(shared);
	each = 100;
	for (uint32_t n = 0;; n++) {
		take_each(NULL);
		if (!one_epoch(shared, n, n % 4 == 0, false))
			die("epoch");
	}
}

int main(int argc, char **argv)
{
	if (argc < 3)
		die("usage");
	const char *mode = argv[1], *directory = argv[2];
	unsigned a = argc > 3 ? (unsigned)atoi(argv[3]) : 0, b = argc > 4 ? (unsigned)atoi(argv[4]) : 0;

	if (!strcmp(mode, "events") || !strcmp(mode, "brief")) {
		open_events(directory);
		each = b;
		run_threads(a, *mode == 'e' ? a : 4, take_each);
		events_close();
		report_events();
	} else if (!strcmp(mode, "late")) {
		late(directory, a);
	} else if (!strcmp(mode, "hold")) {
		each = a;
		hold(directory);
	} else if (!strcmp(mode, "store")) {
		run_store(directory, a, b);
	} else if (!strcmp(mode, "fork")) {
		fork_and_go_on(directory);
	} else if (!strcmp(mode, "closed")) {
		descriptors_closed(directory);
	} else if (!strcmp(mode, "forever")) {
		forever(directory);
	} else {
		die("unknown mode");
	}
	return 0;
}
