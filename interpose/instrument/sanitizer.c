/*
 * Uses NVIDIA's Sanitizer API. See sanitizer.h for the invariant.
 *
 * Kernels in graphs run changed code as well, so each gets "no data", which its functions return at once for. Functions
 * that a driver loads at their first launch are not changed, so the program has to load all of a module at once.
 *
 * The declarations are those of sanitizer_callbacks.h and sanitizer_patching.h of compute-sanitizer, as far as they are
 * used here.
 */
#include "instrument/sanitizer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "instrument/heartbeats.h"
#include "instrument/plan.h"
#include "options/kernel_filters.h"
#include "options/options.h"
#include "sass/cubin.h"
#include "session/session.h"
#include "track/thread.h"

extern const char trace_patch[];

#define CONTEXTS 64

enum { DOMAIN_RESOURCE = 3, DOMAIN_LAUNCH = 5, DOMAIN_GRAPHS = 10 };
enum { MODULE_LOADED = 9, LAUNCH_BEGIN = 1, NODE_BEGIN = 4 };
enum { KERNEL_NODE = 0 };

enum { ACCESSES = 1, SYNCHRONISES = 2, BEATS = 4, TENSORS = 8 };

/* Where code is inserted, what is, and for what: records of accesses, synchronisation or tensor copies, or heartbeats. */
static const struct {
	int instruction;
	const char *function;
	unsigned uses;
} places[] = {
	{1, "tt_patch_enter", BEATS},                  /* a block begins */
	{2, "tt_patch_exit", BEATS},                   /* a thread ends */
	{3, "tt_patch_access", ACCESSES | BEATS},      /* of global memory */
	{4, "tt_patch_shared", ACCESSES | BEATS},      /* of shared memory */
	{5, "tt_patch_record", ACCESSES},              /* of local memory */
	{17, "tt_patch_record", ACCESSES},             /* of shared memory of other blocks */
	{19, "tt_patch_matrix", ACCESSES},             /* ldmatrix and stmatrix */
	{6, "tt_patch_barrier", SYNCHRONISES | BEATS}, /* of a block */
	{21, "tt_patch_cluster", SYNCHRONISES | BEATS}, /* arrival at a barrier of a cluster */
	{22, "tt_patch_cluster", SYNCHRONISES | BEATS}, /* wait for it */
	{39, "tt_patch_mbarrier", BEATS},              /* an attempt of an operation on an mbarrier */
	{43, "tt_patch_tensor_load", TENSORS},         /* a load by a tensor map */
};

typedef void callback(void *user, int domain, uint32_t id, const void *data);

struct module_data {
	CUcontext context;
	CUmodule module;
	size_t size;
	const char *cubin;
};

struct launch_data {
	CUcontext context;
	CUstream stream;
	void *stream_handle;
	CUmodule module;
	CUfunction function;
	const char *name;
	uint32_t grid[3], block[3], cluster[3];
	uint64_t grid_id;
	void *launch;
};

struct node_data {
	CUgraphExec exec;
	uint32_t launch_id;
	CUgraphNode node;
	int type;
	struct launch_data launch;
};

static struct {
	const char *missing;
	char reason[300];
	pthread_mutex_t lock; /* the API must be called by one thread at a time */
	CUcontext patched[CONTEXTS];
	unsigned patched_count;
	_Atomic int refused; /* the last error for a module */
	int (*subscribe)(void **subscriber, callback *f, void *user);
	int (*enable)(uint32_t on, void *subscriber, int domain);
	int (*add)(const void *image, CUcontext context);
	int (*patch)(int instruction, CUmodule module, const char *function);
	int (*patch_module)(CUmodule module);
	int (*launch_data)(void *launch, CUfunction f, void *stream, const void *data);
	int (*function)(CUmodule module, const char *name, uint64_t *pc, uint64_t *size);
	int (*copy)(void *to, void *from, size_t size, void *stream);
} sanitizer = {.missing = "the program had initialised the driver before", .lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
	struct tt_trace_param *param;
	CUdeviceptr device;
} next;

static bool in_category(enum category category)
{
	return !options.instrument_category || options.instrument_category >> category & 1;
}

uint32_t sanitizer_kinds(void)
{
	return 1u << TT_TRACE_OPCODE | 1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES | 1u << TT_TRACE_TMA;
}

/* The kinds of records that it is to write. */
static uint32_t recorded_kinds(void)
{
	uint32_t kinds = plan_asked() & sanitizer_kinds();

	if (!in_category(CATEGORY_MEMORY))
		kinds &= ~(1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES);
	if (!in_category(CATEGORY_SYNC))
		kinds &= ~(1u << TT_TRACE_OPCODE);
	if (!in_category(CATEGORY_TMA))
		kinds &= ~(1u << TT_TRACE_TMA);
	return kinds;
}

/* ---- modules ---- */

static bool has_chosen_kernel(const struct module_data *m)
{
	struct cubin c;
	bool found = false;

	if (!options.instrument_kernel.count && !*options.kernel_filters)
		return true;
	if (!m->cubin || cubin_open(&c, m->cubin, m->size))
		return false;
	for (size_t i = 0; i < c.kernel_count && !found; i++)
		found = kernel_is_wanted(&options.instrument_kernel, c.kernels[i].name);
	cubin_close(&c);
	return found;
}

/* These return 0, or the error. */
static int add_patches(CUcontext context)
{
	for (unsigned i = 0; i < sanitizer.patched_count; i++)
		if (sanitizer.patched[i] == context)
			return 0;
	int result = sanitizer.patched_count < CONTEXTS ? sanitizer.add(trace_patch, context) : -1;
	if (!result)
		sanitizer.patched[sanitizer.patched_count++] = context;
	return result;
}

static int patch(CUmodule module)
{
	uint32_t recorded = recorded_kinds();
	unsigned uses = heartbeats_wanted() ? BEATS : 0;
	int result = 0;

	if (recorded & (1u << TT_TRACE_ADDRESSES | 1u << TT_TRACE_VALUES))
		uses |= ACCESSES;
	if (recorded & 1u << TT_TRACE_OPCODE)
		uses |= SYNCHRONISES;
	if (recorded & 1u << TT_TRACE_TMA)
		uses |= TENSORS;
	for (size_t i = 0; !result && i < sizeof(places) / sizeof(*places); i++) {
		if (places[i].uses & uses)
			result = sanitizer.patch(places[i].instruction, module, places[i].function);
		if (result && places[i].uses == TENSORS) {
			session_lost("tensor copies are not traced: the Sanitizer API has no place for code before them");
			result = 0;
		}
	}
	return result ? result : sanitizer.patch_module(module);
}

static void change(CUcontext context, CUmodule module)
{
	pthread_mutex_lock(&sanitizer.lock);
	int result = add_patches(context);
	if (!result)
		result = patch(module);
	pthread_mutex_unlock(&sanitizer.lock);
	if (result)
		atomic_store(&sanitizer.refused, result);
}

static void module_loaded(const struct module_data *m)
{
	if (!thread_current()->busy && has_chosen_kernel(m))
		change(m->context, m->module);
}

/* ---- launches ---- */

static void launch_begins(const struct launch_data *l)
{
	uint64_t size;

	if (!next.param)
		return;
	if (!sanitizer.function(l->module, l->name, &next.param->code, &size) &&
	    !sanitizer.copy((void *)(uintptr_t)next.device, next.param, sizeof(*next.param), l->stream_handle) &&
	    !sanitizer.launch_data(l->launch, l->function, l->stream_handle, (void *)(uintptr_t)next.device))
		next.param = NULL;
}

/* Graphs are not traced, but their kernels run changed code. */
static void node_begins(const struct node_data *n)
{
	if (n->type == KERNEL_NODE)
		sanitizer.launch_data(n->launch.launch, n->launch.function, n->launch.stream_handle, NULL);
}

void sanitizer_next(struct tt_trace_param *param, CUdeviceptr device)
{
	param->kinds = recorded_kinds();
	next.param = param;
	next.device = device;
}

bool sanitizer_done(void)
{
	bool traced = !next.param;
	int refused = atomic_exchange(&sanitizer.refused, 0);

	if (refused)
		session_lost("kernels of a module are not traced: the Sanitizer API can't change its code (error %d)", refused);
	next.param = NULL;
	return traced;
}

/* ---- start ---- */

static void called(void *user, int domain, uint32_t id, const void *data)
{
	(void)user;
	if (domain == DOMAIN_RESOURCE && id == MODULE_LOADED)
		module_loaded(data);
	else if (domain == DOMAIN_LAUNCH && id == LAUNCH_BEGIN)
		launch_begins(data);
	else if (domain == DOMAIN_GRAPHS && id == NODE_BEGIN)
		node_begins(data);
}

static bool find_functions(void *library)
{
	const struct {
		const char *name;
		void *to;
	} all[] = {
		{"sanitizerSubscribe", &sanitizer.subscribe},
		{"sanitizerEnableDomain", &sanitizer.enable},
		{"sanitizerAddPatches", &sanitizer.add},
		{"sanitizerPatchInstructions", &sanitizer.patch},
		{"sanitizerPatchModule", &sanitizer.patch_module},
		{"sanitizerSetLaunchCallbackData", &sanitizer.launch_data},
		{"sanitizerGetFunctionPcAndSize", &sanitizer.function},
		{"sanitizerMemcpyHostToDeviceAsync", &sanitizer.copy},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		void *symbol = dlsym(library, all[i].name);
		if (!symbol)
			return false;
		memcpy(all[i].to, &symbol, sizeof(symbol));
	}
	return true;
}

void sanitizer_open(void)
{
	struct thread *t = thread_current();
	const char *loading = getenv("CUDA_MODULE_LOADING");
	void *subscriber, *library;
	int result;

	t->busy++;
	if (!*options.instrument_library) {
		sanitizer.missing = "NVIDIA's Sanitizer API is missing: pip install 'nvidia-cuda-sanitizer-api>=13.5'";
	} else if (!loading || strcmp(loading, "EAGER")) {
		sanitizer.missing = "the Sanitizer API can't change code that is loaded later: set CUDA_MODULE_LOADING=EAGER";
	} else if (!(library = dlopen(options.instrument_library, RTLD_NOW))) {
		snprintf(sanitizer.reason, sizeof(sanitizer.reason), "NVIDIA's Sanitizer API can't be loaded: %s", dlerror());
		sanitizer.missing = sanitizer.reason;
	} else if (!find_functions(library)) {
		sanitizer.missing = "this libsanitizer-public.so is too old";
	} else if ((result = sanitizer.subscribe(&subscriber, called, NULL)) ||
		   (result = sanitizer.enable(1, subscriber, DOMAIN_RESOURCE)) ||
		   (result = sanitizer.enable(1, subscriber, DOMAIN_LAUNCH)) ||
		   (result = sanitizer.enable(1, subscriber, DOMAIN_GRAPHS))) {
		snprintf(sanitizer.reason, sizeof(sanitizer.reason), "NVIDIA's Sanitizer API does not start (error %d)",
			 result);
		sanitizer.missing = sanitizer.reason;
	} else {
		sanitizer.missing = NULL;
	}
	t->busy--;
}

const char *sanitizer_missing(void)
{
	return sanitizer.missing;
}
