/*
 * Stores call stacks. See stacks.h for the invariant.
 *
 * For a native frame the object file and the offset in it are stored; names and lines are found
 * after the run. Python functions are read at once, while they run. Stacks are kept in an open hash
 * table. The map of object files is read again if it lacks an address.
 */
#define _GNU_SOURCE
#include "callstack/stacks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "util/visit.h"
#include "util/xxh3.h"
#include "store/store.h"
#include "session/session.h"
#include "callstack/frames.h"
#include "callstack/mappings.h"
#include "callstack/python.h"
#include "callstack/torch_frames.h"

#define SLOTS ((size_t)1 << 16)
#define FULL (SLOTS / 4 * 3)
#define TEXT 1024 /* most bytes of a Python function's or file's name */

struct slot {
	_Atomic uint64_t hash; /* 0: free; a hash of 0 is stored as 1 */
	_Atomic uint32_t number;
};

static struct {
	struct slot *slots;
	uint32_t count;
	pthread_mutex_t lock; /* guards these and the map of object files, but not the contents of slots */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool stacks_open(void)
{
	const char *warning = frames_open();

	if (warning)
		session_warn("%s", warning);
	if (!table.slots)
		table.slots = calloc(SLOTS, sizeof(*table.slots));
	torch_frames_open();
	return table.slots;
}

static struct tt_frame of_python(const struct frame *f)
{
	char function[TEXT], file[TEXT];
	uint32_t line;

	python_describe(f, function, file, TEXT, &line);
	return (struct tt_frame){
		.kind = TT_FRAME_PYTHON,
		.function = store_string(session_store(), function),
		.file = store_string(session_store(), file),
		.line = line,
	};
}

static struct tt_frame native(const struct frame *f, bool *read)
{
	uintptr_t call = (uintptr_t)f->pc - 1;
	const struct object *o = objects_find(call);

	if (!o && !*read) {
		objects_read();
		*read = true;
		o = objects_find(call);
	}
	return (struct tt_frame){
		.kind = TT_FRAME_NATIVE,
		.function = TT_NO_ID,
		.file = o ? store_string(session_store(), o->path) : TT_NO_ID,
		.address = o ? call - o->begin + o->offset : call,
	};
}

/* A stack that was taken: frames of the thread, or records of them. */
struct taken {
	const struct frame *frames; /* NULL: records */
	struct tt_frame *records;
	int n;
	uint64_t hash;
};

static bool write_frames(uint32_t number, const struct taken *t)
{
	static struct tt_frame made[FRAMES_MOST]; /* guarded by the lock */
	struct tt_frame *records = t->frames ? made : t->records;
	bool read = false;

	for (int i = 0; i < t->n; i++) {
		if (t->frames)
			records[i] = t->frames[i].code ? of_python(&t->frames[i]) : native(&t->frames[i], &read);
		records[i].stack = number;
		records[i].depth = (uint32_t)i;
		records[i].count = (uint32_t)t->n;
	}
	return store_frames(session_store(), records, (size_t)t->n);
}

static uint32_t add(struct slot *s, const struct taken *t)
{
	uint32_t number = 0;

	pthread_mutex_lock(&table.lock);
	while (s->hash && s->hash != t->hash) /* another thread may have been first */
		s = s + 1 == table.slots + SLOTS ? table.slots : s + 1;
	if (s->hash == t->hash) {
		number = atomic_load(&s->number);
	} else if (table.count < FULL && write_frames(table.count + 1, t)) {
		number = ++table.count;
		atomic_store(&s->number, number);
		atomic_store(&s->hash, t->hash);
	}
	pthread_mutex_unlock(&table.lock);
	return number;
}

/* Of this process alone, so it need not be XXH3, which takes four times as long for so few bytes. */
static uint64_t hash_of(const struct frame *frames, int n)
{
	uint64_t hash = (uint64_t)n;

	for (const struct frame *f = frames; f < frames + n; f++) {
		uint64_t place = xxh3_fold((uintptr_t)f->code ^ XXH3_PRIME64_1, f->pc ^ XXH3_PRIME64_2);
		uint64_t names = xxh3_fold((uintptr_t)f->file ^ XXH3_PRIME64_3, (uintptr_t)f->name ^ XXH3_PRIME64_4);
		hash = hash * XXH3_PRIME64_5 + place + names;
	}
	hash = xxh3_avalanche(hash);
	return hash + !hash;
}

static uint32_t number_of(const struct taken *t)
{
	struct slot *s = table.slots + t->hash % SLOTS;
	uint64_t there;

	while ((there = atomic_load_explicit(&s->hash, memory_order_acquire)) && there != t->hash)
		s = s + 1 == table.slots + SLOTS ? table.slots : s + 1;
	return there ? atomic_load_explicit(&s->number, memory_order_relaxed) : add(s, t);
}

uint32_t stacks_here(void)
{
	struct visit v = visit_begin();
	struct frame frames[FRAMES_MOST];
	int n = frames_take(frames);
	uint32_t number = n ? number_of(&(struct taken){.frames = frames, .n = n, .hash = hash_of(frames, n)}) : 0;

	visit_end(v);
	return number;
}

uint32_t stacks_from_torch(void)
{
	struct visit v = visit_begin();
	struct tt_frame records[FRAMES_MOST];
	int n = torch_frames(records, FRAMES_MOST);
	uint64_t hash = n ? xxh3_64(records, (size_t)n * sizeof(*records)) : 0;
	uint32_t number = n ? number_of(&(struct taken){.records = records, .n = n, .hash = hash + !hash}) : 0;

	visit_end(v);
	return number;
}

void stacks_forget(void)
{
	free(table.slots);
	table.slots = NULL;
	table.count = 0;
	objects_forget();
	pthread_mutex_init(&table.lock, NULL);
}
