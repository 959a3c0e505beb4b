/*
 * CUPTI's callbacks as a way in: it calls the recorder before and after each call of the program.
 *
 * The wrapper of the call runs on a stack of its own. It begins in the first callback and pauses where it makes the
 * program's call. The driver then makes that call. The second callback gives the wrapper the driver's result.
 *
 * Invariant: the driver makes the program's call once, with the program's arguments, whatever the wrapper does.
 */
#undef _FORTIFY_SOURCE /* its longjmp refuses to change stacks */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "entry/entry.h"

#include "cupti_abi.h"
#include "entry/call_arguments.h"

#define IDS 4096                /* upper bound of CUPTI's numbers of calls */
#define STACK ((size_t)8 << 20) /* the driver compiles code on it */
#define GUARD 4096

typedef uint64_t arguments[CALL_ARGUMENTS_MOST];
typedef CUresult any_call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			  uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
#define SPREAD(a) a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14]
_Static_assert(CALL_ARGUMENTS_MOST == 15, "any_call and SPREAD have all arguments");

static struct {
	uint16_t calls[IDS]; /* by CUPTI's number, from 1; 0: not followed */
	any_call *driver[CALL_COUNT];
	_Atomic bool changed[CALL_COUNT];
	void (*tell)(const char *call);
	pthread_key_t key;
} follow;

/* A call between its two callbacks. */
static __thread struct visit {
	jmp_buf callback, wrapper, idle; /* where each of them goes on */
	void *stack;
	uint32_t id, correlation;
	unsigned call, own; /* own: depth of the recorder's own calls */
	bool open, in_wrapper, made, ended;
	CUresult result;
	arguments given;
} here __attribute__((tls_model("initial-exec")));

static const char *const sizes[CALL_COUNT] = {
#define X(symbol, text) [CALL_##symbol] = text,
	CALL_ARGUMENTS(X)
#undef X
};

static bool same_arguments(const struct visit *v, const uint64_t *a)
{
	for (unsigned i = 0; sizes[v->call][i]; i++)
		if (memcmp(&a[i], &v->given[i], (size_t)(sizes[v->call][i] - '0'))) /* little endian */
			return false;
	return true;
}

/* A wrapper, or another part of the recorder, calls the driver. */
static CUresult through(unsigned call, const uint64_t *a)
{
	struct visit *v = &here;

	if (v->in_wrapper && call == v->call && same_arguments(v, a)) {
		if (!v->made) {
			v->made = true;
			if (!_setjmp(v->wrapper))
				_longjmp(v->callback, 1);
		}
		return v->result; /* a second attempt has the result of the first */
	}
	v->own++;
	CUresult r = follow.driver[call](SPREAD(a));
	v->own--;
	return r;
}

#define X(symbol) \
	static CUresult through_##symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, \
					 uint64_t h, uint64_t i, uint64_t j, uint64_t k, uint64_t l, uint64_t m, uint64_t n, \
					 uint64_t o) \
	{ \
		return through(CALL_##symbol, (arguments){a, b, c, d, e, f, g, h, i, j, k, l, m, n, o}); \
	}
HOOK_TABLE(X)
#undef X

static any_call *const throughs[CALL_COUNT] = {
#define X(symbol) [CALL_##symbol] = through_##symbol,
	HOOK_TABLE(X)
#undef X
};

/* ---- the wrapper's stack ---- */

static void run_wrappers(void)
{
	for (;;) {
		struct visit *v = &here;
		any_call *wrapper = (any_call *)driver_hook(v->call)->wrapper;
		wrapper(SPREAD(v->given));
		v->ended = true;
		if (!_setjmp(v->idle))
			_longjmp(v->callback, 1);
	}
}

static void free_stack(void *stack)
{
	here.stack = NULL;
	munmap(stack, STACK);
}

static bool make_stack(struct visit *v)
{
	void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		return false;
	if (mprotect(stack, GUARD, PROT_NONE) || pthread_setspecific(follow.key, stack)) {
		munmap(stack, STACK);
		return false;
	}
	v->stack = stack;
	return true;
}

/* Begins or continues the wrapper, until it pauses or ends. */
static void enter_wrapper(struct visit *v)
{
	ucontext_t begin;

	v->in_wrapper = true;
	if (!_setjmp(v->callback)) {
		if (v->made)
			_longjmp(v->wrapper, 1);
		if (v->stack)
			_longjmp(v->idle, 1);
		if (make_stack(v) && !getcontext(&begin)) {
			begin.uc_stack.ss_sp = v->stack;
			begin.uc_stack.ss_size = STACK;
			begin.uc_link = NULL;
			makecontext(&begin, run_wrappers, 0);
			setcontext(&begin);
		}
		v->ended = true; /* no memory for a stack */
	}
	here.in_wrapper = false;
}

static void before(struct visit *v, uint32_t id, const struct cupti_call *c)
{
	const unsigned char *at = c->params;
	size_t offset = 0;

	v->call = follow.calls[id] - 1u;
	v->id = id;
	v->correlation = c->correlation;
	v->made = v->ended = false;
	memset(v->given, 0, sizeof(v->given));
	for (unsigned i = 0; sizes[v->call][i]; i++) {
		size_t size = (size_t)(sizes[v->call][i] - '0');
		offset = (offset + size - 1) / size * size;
		memcpy(&v->given[i], at + offset, size);
		offset += size;
	}
	v->open = true;
	enter_wrapper(v);
}

static void after(struct visit *v, const struct cupti_call *c)
{
	v->result = *(const CUresult *)c->result;
	if (v->made && !v->ended)
		enter_wrapper(v);
	else if (!v->made && v->stack && !atomic_exchange(&follow.changed[v->call], true))
		follow.tell(call_name(v->call));
	v->open = false;
}

/* In the thread that makes the call. */
static void around(void *user, uint32_t domain, uint32_t id, const struct cupti_call *c)
{
	struct visit *v = &here;
	int error = errno;

	(void)user;
	if (domain != CUPTI_DRIVER_API || id >= IDS || !follow.calls[id] || v->own || v->in_wrapper)
		return;
	if (c->site == CUPTI_ENTER && !v->open)
		before(v, id, c);
	else if (c->site != CUPTI_ENTER && v->open && v->id == id && v->correlation == c->correlation)
		after(v, c);
	errno = error;
}

/* ---- on ---- */

/* Programs get the driver's addresses: their calls come here. */
static bool followed(unsigned call)
{
	return driver_address(call) && sizes[call] && strncmp(call_name(call), "cuGetProcAddress", 16) != 0;
}

static void note_driver(void)
{
	for (unsigned i = 0; i < CALL_COUNT; i++)
		if ((follow.driver[i] = (any_call *)driver_address(i)))
			__atomic_store_n(driver_hook(i)->member, (void *)throughs[i], __ATOMIC_RELEASE);
}

static void forget_driver(void)
{
	for (unsigned i = 0; i < CALL_COUNT; i++)
		__atomic_store_n(driver_hook(i)->member, (void *)follow.driver[i], __ATOMIC_RELEASE);
}

struct cupti_calls {
#define X(name, params) CUptiResult(*name) params;
	CUPTI_TABLE(X)
#undef X
};

/* NULL, or a call of the driver that CUPTI does not report. */
static const char *find_calls(const struct cupti_calls *cupti)
{
	static const unsigned needed[] = {CALL_cuMemAlloc_v2,     CALL_cuMemFree_v2,   CALL_cuModuleLoadData,
					  CALL_cuLibraryLoadData, CALL_cuLaunchKernel, CALL_cuStreamSynchronize,
					  CALL_cuCtxSynchronize};
	bool found[CALL_COUNT] = {false};
	const char *name;

	for (uint32_t id = 1; id < IDS; id++) {
		if (cupti->cuptiGetCallbackName(CUPTI_DRIVER_API, id, &name) != CUPTI_SUCCESS || !name)
			continue;
		for (unsigned i = 0; i < CALL_COUNT; i++)
			if (followed(i) && !strcmp(call_name(i), name)) {
				follow.calls[id] = (uint16_t)(i + 1);
				found[i] = true;
			}
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (!found[needed[i]])
			return call_name(needed[i]);
	return NULL;
}

const char *entry_follow(void (*changed)(const char *call))
{
	void *library, *subscriber, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	static char why[100];
	struct cupti_calls cupti;
	const char *lacks;
	CUptiResult r;

	if (!driver || !driver_resolve())
		return "libcuda.so.1 is not loaded";
	if (!(library = cupti_find_library()))
		return "libcupti.so is not found";
#define X(name, params) \
	*(void **)&cupti.name = dlsym(library, #name); \
	if (!cupti.name) \
		return "libcupti.so lacks " #name;
	CUPTI_TABLE(X)
#undef X
	if ((lacks = find_calls(&cupti))) {
		snprintf(why, sizeof(why), "this CUPTI does not report %s", lacks);
		return why;
	}
	if (pthread_key_create(&follow.key, free_stack))
		return "the process has no thread-specific data left";
	follow.tell = changed;
	note_driver();
	r = cupti.cuptiSubscribe(&subscriber, around, NULL);
	for (uint32_t id = 1; id < IDS && r == CUPTI_SUCCESS; id++)
		if (follow.calls[id])
			r = cupti.cuptiEnableCallback(1, subscriber, CUPTI_DRIVER_API, id);
	if (r == CUPTI_SUCCESS)
		return NULL;
	forget_driver();
	snprintf(why, sizeof(why), "it fails with error %d", r);
	return r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS ? "it is in use by the program or by another tool" : why;
}
