/*
 * Makes copies of kernels that record, and launches them. See patcher.h for the invariant.
 *
 * Copies are made at the first traced launch of a kernel in a context. They use the variables of the program's module.
 * Constants that the program may set are copied from there before each launch, because a module has its own.
 */
#define _GNU_SOURCE
#include "instrument/patcher.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/compile.h"
#include "instrument/heartbeats.h"
#include "instrument/plan.h"
#include "options/options.h"
#include "sass/fatbin.h"
#include "sass/trace_image.h"
#include "session/session.h"
#include "track/image_retention.h"

#define FILE_MAX ((size_t)4 << 30)

struct kept_module {
	struct kept_module *next;
	uint32_t id;
	struct retained_image image;
	struct tt_setting *settings; /* options of its loading */
	uint32_t setting_count;
};

struct constant {
	CUdeviceptr from, to;
	size_t size;
};

struct patched {
	struct patched *next;
	struct context *context;
	uint32_t function;
	uint32_t refused; /* enum tt_trace_refused */
	const char *text;
	CUmodule module;
	CUfunction copy; /* NULL: none of its instructions is to be traced */
	uint64_t image; /* what the driver compiled, in the run; 0: nothing was compiled */
	uint32_t parameters, instructions;
	uint32_t *slots, stride, copies; /* copies 0: nothing is counted */
	struct constant *constants;
	size_t constant_count;
	unsigned threads; /* that a block can have */
	unsigned from, to; /* it is for blocks of so many threads */
	bool flat; /* and launches like that */
};

static struct {
	pthread_mutex_t lock;
	struct kept_module *modules;
	struct patched *all;
} patcher = {.lock = PTHREAD_MUTEX_INITIALIZER};

void patcher_module(uint32_t module, const struct loading *l)
{
	struct kept_module *m = calloc(1, sizeof(*m));

	if (!m)
		return;
	m->id = module;
	if ((m->settings = calloc(l->setting_count + 1, sizeof(*m->settings)))) {
		memcpy(m->settings, l->settings, l->setting_count * sizeof(*m->settings));
		m->setting_count = l->setting_count;
	}
	if (l->path)
		retained_from_file(&m->image, l->path, FILE_MAX);
	else
		retained_from_memory(&m->image, image_readable(l->image) ? l->image : NULL);
	if (!m->image.image.size || !retained_keep(&m->image)) {
		retained_release(&m->image);
		free(m->settings);
		free(m);
		return;
	}
	pthread_mutex_lock(&patcher.lock);
	m->next = patcher.modules;
	patcher.modules = m;
	pthread_mutex_unlock(&patcher.lock);
}

/* ---- the machine code of a kernel ---- */

struct code {
	const char *kernel;
	struct cubin cubin;
	const struct cubin_kernel *found;
	uint8_t *expanded;
	size_t compiled; /* bytes of `expanded` that the driver compiled from PTX; 0: it did not */
};

static bool has_kernel(void *user, const void *image, size_t size)
{
	struct code *code = user;

	if (cubin_open(&code->cubin, image, size))
		return false;
	for (size_t i = 0; i < code->cubin.kernel_count; i++)
		if (!strcmp(code->cubin.kernels[i].name, code->kernel))
			code->found = &code->cubin.kernels[i];
	if (!code->found)
		cubin_close(&code->cubin);
	return code->found;
}

static void take_compiled(void *user, const void *cubin, size_t size)
{
	struct code *code = user;

	if ((code->expanded = malloc(size)) && has_kernel(code, memcpy(code->expanded, cubin, size), size))
		code->compiled = size;
}

/* Caller holds the lock. */
static const char *find_code(struct context *c, const struct function *f, struct code *code)
{
	struct kept_module *m = patcher.modules;
	size_t size;

	while (m && m->id != f->module)
		m = m->next;
	const void *bytes = m ? retained_bytes(&m->image) : NULL;
	if (!bytes)
		return "the image of their module is unknown";
	struct image image = {m->image.image.kind, bytes, m->image.image.size};
	code->kernel = f->name;
	if (image.kind == TT_MODULE_CUBIN)
		has_kernel(code, image.bytes, image.size);
	else if (image.kind == TT_MODULE_FATBIN)
		code->expanded = fatbin_code(&image, (unsigned)c->device_capability, has_kernel, code, &size);
	if (!code->found && image.kind != TT_MODULE_CUBIN && image.kind != TT_MODULE_UNKNOWN) {
		free(code->expanded);
		code->expanded = NULL;
		compile_ptx(&image, m->settings, m->setting_count, take_compiled, code);
	}
	return code->found ? NULL : "their module has no machine code of them for this device";
}

/* ---- a copy ---- */

struct original {
	CUmodule module;
	CUlibrary library;
};

static struct original original_of(CUfunction handle)
{
	struct original o = {NULL, NULL};

	if (function_is_kernel(handle)) {
		if (real.cuKernelGetLibrary)
			real.cuKernelGetLibrary(&o.library, (CUkernel)handle);
	} else if (real.cuFuncGetModule) {
		real.cuFuncGetModule(&o.module, handle);
	}
	return o;
}

static CUdeviceptr find_variable(const struct original *o, const char *name, size_t *size)
{
	CUdeviceptr address = 0;
	CUresult r = CUDA_ERROR_NOT_FOUND;

	if (o->library && real.cuLibraryGetGlobal)
		r = real.cuLibraryGetGlobal(&address, size, o->library, name);
	else if (o->module)
		r = real.cuModuleGetGlobal_v2(&address, size, o->module, name);
	return r == CUDA_SUCCESS ? address : 0;
}

static uint64_t address_of(void *original, const char *name)
{
	size_t size;

	return find_variable(original, name, &size);
}

struct constants {
	struct patched *p;
	struct original original;
};

static void add_constant(void *user, const char *name)
{
	struct constants *all = user;
	struct patched *p = all->p;
	struct constant one = {0};
	size_t size = 0;

	one.from = find_variable(&all->original, name, &one.size);
	if (!one.from || real.cuModuleGetGlobal_v2(&one.to, &size, p->module, name) != CUDA_SUCCESS || size != one.size)
		return; /* what the program can't find it can't set */
	struct constant *more = realloc(p->constants, (p->constant_count + 1) * sizeof(*more));
	if (!more)
		return;
	p->constants = more;
	p->constants[p->constant_count++] = one;
}

/* What the program set for its kernel. */
static void copy_attributes(const struct patched *p, CUfunction handle, CUdevice device)
{
	static const CUfunction_attribute all[] = {
		CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
		CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE};
	bool kernel = function_is_kernel(handle);

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		int value = 0, own = 0;
		CUresult r = !kernel                     ? real.cuFuncGetAttribute(&value, all[i], handle)
			     : real.cuKernelGetAttribute ? real.cuKernelGetAttribute(&value, all[i], (CUkernel)handle, device)
							 : CUDA_ERROR_NOT_SUPPORTED;
		if (r == CUDA_SUCCESS && real.cuFuncSetAttribute &&
		    (real.cuFuncGetAttribute(&own, all[i], p->copy) != CUDA_SUCCESS || own != value))
			real.cuFuncSetAttribute(p->copy, all[i], value);
	}
}

/* *any: whether some of them are, or may be, to be traced. */
static struct trace_point *points_of(const struct code *code, bool *any)
{
	size_t count = code->found->size / SASS_INSTRUCTION;
	struct trace_point *points = calloc(count + 1, sizeof(*points));
	struct instruction instruction;

	for (size_t i = 0; points && i < count; i++) {
		memcpy(&instruction, code->cubin.bytes + code->found->code + i * sizeof(instruction), sizeof(instruction));
		const char *mnemonic = code_mnemonic(code->cubin.architecture, instruction);
		points[i].kinds = mnemonic ? plan_kinds(LANGUAGE_SASS, mnemonic, i) : 0;
		*any |= !mnemonic || points[i].kinds;
	}
	return points;
}

/* block: its threads in the launch. */
static const char *load_copy(struct patched *p, const struct traced_image *image, const char *name, unsigned block)
{
	int threads = 0;

	if (real.cuModuleLoadData(&p->module, image->bytes) != CUDA_SUCCESS)
		return "the driver does not load their patched code";
	if (real.cuModuleGetFunction(&p->copy, p->module, name) != CUDA_SUCCESS)
		return "the driver does not find their patched code";
	real.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, p->copy);
	p->threads = (unsigned)threads;
	p->from = image->of_threads ? block : 0;
	p->to = image->of_threads || p->threads < block ? block : p->threads;
	return NULL;
}

static const char *fill(struct patched *p, const struct function *f, const struct launch_arguments *a, const struct code *code)
{
	struct constants constants = {p, original_of(a->f)};
	bool any = heartbeats_wanted();
	struct trace_point *points = points_of(code, &any);
	struct traced_image image = {0};
	const char *wrong = "no host memory";

	if (points && !any) {
		free(points);
		p->threads = p->to;
		return NULL;
	}
	if (points)
		wrong = trace_image(&code->cubin, code->found, points,
				    &(struct trace_wish){options.instrument_blocks.end, heartbeats_wanted(), p->flat,
							 a->threads},
				    &(struct trace_variables){address_of, &constants.original}, &image);
	if (!wrong && image.parameters != f->param_count)
		wrong = "their parameters are unknown";
	if (!wrong)
		wrong = load_copy(p, &image, f->name, a->threads);
	if (!wrong) {
		p->image = code->compiled ? store_image(session_store(), code->expanded, code->compiled) : 0;
		p->parameters = image.parameters;
		p->instructions = (uint32_t)(code->found->size / SASS_INSTRUCTION);
		p->slots = image.slots;
		p->stride = image.stride;
		p->copies = image.slot_count ? image.copies : 0;
		image.slots = NULL;
		trace_constants(&code->cubin, code->found, add_constant, &constants);
	}
	free(points);
	traced_image_free(&image);
	return wrong;
}

/* Caller holds the lock. */
static struct patched *make(struct context *c, const struct function *f, const struct launch_arguments *a)
{
	struct patched *p = calloc(1, sizeof(*p));
	struct code code = {0};

	if (!p)
		return NULL;
	p->context = c;
	p->function = f->id;
	p->from = a->threads; /* fewer threads can have more registers */
	p->to = UINT_MAX;
	p->flat = a->flat && heartbeats_wanted();
	p->text = module_has_references(f->module) ? "their module has texture references" : find_code(c, f, &code);
	if (!p->text)
		p->text = fill(p, f, a, &code);
	p->refused = p->text ? TT_REFUSED_CODE : TT_REFUSED_NONE;
	if (code.found)
		cubin_close(&code.cubin);
	free(code.expanded);
	p->next = patcher.all;
	patcher.all = p;
	return p;
}

const struct patched *patcher_copy(struct context *c, const struct function *f, const struct launch_arguments *a,
				   uint32_t *refused, const char **text)
{
	image_prepare();
	pthread_mutex_lock(&patcher.lock);
	struct patched *p = patcher.all;
	bool flat = a->flat && heartbeats_wanted();
	while (p && (p->context != c || p->function != f->id || a->threads < p->from || a->threads > p->to || p->flat != flat))
		p = p->next;
	if (!p)
		p = make(c, f, a);
	pthread_mutex_unlock(&patcher.lock);
	*refused = p ? p->refused : TT_REFUSED_MEMORY;
	*text = p ? p->text : "no host memory";
	if (!*refused && a->threads > p->threads) {
		*refused = TT_REFUSED_REGISTERS;
		*text = "with the registers of code that records, a block has too many threads";
	}
	if (!*refused && p->copy)
		copy_attributes(p, a->f, c->device);
	return *refused ? NULL : p;
}

/* ---- launches ---- */

uint64_t patcher_image(const struct patched *p)
{
	return p->image;
}

struct flight_counts patcher_counts(const struct patched *p)
{
	return (struct flight_counts){.instructions = p->instructions,
				      .slots = p->copies ? p->stride : 0,
				      .copies = p->copies,
				      .several_rings = true,
				      .slot = p->slots};
}

static bool bring_up_to_date(const struct patched *p, CUstream stream)
{
	for (size_t i = 0; i < p->constant_count; i++)
		if (real.cuMemcpyDtoDAsync_v2(p->constants[i].to, p->constants[i].from, p->constants[i].size, stream) !=
		    CUDA_SUCCESS)
			return false;
	return true;
}

bool patcher_redirect(const struct patched *p, const struct function *f, struct flight *flight, struct launch_arguments *a)
{
	void **params = flight_values(flight, p->parameters + 1);
	const uint8_t *buffer;
	CUdeviceptr device;
	size_t size;

	if (!p->copy) {
		a->f = NULL;
		return true;
	}
	buffer = launch_buffer(a->extra, &size);
	if (!params || (p->parameters && !a->params && !buffer) || !bring_up_to_date(p, a->stream))
		return false;
	for (uint32_t i = 0; i < p->parameters; i++)
		params[i] = buffer ? (void *)(buffer + f->params[i].offset) : a->params[i];
	params[p->parameters] = flight_param(flight, &device);
	*a = (struct launch_arguments){p->copy, params, NULL, a->threads, a->flat, a->stream};
	return true;
}

void patcher_context_ends(struct context *c)
{
	pthread_mutex_lock(&patcher.lock);
	for (struct patched **link = &patcher.all, *p; (p = *link);) {
		if (p->context != c) {
			link = &p->next;
			continue;
		}
		*link = p->next; /* its module ends with the context; flights may still use its slots */
	}
	pthread_mutex_unlock(&patcher.lock);
}

void patcher_forget(void)
{
	pthread_mutex_init(&patcher.lock, NULL);
	patcher.modules = NULL;
	patcher.all = NULL;
}
