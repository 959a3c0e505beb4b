/*
 * Call stacks. See stacks.h for the invariant.
 *
 * What is kept of a native frame is the object file it lies in and where in it; names and lines are
 * found after the run, from the files. Python's are told at once, while they are running. The table of stacks is an open one, by hash; the map of object
 * files is read again when an address is not in it.
 */
#define _GNU_SOURCE
#include "stacks.h"

#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../capture/xxh3.h"
#include "../drain/store.h"
#include "../options.h"
#include "../recorder.h"
#include "python.h"

#define DEPTH 64
#define OWN 8 /* most frames of ours above the program's */
#define SLOTS ((size_t)1 << 16)
#define FULL (SLOTS / 4 * 3)
#define PATH_SIZE 4096
#define TEXT 1024 /* most of a Python function's or file's name */

struct slot {
	_Atomic uint64_t hash; /* 0: free; 1 is added to one that is 0 */
	_Atomic uint32_t number;
};

struct object {
	uintptr_t begin, end;
	uint64_t offset; /* of begin in the file */
	uint32_t path;   /* string */
};

static struct slot *slots;
static uint32_t count;
static struct object *objects;
static size_t object_count;
static uintptr_t own_begin, own_end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all of these, but for what slots hold */

static int find_own(struct dl_phdr_info *info, size_t size, void *unused)
{
	uintptr_t here = (uintptr_t)find_own, begin = 0, end = 0;

	(void)size;
	(void)unused;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		begin = info->dlpi_addr + p->p_vaddr;
		end = begin + p->p_memsz;
		if (here >= begin && here < end) {
			own_begin = begin;
			own_end = end;
			return 1;
		}
	}
	return 0;
}

bool stacks_open(void)
{
	const char *unreadable;
	void *frame[2];

	if (!slots)
		slots = calloc(SLOTS, sizeof(*slots));
	dl_iterate_phdr(find_own, NULL);
	if (options.callstacks != CALLSTACKS_BACKTRACE && (unreadable = python_find()))
		recorder_warn("%s: it has no call stacks of Python", unreadable);
	if (options.callstacks != CALLSTACKS_PYTHON)
		backtrace(frame, 2); /* loads the unwinder */
	return slots;
}

/* ---- object files ---- */

static bool add_object(size_t *capacity, struct object o)
{
	if (object_count == *capacity) {
		size_t more = *capacity ? *capacity * 2 : 256;
		struct object *p = realloc(objects, more * sizeof(*p));
		if (!p)
			return false;
		objects = p;
		*capacity = more;
	}
	objects[object_count++] = o;
	return true;
}

/* The executable mappings of files, by address. */
static void read_objects(void)
{
	static size_t capacity;
	char line[PATH_SIZE + 128], path[PATH_SIZE], mode[8];
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long begin, end, offset;

	object_count = 0;
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095[^\n]", &begin, &end, mode, &offset, path) == 5 &&
		    mode[2] == 'x' && *path == '/' &&
		    !add_object(&capacity, (struct object){begin, end, offset, store_string(recorder_store(), path)}))
			break;
	if (f)
		fclose(f);
}

static const struct object *object_of(uintptr_t address)
{
	for (size_t i = 0; i < object_count; i++)
		if (address >= objects[i].begin && address < objects[i].end)
			return &objects[i];
	return NULL;
}

/* ---- stacks ---- */

/* A stack as it was taken: n frames of the one kind or of the other. */
struct taken {
	int n;
	bool python;
	union {
		struct python_frame of_python[DEPTH];
		void *returns[DEPTH + OWN]; /* where calls return to */
	};
};

static void describe_python(const struct taken *t, struct tt_frame *records)
{
	char function[TEXT], file[TEXT];

	for (int i = 0; i < t->n; i++) {
		uint32_t line;
		python_describe(&t->of_python[i], function, file, TEXT, &line);
		records[i] = (struct tt_frame){
			.kind = TT_FRAME_PYTHON, .function = store_string(recorder_store(), function),
			.file = store_string(recorder_store(), file), .line = line,
		};
	}
}

static void describe_native(const struct taken *t, struct tt_frame *records)
{
	bool again = true;

	for (int i = 0; i < t->n; i++) {
		uintptr_t call = (uintptr_t)t->returns[i] - 1;
		const struct object *o = object_of(call);
		if (!o && again) {
			read_objects();
			again = false;
			o = object_of(call);
		}
		records[i] = (struct tt_frame){
			.kind = TT_FRAME_NATIVE, .function = TT_NO_ID, .file = o ? o->path : TT_NO_ID,
			.address = o ? call - o->begin + o->offset : call,
		};
	}
}

static bool write_frames(uint32_t number, const struct taken *t)
{
	struct tt_frame records[DEPTH];

	if (t->python)
		describe_python(t, records);
	else
		describe_native(t, records);
	for (int i = 0; i < t->n; i++) {
		records[i].stack = number;
		records[i].depth = (uint32_t)i;
		records[i].count = (uint32_t)t->n;
	}
	return store_frames(recorder_store(), records, (size_t)t->n);
}

static uint32_t add(struct slot *s, uint64_t hash, const struct taken *t)
{
	uint32_t number = 0;

	pthread_mutex_lock(&lock);
	while (s->hash && s->hash != hash) /* another thread's may have come first */
		s = s + 1 == slots + SLOTS ? slots : s + 1;
	if (s->hash == hash) {
		number = atomic_load(&s->number);
	} else if (count < FULL && write_frames(count + 1, t)) {
		number = ++count;
		atomic_store(&s->number, number);
		atomic_store(&s->hash, hash);
	}
	pthread_mutex_unlock(&lock);
	return number;
}

static void take_native(struct taken *t)
{
	int n = backtrace(t->returns, DEPTH + OWN), own = 0;

	while (own < n && (uintptr_t)t->returns[own] >= own_begin && (uintptr_t)t->returns[own] < own_end)
		own++;
	t->n = n - own < DEPTH ? n - own : DEPTH;
	memmove(t->returns, t->returns + own, (size_t)t->n * sizeof(t->returns[0]));
}

static void take(struct taken *t)
{
	t->n = options.callstacks == CALLSTACKS_BACKTRACE ? 0 : python_frames(t->of_python, DEPTH);
	t->python = t->n;
	if (!t->n && options.callstacks != CALLSTACKS_PYTHON)
		take_native(t);
}

uint32_t stacks_here(void)
{
	int error = errno, cancel;
	uint32_t number = 0;
	uint64_t there;
	struct taken t;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	take(&t);
	if (t.n) {
		size_t size = t.python ? sizeof(t.of_python[0]) : sizeof(t.returns[0]);
		uint64_t hash = xxh3_64(t.of_python, (uint64_t)t.n * size);
		hash += !hash;
		struct slot *s = slots + hash % SLOTS;
		while ((there = atomic_load_explicit(&s->hash, memory_order_acquire)) && there != hash)
			s = s + 1 == slots + SLOTS ? slots : s + 1;
		number = there ? atomic_load_explicit(&s->number, memory_order_relaxed) : add(s, hash, &t);
	}
	pthread_setcancelstate(cancel, NULL);
	errno = error;
	return number;
}

void stacks_forget(void)
{
	free(slots);
	slots = NULL;
	count = 0;
	object_count = 0;
	pthread_mutex_init(&lock, NULL);
}
