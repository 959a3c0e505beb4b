/*
 * Writes records that belong to no epoch: texts, regions and their labels, call stacks, launches,
 * graphs, functions, modules and their images. See store.h for the invariant.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/xxh3.h"
#include "store/disk.h"
#include "store/internal.h"

static const struct {
	const char *name;
	enum tt_file_kind kind;
	uint32_t size;
	bool buffered; /* thousands may come between two epochs */
} files[RECORDS_FILES] = {
	[RECORDS_REGIONS] = {"regions.bin", TT_FILE_REGIONS, sizeof(struct tt_region), true},
	[RECORDS_LABELS] = {"labels.bin", TT_FILE_LABELS, sizeof(struct tt_label), true},
	[RECORDS_FRAMES] = {"frames.bin", TT_FILE_FRAMES, sizeof(struct tt_frame), false},
	[RECORDS_LAUNCHES] = {"launches.bin", TT_FILE_LAUNCHES, sizeof(struct tt_launch), false},
	[RECORDS_TRACED] = {"traced.bin", TT_FILE_TRACED, sizeof(struct tt_traced), false},
	[RECORDS_TRACE] = {"trace.bin", TT_FILE_TRACE, 1, false},
	[RECORDS_TENSOR_MAPS] = {"tensormaps.bin", TT_FILE_TENSOR_MAPS, sizeof(struct tt_tensor_map), false},
	[RECORDS_GRAPH_DATA] = {"graphdata.bin", TT_FILE_GRAPH_DATA, 1, false},
	[RECORDS_GRAPHS] = {"graphs.bin", TT_FILE_GRAPHS, sizeof(struct tt_graph_record), false},
	[RECORDS_FUNCTIONS] = {"functions.bin", TT_FILE_FUNCTIONS, sizeof(struct tt_function), false},
	[RECORDS_MODULES] = {"modules.bin", TT_FILE_MODULES, sizeof(struct tt_module), false},
};

#define QUIET_NS 20000000 /* a region that comes so long after the last write is written at once */

bool store_begin_records(store *s, enum records which)
{
	return file_create_records(&s->records_of[which], &s->folder, files[which].name, files[which].buffered,
				   files[which].kind, files[which].size, 0, TT_ENCODING_PLAIN);
}

bool store_append(store *s, struct file *f, const void *record, size_t size)
{
	uint64_t before = f->size;

	if (file_append(f, record, size))
		return true;
	store_fail_write(s, f);
	file_rollback(f, before);
	return false;
}

/* Caller holds the lock. */
static bool append(store *s, enum records which, const void *records, size_t count)
{
	struct file *f = &s->records_of[which];

	return (f->fd >= 0 || store_begin_records(s, which) || store_fail(s, "creating", files[which].name, errno)) &&
	       (!count || store_append(s, f, records, count * files[which].size));
}

/* The check is the last member of each record. */
static bool append_checked(store *s, enum records which, void *records, size_t count)
{
	size_t size = files[which].size;

	for (size_t i = 0; i < count; i++) {
		char *record = (char *)records + i * size;
		uint64_t check = xxh3_64(record, size - sizeof(check));
		memcpy(record + size - sizeof(check), &check, sizeof(check));
	}
	return append(s, which, records, count);
}

#define CHECK_IS_LAST(type) _Static_assert(offsetof(type, check) + sizeof(uint64_t) == sizeof(type), "append_checked")
CHECK_IS_LAST(struct tt_region);
CHECK_IS_LAST(struct tt_label);
CHECK_IS_LAST(struct tt_frame);
CHECK_IS_LAST(struct tt_launch);
CHECK_IS_LAST(struct tt_traced);
CHECK_IS_LAST(struct tt_tensor_map);
CHECK_IS_LAST(struct tt_graph_record);
CHECK_IS_LAST(struct tt_function);
CHECK_IS_LAST(struct tt_module);

static bool add(store *s, enum records which, void *records, size_t count)
{
	struct visit v;

	if (!store_enter(s, &s->records, &v))
		return false;
	bool good = append_checked(s, which, records, count);
	store_leave(&s->records, v);
	return good;
}

char *store_text(store *s, uint32_t offset)
{
	struct visit v;
	uint32_t length;

	if (!store_enter(s, &s->records, &v))
		return NULL;
	char *text = strings_get(&s->strings, offset, &length);
	store_leave(&s->records, v);
	if (text)
		text[length] = 0;
	return text;
}

uint32_t store_string(store *s, const char *text)
{
	uint32_t offset = TT_NO_ID;
	struct visit v;

	if (!text || !store_enter(s, &s->records, &v))
		return TT_NO_ID;
	if (!strings_add(&s->strings, text, &offset)) {
		offset = TT_NO_ID;
		if (errno == EOVERFLOW || errno == ENOMEM)
			__atomic_store_n(&s->texts_lost, errno, __ATOMIC_RELAXED);
		else
			store_fail_write(s, &s->strings.file);
	}
	store_leave(&s->records, v);
	return offset;
}

bool store_flush_records(store *s)
{
	bool good = true;

	for (unsigned i = 0; i < RECORDS_FILES; i++) {
		struct file *f = &s->records_of[i];
		if (!files[i].buffered || f->fd < 0 || file_flush(f))
			continue;
		good = store_fail_write(s, f);
		file_rollback(f, f->written);
	}
	s->flushed_ns = clock_ns();
	return good;
}

void store_idle(store *s)
{
	struct visit v;

	if (!store_enter(s, &s->records, &v))
		return;
	store_flush_records(s);
	store_leave(&s->records, v);
}

bool store_region(store *s, struct tt_region *r)
{
	struct visit v;

	if (!store_enter(s, &s->records, &v))
		return false;
	bool good = append_checked(s, RECORDS_REGIONS, r, 1);
	if (good && clock_ns() - s->flushed_ns > QUIET_NS)
		good = store_flush_records(s);
	if (s->retain)
		retain_region(&s->kept, r, __atomic_load_n(&s->segment, __ATOMIC_RELAXED));
	store_leave(&s->records, v);
	return good;
}

bool store_label(store *s, struct tt_label *l)
{
	return add(s, RECORDS_LABELS, l, 1);
}

bool store_frames(store *s, struct tt_frame *frames, size_t count)
{
	return add(s, RECORDS_FRAMES, frames, count);
}

bool store_launch(store *s, struct tt_launch *l)
{
	return add(s, RECORDS_LAUNCHES, l, 1);
}

bool store_traced(store *s, struct tt_traced *t)
{
	return add(s, RECORDS_TRACED, t, 1);
}

bool store_tensor_map(store *s, struct tt_tensor_map *m)
{
	return add(s, RECORDS_TENSOR_MAPS, m, 1);
}

bool store_trace(store *s, const void *records, uint32_t bytes, uint64_t count)
{
	struct tt_trace_chunk c = {.magic = TT_TRACE_MAGIC, .bytes = bytes, .records = count, .check = xxh3_64(records, bytes)};
	struct visit v;

	c.head_check = xxh3_64(&c, offsetof(struct tt_trace_chunk, head_check));
	if (!disk_take(DISK_CONTENTS, sizeof(c) + bytes) || !store_enter(s, &s->records, &v))
		return false;
	bool good = append(s, RECORDS_TRACE, &c, sizeof(c)) && append(s, RECORDS_TRACE, records, bytes);
	store_leave(&s->records, v);
	return good;
}

bool store_function(store *s, struct tt_function *f)
{
	return add(s, RECORDS_FUNCTIONS, f, 1);
}

bool store_graph(store *s, struct tt_graph_record *records, size_t count, const uint8_t *data, size_t size)
{
	struct file *f = s ? &s->records_of[RECORDS_GRAPH_DATA] : NULL;
	struct visit v;

	if (!store_enter(s, &s->records, &v))
		return false;
	/* The data first, so that a record never refers to missing data. */
	bool good = append(s, RECORDS_GRAPH_DATA, data, size);
	uint64_t at = f->size - size;
	for (size_t i = 0; good && i < count; i++) {
		struct tt_graph_record *r = &records[i];
		r->data_check = r->data_size ? xxh3_64(data + r->data, r->data_size) : 0;
		r->data = r->data_size ? r->data + at : 0;
	}
	good = good && append_checked(s, RECORDS_GRAPHS, records, count);
	store_leave(&s->records, v);
	return good;
}

/* Saves the image under its hash, once. */
static bool save_image(store *s, uint64_t hash, const void *image, size_t size)
{
	char name[32], draft[40];
	struct stat status;
	struct file f;

	snprintf(name, sizeof(name), "%016llx", (unsigned long long)hash);
	snprintf(draft, sizeof(draft), "%s.tmp", name);
	if (!s->image_folder.path && !folder_make(&s->image_folder, &s->folder, "modules"))
		return store_fail(s, "creating modules in", s->folder.path, errno);
	int fd = file_open_existing(&s->image_folder, name);
	bool there = fd >= 0 && !fstat(fd, &status) && (uint64_t)status.st_size == size;
	if (fd >= 0)
		close(fd);
	if (there)
		return true;
	if (!file_create(&f, &s->image_folder, draft, false))
		return store_fail(s, "creating an image in", s->image_folder.path, errno);
	if (!file_append(&f, image, size)) {
		store_fail_write(s, &f);
		file_discard(&f);
		return false;
	}
	return file_publish(&f, &s->image_folder, name) || store_fail(s, "writing an image in", s->image_folder.path, errno);
}

uint64_t store_image(store *s, const void *image, size_t size)
{
	uint64_t hash = xxh3_64(image, size);
	struct visit v;

	if (!store_enter(s, &s->images, &v))
		return 0;
	bool good = save_image(s, hash, image, size);
	store_leave(&s->images, v);
	return good ? hash : 0;
}

bool store_module(store *s, struct tt_module *m, const void *image, size_t size)
{
	m->size = size;
	m->image = image ? store_image(s, image, size) : 0;
	return (!image || m->image) && add(s, RECORDS_MODULES, m, 1);
}
