/*
 * Life of the driver, its lock, and the set of live handles.
 *
 * Invariant: no call succeeds before cuInit, in a forked child, after the library's destructor or inside a
 * host function. Otherwise the thread holds the lock until sim_leave.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

enum life { LIFE_NEW, LIFE_READY, LIFE_FORKED, LIFE_OVER };

static _Atomic enum life life = LIFE_NEW;
pthread_mutex_t sim_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long allocation_calls;
static _Atomic uint64_t thread_numbers;
static __thread struct sim_thread this_thread;

static struct {
	const void **objects; /* open addressing; NULL = free */
	unsigned char *kinds;
	size_t room, count;
} handles;

void sim_note(const char *format, ...)
{
	char line[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	fprintf(stderr, "ttanalyze simulator: %s\n", line);
}

CUresult sim_unsupported(const char *call)
{
	sim_note("%s is not supported", call);
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sim_refuse(const char *call)
{
	CUresult result = sim_life();

	return result ? result : sim_unsupported(call);
}

void *sim_alloc(size_t size)
{
	void *memory = calloc(1, size ? size : 1);

	if (!memory) {
		sim_note("out of host memory");
		abort();
	}
	return memory;
}

void *sim_copy(const void *from, size_t size)
{
	void *copy = sim_alloc(size);

	if (size)
		memcpy(copy, from, size);
	return copy;
}

bool sim_allocation_fails(void)
{
	return ++allocation_calls == sim_settings.fail_allocation;
}

struct sim_thread *sim_thread(void)
{
	if (!this_thread.number)
		this_thread.number = ++thread_numbers;
	return &this_thread;
}

/* ---- life and lock ---- */

static void become_child(void)
{
	if (life == LIFE_READY)
		life = LIFE_FORKED;
}

__attribute__((destructor)) static void end(void)
{
	if (life == LIFE_READY)
		life = LIFE_OVER;
}

CUresult sim_life(void)
{
	switch (life) {
	case LIFE_READY:
		return CUDA_SUCCESS;
	case LIFE_OVER:
		return CUDA_ERROR_DEINITIALIZED;
	default:
		return CUDA_ERROR_NOT_INITIALIZED;
	}
}

CUresult sim_enter_driver(void)
{
	ENTER(sim_life());
	if (sim_thread()->in_host_function)
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&sim_mutex);
	return CUDA_SUCCESS;
}

CUresult sim_enter(CUcontext *ctx)
{
	ENTER(sim_enter_driver());
	*ctx = context_current();
	if (!*ctx)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!(*ctx)->alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	if ((*ctx)->fault)
		return sim_leave((*ctx)->fault);
	return CUDA_SUCCESS;
}

CUresult sim_leave(CUresult result)
{
	engine_relieve();
	pthread_mutex_unlock(&sim_mutex);
	return result;
}

/* As in NVIDIA's driver: within cuInit; its result is ignored, and a missing library is no error. */
static void inject(void)
{
	const char *name = getenv("CUDA_INJECTION64_PATH");
	void *library = name && *name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;

	if (initialize)
		initialize();
}

/*
 * Kernels allocate and free memory in each launch: malloc keeps it, so that its pages are not mapped
 * again.
 */
static void keep_memory(void)
{
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_TOP_PAD, 4 << 20);
#endif
}

CUresult cuInit(unsigned int flags)
{
	bool first;

	if (life == LIFE_FORKED || life == LIFE_OVER)
		return sim_life();
	if (flags || !settings_load())
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_settings.devices)
		return CUDA_ERROR_NO_DEVICE;
	pthread_mutex_lock(&sim_mutex);
	first = life == LIFE_NEW;
	if (first) {
		keep_memory();
		if (!region_setup()) {
			sim_note("no address space for the devices' memory");
			return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
		}
		pthread_atfork(NULL, NULL, become_child);
		life = LIFE_READY;
	}
	sim_leave(CUDA_SUCCESS);
	if (first)
		inject();
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	settings_load();
	*version = sim_settings.driver_version;
	return CUDA_SUCCESS;
}

/* ---- handles ---- */

static size_t handle_slot(const void *object)
{
	size_t slot = sim_mix((uint64_t)(uintptr_t)object) & (handles.room - 1);

	while (handles.objects[slot] && handles.objects[slot] != object)
		slot = (slot + 1) & (handles.room - 1);
	return slot;
}

static void handles_grow(void)
{
	const void **old = handles.objects;
	unsigned char *old_kinds = handles.kinds;
	size_t old_room = handles.room;

	handles.room = old_room ? old_room * 2 : 256;
	handles.objects = sim_alloc(handles.room * sizeof *handles.objects);
	handles.kinds = sim_alloc(handles.room);
	for (size_t i = 0; i < old_room; i++) {
		if (old[i]) {
			size_t slot = handle_slot(old[i]);
			handles.objects[slot] = old[i];
			handles.kinds[slot] = old_kinds[i];
		}
	}
	free(old);
	free(old_kinds);
}

void handle_add(const void *object, enum handle_kind kind)
{
	if (handles.count * 2 >= handles.room)
		handles_grow();
	size_t slot = handle_slot(object);
	handles.count += !handles.objects[slot];
	handles.objects[slot] = object;
	handles.kinds[slot] = (unsigned char)kind;
}

void handle_remove(const void *object)
{
	size_t hole = handle_slot(object), slot = hole;

	if (!handles.objects[hole])
		return;
	handles.count--;
	/* Close the gap: move back every later entry of the run that may live at the hole. */
	for (;;) {
		slot = (slot + 1) & (handles.room - 1);
		if (!handles.objects[slot])
			break;
		size_t home = sim_mix((uint64_t)(uintptr_t)handles.objects[slot]) & (handles.room - 1);
		if (((slot - home) & (handles.room - 1)) >= ((slot - hole) & (handles.room - 1))) {
			handles.objects[hole] = handles.objects[slot];
			handles.kinds[hole] = handles.kinds[slot];
			hole = slot;
		}
	}
	handles.objects[hole] = NULL;
}

bool handle_is(const void *object, enum handle_kind kind)
{
	if (!object || !handles.room)
		return false;
	size_t slot = handle_slot(object);
	return handles.objects[slot] && handles.kinds[slot] == kind;
}
