/*
 * Writes manifest.json from the record files, in a few MiB of memory for a run of any length.
 *
 * The birth and the death of a region may be anywhere in regions.bin. So ids are processed a window
 * at a time, and the file is read once per window.
 */
#define _GNU_SOURCE
#include "store/manifest.h"

#include <stdio.h>
#include <stdlib.h>

#include "util/json_writer.h"

#define MOST_LIVES (256u << 10) /* in memory at a time */

struct life {
	uint64_t size;
	uint32_t kind; /* 0: its birth was not found */
	uint32_t label, born, died;
	uint32_t captured;
};

static const char *region_kind(uint32_t kind)
{
	static const char *const names[] = {
		[TT_REGION_DEVICE] = "device", [TT_REGION_MANAGED] = "managed",
		[TT_REGION_ASYNC] = "async",   [TT_REGION_VMM] = "vmm",
		[TT_REGION_GLOBAL] = "global", [TT_REGION_IPC] = "ipc",
		[TT_REGION_ARENA] = "arena",   [TT_REGION_ZONE] = "zone",
		[TT_REGION_HOST] = "host",     [TT_REGION_HOST_REGISTERED] = "host-registered",
		[TT_REGION_ARRAY] = "array",
	};

	return kind < sizeof(names) / sizeof(names[0]) && names[kind] ? names[kind] : "unknown";
}

static const char *trigger_name(uint32_t trigger)
{
	static const char *const names[] = {
		[TT_TRIGGER_SYNC] = "sync",
		[TT_TRIGGER_LAUNCH] = "launch",
		[TT_TRIGGER_KERNEL_BEFORE] = "kernel-before",
		[TT_TRIGGER_KERNEL_AFTER] = "kernel-after",
		[TT_TRIGGER_COPY] = "copy",
		[TT_TRIGGER_API] = "api",
		[TT_TRIGGER_FINAL] = "final",
		[TT_TRIGGER_GRAPH] = "graph",
		[TT_TRIGGER_NVTX] = "nvtx",
		[TT_TRIGGER_GRAPH_NODE] = "graph-node",
	};

	return trigger < sizeof(names) / sizeof(names[0]) && names[trigger] ? names[trigger] : "unknown";
}

static bool write_label(const struct manifest_source *m, struct json *j, uint32_t offset)
{
	uint32_t length;
	char *text = offset == TT_NO_ID ? NULL : strings_get(m->strings, offset, &length);

	json_key(j, "label");
	if (text)
		json_string_n(j, text, length);
	else
		json_null(j);
	free(text);
	return text || offset == TT_NO_ID;
}

static bool write_region(const struct manifest_source *m, struct json *j, uint32_t id, const struct life *l)
{
	json_line(j);
	json_open(j, '{');
	json_member_u64(j, "id", id);
	json_member_string(j, "kind", region_kind(l->kind));
	json_member_u64(j, "size", l->size);
	bool good = write_label(m, j, l->label);
	json_member_u64(j, "born", l->born);
	json_key(j, "died");
	if (l->died == TT_NO_EPOCH)
		json_null(j);
	else
		json_u64(j, l->died);
	json_close(j, '}');
	return good;
}

/* Applies one record to a region's life. */
static void live_on(struct life *l, const struct tt_region *r, uint32_t *born, uint32_t *open)
{
	if (r->op == TT_REGION_BORN && !l->kind) {
		*l = (struct life){.size = r->size,
				   .kind = r->kind,
				   .label = r->label,
				   .born = r->epoch,
				   .died = TT_NO_EPOCH,
				   .captured = r->flags & TT_REGIONF_CAPTURED};
		++*born;
		++*open;
	} else if (r->op == TT_REGION_LABEL && l->kind) {
		l->label = r->label;
	} else if (r->op == TT_REGION_DIED && l->kind && l->died == TT_NO_EPOCH) {
		l->died = r->epoch;
		--*open;
	}
}

static uint64_t record_count(const struct manifest_source *m)
{
	return (m->regions->size - TT_FILE_HEADER_SIZE) / sizeof(struct tt_region);
}

/* Fills lives of ids first to first + window - 1; *next: start of the next window, TT_NO_ID: none. */
static bool read_window(const struct manifest_source *m, uint32_t first, uint32_t window, struct life *lives,
			struct tt_region *records, uint32_t *next)
{
	const uint64_t end = record_count(m);
	const uint64_t piece = FILE_PIECE / sizeof(*records);
	uint32_t born = 0, open = 0;

	*next = TT_NO_ID;
	for (uint64_t at = 0; at < end; at += piece) {
		uint64_t n = end - at < piece ? end - at : piece;
		if (!file_read(m->regions, records, n * sizeof(*records), TT_FILE_HEADER_SIZE + at * sizeof(*records)))
			return false;
		for (uint64_t i = 0; i < n; i++) {
			uint32_t id = records[i].id;
			if (id >= first && id - first < window)
				live_on(lives + (id - first), records + i, &born, &open);
			else if (id >= first && id < *next)
				*next = id;
		}
		if (*next != TT_NO_ID && born == window && !open) {
			*next = first + window; /* the region may die in the rest of the file */
			break;
		}
	}
	return true;
}

static bool write_regions(const struct manifest_source *m, struct json *j)
{
	/* Ids begin at 0 without gaps: a window of as many as there are records has all of a small run. */
	const uint64_t count = record_count(m);
	const uint32_t window = count < MOST_LIVES ? (uint32_t)count + 1 : MOST_LIVES;
	struct tt_region *records = malloc(FILE_PIECE);
	bool good = records != NULL;

	json_member_open(j, "regions", '[');
	for (uint32_t first = 0, next; good && first != TT_NO_ID; first = next) {
		struct life *lives = calloc(window, sizeof(*lives));
		good = lives && read_window(m, first, window, lives, records, &next);
		for (uint32_t i = 0; good && i < window; i++)
			if (lives[i].captured)
				good = write_region(m, j, first + i, lives + i);
		free(lives);
	}
	json_close(j, ']');
	free(records);
	return good;
}

static void write_flags(const struct manifest_source *m, struct json *j, const struct tt_epoch *e)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {
		{TT_EPOCHF_FULL, "full"},       {TT_EPOCHF_TOUCHED, "touched"}, {TT_EPOCHF_LOOSE, "loose"},
		{TT_EPOCHF_REFUSED, "refused"}, {TT_EPOCHF_DROPPED, "dropped"}, {TT_EPOCHF_GAP, "gap"},
	};
	uint32_t set = e->flags;

	if (e->segment < m->oldest_segment && !(set & TT_EPOCHF_REFUSED))
		set |= TT_EPOCHF_DROPPED;
	json_member_open(j, "flags", '[');
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (set & flags[i].flag)
			json_string(j, flags[i].name);
	if (e->skipped)
		json_string(j, "skipped");
	json_close(j, ']');
}

static int by_region(const void *a, const void *b)
{
	uint32_t x = ((const struct tt_digest *)a)->region, y = ((const struct tt_digest *)b)->region;

	return (x > y) - (x < y);
}

static bool write_digests(const struct manifest_source *m, struct json *j, const struct tt_epoch *e)
{
	struct tt_digest *d = malloc(e->digests_count * sizeof(*d) + 1);
	bool good = d && file_read(m->digests, d, e->digests_count * sizeof(*d),
				   TT_FILE_HEADER_SIZE + e->digests_first * sizeof(*d));
	bool sorted = true;

	for (uint64_t i = 1; good && i < e->digests_count && sorted; i++)
		sorted = d[i - 1].region <= d[i].region;
	if (!sorted)
		qsort(d, e->digests_count, sizeof(*d), by_region);
	json_member_open(j, "digests", '{');
	for (uint64_t i = 0; good && i < e->digests_count; i++) {
		char key[12];
		snprintf(key, sizeof(key), "%u", d[i].region);
		json_key(j, key);
		json_hex16(j, d[i].digest);
	}
	json_close(j, '}');
	free(d);
	return good;
}

static bool write_epoch(const struct manifest_source *m, struct json *j, const struct tt_epoch *e)
{
	bool good;

	json_line(j);
	json_open(j, '{');
	json_member_u64(j, "epoch", e->number);
	json_member_string(j, "trigger", trigger_name(e->trigger));
	good = write_label(m, j, e->label);
	write_flags(m, j, e);
	good = good && write_digests(m, j, e);
	json_close(j, '}');
	return good;
}

static bool write_epochs(const struct manifest_source *m, struct json *j)
{
	const uint64_t end = (m->epochs->size - TT_FILE_HEADER_SIZE) / sizeof(struct tt_epoch);
	const uint64_t piece = FILE_PIECE / sizeof(struct tt_epoch);
	struct tt_epoch *records = malloc(FILE_PIECE);
	bool good = records != NULL;

	json_member_open(j, "epochs", '[');
	for (uint64_t at = 0; good && at < end; at += piece) {
		uint64_t n = end - at < piece ? end - at : piece;
		good = file_read(m->epochs, records, n * sizeof(*records), TT_FILE_HEADER_SIZE + at * sizeof(*records));
		for (uint64_t i = 0; good && i < n; i++)
			good = write_epoch(m, j, records + i);
	}
	json_close(j, ']');
	free(records);
	return good;
}

static bool to_file(void *to, const char *text, size_t size)
{
	return file_append(to, text, size);
}

bool manifest_write(const struct manifest_source *m)
{
	struct file out;
	struct json j;
	bool good;

	if (!file_create(&out, m->folder, "manifest.json.tmp", true))
		return false;
	json_begin(&j, to_file, &out);
	json_open(&j, '{');
	json_member_u64(&j, "process", m->process);
	if (m->rank)
		json_member_u64(&j, "rank", *m->rank);
	good = write_regions(m, &j) && write_epochs(m, &j);
	json_close(&j, '}');
	good = good && json_flush(&j);
	json_free(&j);
	if (good)
		return file_publish(&out, m->folder, "manifest.json");
	file_discard(&out);
	return false;
}
