/*
 * Reads delay configurations. See delay_config.h for the invariant.
 */
#include "options/delay_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options/option_limits.h"
#include "store/file.h"
#include "util/json_reader.h"
#include "util/vector.h"

#define LARGEST (256 << 20) /* limit of a file in bytes */
#define MEMBER(bit) (1u << (bit))

/* The destination of a list of members, and a bit for each that was found. */
struct members {
	void *of;
	unsigned found;
};

/* ---- members ---- */

/* The member's index in a list of names; -1: unknown, or repeated. */
static int which(struct reader *r, const char *key, const char *const *names, unsigned *found)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(key, names[i])) {
			if (*found & MEMBER(i)) {
				reader_fail(r, "a member appears twice");
				return -1;
			}
			*found |= MEMBER(i);
			return i;
		}
	reader_fail(r, "unknown member");
	return -1;
}

static bool skip_string(struct reader *r)
{
	char *text = reader_string(r);

	free(text);
	return text != NULL;
}

static bool skip_number(struct reader *r)
{
	uint64_t value;

	return reader_number(r, UINT64_MAX, &value);
}

/* limit: of the option for such a delay. */
static bool read_delay(struct reader *r, const char *limit, uint32_t *ns)
{
	uint64_t value = 0;

	if (!reader_number(r, strtoull(limit, NULL, 10), &value))
		return false;
	*ns = (uint32_t)value;
	return true;
}

static bool has_room(struct reader *r, void *array, size_t *room, size_t count, size_t item)
{
	return make_room(array, room, count, 1, item) || reader_fail(r, "no host memory");
}

static bool whole_key(const char *key, const char *end)
{
	return *key >= '0' && *key <= '9' && !*end;
}

/* ---- points ---- */

/* From "@P0 LDG.E R2, ..." or "LDG" it takes LDG. */
static bool read_mnemonic(struct reader *r, struct config_point *p)
{
	char *text = reader_string(r), *at = text;

	if (!text)
		return false;
	if (*at == '@') {
		at += strcspn(at, " ");
		at += strspn(at, " ");
	}
	snprintf(p->mnemonic, sizeof(p->mnemonic), "%.*s", (int)strcspn(at, " .;"), at);
	free(text);
	return true;
}

static bool point_member(struct reader *r, const char *key, void *user)
{
	static const char *const names[] = {"pc", "sass", "delay", "on", "cluster_seed", NULL};
	struct members *to = user;
	struct config_point *p = to->of;
	uint64_t seed = 0;

	switch (which(r, key, names, &to->found)) {
	case 0:
		return reader_number(r, UINT64_MAX, &p->pc);
	case 1:
		return read_mnemonic(r, p);
	case 2:
		return read_delay(r, LIMIT_DELAY, &p->delay);
	case 3:
		return reader_bool(r, &p->on);
	case 4:
		if (!reader_number(r, UINT32_MAX, &seed))
			return false;
		p->cluster_seed = (uint32_t)seed;
		return true;
	default:
		return false;
	}
}

static bool point(struct reader *r, const char *key, void *user)
{
	struct config_kernel *k = user;
	char *end;

	if (!has_room(r, &k->points, &k->room, k->count, sizeof(*k->points)))
		return false;
	struct config_point *p = &k->points[k->count++];
	struct members to = {p, 0};
	*p = (struct config_point){0};
	if (!reader_object(r, point_member, &to))
		return false;
	if ((to.found & 15) != 15)
		return reader_fail(r, "a point lacks pc, sass, delay or on");
	if (strtoull(key, &end, 10) != p->pc || !whole_key(key, end))
		return reader_fail(r, "a point is listed under another pc than its own");
	return true;
}

static int by_pc(const void *a, const void *b)
{
	const struct config_point *x = a, *y = b;

	return x->pc < y->pc ? -1 : x->pc > y->pc;
}

/* ---- kernels ---- */

static bool read_checksum(struct reader *r, struct config_kernel *k)
{
	char *text = reader_string(r), *end;

	if (!text)
		return false;
	k->checksum = strtoull(text, &end, 16);
	k->has_checksum = strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
	free(text);
	return true; /* a different `kind` matches no kernel here */
}

static bool kernel_member(struct reader *r, const char *key, void *user)
{
	static const char *const names[] = {"kernel_name", "kernel_checksum", "instrumentation_points", "timestamp", NULL};
	struct members *to = user;
	struct config_kernel *k = to->of;

	switch (which(r, key, names, &to->found)) {
	case 0:
		return (k->name = reader_string(r)) != NULL;
	case 1:
		return read_checksum(r, k);
	case 2:
		return reader_object(r, point, k);
	case 3:
		return skip_string(r);
	default:
		return false;
	}
}

static bool kernel(struct reader *r, const char *key, void *user)
{
	struct delay_config *c = user;
	(void)key;

	if (!has_room(r, &c->kernels, &c->kernel_room, c->kernel_count, sizeof(*c->kernels)))
		return false;
	struct config_kernel *k = &c->kernels[c->kernel_count++];
	struct members to = {k, 0};
	*k = (struct config_kernel){0};
	if (!reader_object(r, kernel_member, &to))
		return false;
	if ((to.found & 7) != 7)
		return reader_fail(r, "a kernel lacks kernel_name, kernel_checksum or instrumentation_points");
	if (k->count)
		qsort(k->points, k->count, sizeof(*k->points), by_pc);
	for (size_t i = 1; i < k->count; i++)
		if (k->points[i].pc == k->points[i - 1].pc)
			return reader_fail(r, "a point of the kernel is listed twice");
	return true;
}

static int by_checksum(const void *a, const void *b)
{
	const struct config_kernel *x = a, *y = b;

	if (x->has_checksum != y->has_checksum)
		return x->has_checksum ? -1 : 1;
	return x->checksum < y->checksum ? -1 : x->checksum > y->checksum ? 1 : strcmp(x->name, y->name);
}

/* ---- calls ---- */

static bool read_where(struct reader *r, struct config_launch *l)
{
	char *text = reader_string(r);

	if (!text)
		return false;
	l->in_stream = strcmp(text, "host") != 0;
	l->in_call = strcmp(text, "stream") != 0;
	bool good = !l->in_stream || !l->in_call || !strcmp(text, "both");
	free(text);
	return good || reader_fail(r, "expected stream, host or both");
}

static bool launch_member(struct reader *r, const char *key, void *user)
{
	static const char *const names[] = {"stream", "number", "delay",       "on",      "where",
					    "seq",    "call",   "kernel_name", "process", NULL};
	struct members *to = user;
	struct config_launch *l = to->of;

	switch (which(r, key, names, &to->found)) {
	case 0:
		return reader_number(r, UINT64_MAX, &l->stream);
	case 1:
		return reader_number(r, UINT64_MAX, &l->number);
	case 2:
		return read_delay(r, LIMIT_LAUNCH_DELAY, &l->delay);
	case 3:
		return reader_bool(r, &l->on);
	case 4:
		return read_where(r, l);
	case 5:
	case 8:
		return skip_number(r);
	case 6:
	case 7:
		return skip_string(r);
	default:
		return false;
	}
}

static bool launch(struct reader *r, const char *key, void *user)
{
	struct delay_config *c = user;
	char *colon, *end;

	if (!has_room(r, &c->launches, &c->launch_room, c->launch_count, sizeof(*c->launches)))
		return false;
	struct config_launch *l = &c->launches[c->launch_count++];
	struct members to = {l, 0};
	*l = (struct config_launch){0};
	if (!reader_object(r, launch_member, &to))
		return false;
	if ((to.found & 31) != 31)
		return reader_fail(r, "a call lacks stream, number, delay, on or where");
	uint64_t stream = strtoull(key, &colon, 10);
	if (*colon != ':' || stream != l->stream || strtoull(colon + 1, &end, 10) != l->number || !whole_key(colon + 1, end))
		return reader_fail(r, "a call is listed under another stream and number than its own");
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct config_launch *x = a, *y = b;

	if (x->stream != y->stream)
		return x->stream < y->stream ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

/* ---- the file ---- */

#define HAS_MODE (1u << 4) /* the place of "mode" among the names in member() */

static bool read_version(struct reader *r)
{
	char *text = reader_string(r), *end;

	if (!text)
		return false;
	bool one = strtoul(text, &end, 10) == 1 && *end == '.' && end[1];
	free(text);
	return one || reader_fail(r, "unknown version, expected 1.0");
}

static bool read_mode(struct reader *r, enum config_mode *mode)
{
	char *text = reader_string(r), why[80];
	uint32_t number = 0;
	bool found = text && choice_parse(text, LIMIT_DELAY_MODE, &number);

	free(text);
	*mode = (enum config_mode)number;
	choice_expect(LIMIT_DELAY_MODE, why, sizeof(why));
	return found || reader_fail(r, why);
}

static bool member(struct reader *r, const char *key, void *user)
{
	static const char *const names[] = {"version", "delay_ns", "kernels",  "delay_min_ns",  "mode",
					    "seed",    "patterns", "launches", "cluster_block", NULL};
	struct members *to = user;
	struct delay_config *c = to->of;
	uint64_t block = 0;

	switch (which(r, key, names, &to->found)) {
	case 0:
		return read_version(r);
	case 1:
		return read_delay(r, LIMIT_LAUNCH_DELAY, &c->delay_ns);
	case 2:
		return reader_object(r, kernel, c);
	case 3:
		return read_delay(r, LIMIT_DELAY_MIN, &c->min_ns);
	case 4:
		return read_mode(r, &c->mode);
	case 5:
		return reader_number(r, UINT64_MAX, &c->seed);
	case 6:
		return skip_string(r);
	case 7:
		return reader_object(r, launch, c);
	case 8:
		if (!reader_number(r, UINT32_MAX - 1, &block))
			return false;
		c->block = (uint32_t)block + 1;
		return true;
	default:
		return false;
	}
}

static bool check(struct reader *r, struct delay_config *c, unsigned found)
{
	if ((found & 7) != 7)
		return reader_fail(r, "version, delay_ns or kernels is missing");
	if (c->kernel_count)
		qsort(c->kernels, c->kernel_count, sizeof(*c->kernels), by_checksum);
	if (c->launch_count)
		qsort(c->launches, c->launch_count, sizeof(*c->launches), by_place);
	for (size_t i = 1; i < c->kernel_count; i++)
		if (c->kernels[i].has_checksum && !by_checksum(&c->kernels[i], &c->kernels[i - 1]))
			return reader_fail(r, "a kernel is listed twice");
	for (size_t i = 1; i < c->launch_count; i++)
		if (!by_place(&c->launches[i], &c->launches[i - 1]))
			return reader_fail(r, "a call is listed twice");
	return true;
}

void config_free(struct delay_config *c)
{
	for (size_t i = 0; c && i < c->kernel_count; i++) {
		free(c->kernels[i].name);
		free(c->kernels[i].points);
	}
	if (c) {
		free(c->kernels);
		free(c->launches);
	}
	free(c);
}

static char *contents(const char *path, size_t *size, char *why, size_t why_size)
{
	int fd = file_open(AT_FDCWD, path, O_RDONLY);
	struct stat s;

	if (fd < 0 || fstat(fd, &s)) {
		snprintf(why, why_size, "%.200s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	bool fits = S_ISREG(s.st_mode) && s.st_size <= LARGEST;
	char *text = fits ? malloc((size_t)s.st_size + 1) : NULL;
	ssize_t got = text ? file_read_some(fd, text, (size_t)s.st_size, 0) : -1;
	close(fd);
	if (got < 0) {
		snprintf(why, why_size, "%.200s: %s", path, fits ? "can't be read" : "not a regular file, or too large");
		free(text);
		return NULL;
	}
	*size = (size_t)got;
	return text;
}

struct delay_config *config_load(const char *path, char *why, size_t size)
{
	char reason[160] = "";
	size_t length = 0;
	char *text = contents(path, &length, why, size);
	struct delay_config *c = text ? calloc(1, sizeof(*c)) : NULL;
	struct reader r = {text, text, text + length, reason, sizeof(reason)};
	struct members to = {c, 0};

	if (c) {
		bool good = reader_object(&r, member, &to) && reader_end(&r) && check(&r, c, to.found);
		c->foreign = !(to.found & HAS_MODE);
		if (!good) {
			snprintf(why, size, "%.200s: %s", path, reason);
			config_free(c);
			c = NULL;
		}
	} else if (text) {
		snprintf(why, size, "%.200s: no host memory", path);
	}
	free(text);
	return c;
}

/* ---- looking up ---- */

struct config_kernel *config_find_kernel(struct delay_config *c, const char *name, uint64_t checksum)
{
	struct config_kernel wanted = {.name = (char *)name, .checksum = checksum, .has_checksum = true};

	return c->kernel_count ? bsearch(&wanted, c->kernels, c->kernel_count, sizeof(wanted), by_checksum) : NULL;
}

static bool fits(const struct config_kernel *k, const struct foreign_code *code)
{
	for (size_t p = 0; p < k->count; p++) {
		const char *mnemonic = code->mnemonic_at(code, k->points[p].pc);
		if (!mnemonic || strcmp(mnemonic, k->points[p].mnemonic) != 0)
			return false;
	}
	return true;
}

struct config_kernel *config_find_foreign(struct delay_config *c, const char *name, const struct foreign_code *code)
{
	struct config_kernel *found = NULL;

	for (size_t i = 0; c->foreign && i < c->kernel_count; i++) {
		struct config_kernel *k = &c->kernels[i];
		if (strcmp(k->name, name) != 0)
			continue;
		if (code->has_checksum(code, k->checksum))
			return k;
		if (!found && fits(k, code))
			found = k;
	}
	return found;
}

struct config_point *config_find_point(struct config_kernel *k, uint64_t pc)
{
	struct config_point wanted = {.pc = pc};

	return k->count ? bsearch(&wanted, k->points, k->count, sizeof(wanted), by_pc) : NULL;
}

const struct config_launch *config_find_launch(const struct delay_config *c, uint64_t stream, uint64_t number)
{
	struct config_launch wanted = {.stream = stream, .number = number};

	return c->launch_count ? bsearch(&wanted, c->launches, c->launch_count, sizeof(wanted), by_place) : NULL;
}
