/*
 * Chooses launches, and prepares them. See instrument.h for the invariant.
 *
 * A simulator is told what to trace before the launch. On a GPU, the patcher or the Sanitizer API inserts the code that
 * records.
 */
#define _GNU_SOURCE
#include "instrument/instrument.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "instrument/graph_launches.h"
#include "instrument/heartbeats.h"
#include "instrument/plan.h"
#include "instrument/sanitizer.h"
#include "instrument/tensor_maps.h"
#include "options/options.h"
#include "session/session.h"
#include "sim_trace.h"
#include "store/store.h"
#include "driver/driver.h"

/* What is traced in a module of which a launch was traced, on the simulator. */
struct module_plan {
	struct module_plan *next;
	uint32_t module, count;
	uint8_t *lines;
};

static struct {
	pthread_mutex_t lock;
	struct module_plan *plans;
	uint64_t matched;            /* launches of chosen functions */
	tt_sim_trace_next *simulate; /* NULL: there is a GPU */
	tt_sim_trace_node *simulate_node;
	tt_sim_text *text;
	bool patches;                /* with machine code of our own */
	bool patches_graphs;         /* so kernels in graphs, which the Sanitizer API does not trace */
} instrument = {.lock = PTHREAD_MUTEX_INITIALIZER};

void instrument_module(uint32_t module, const struct loading *l)
{
	if (instrument.patches_graphs)
		patcher_module(module, l);
}

void instrument_module_unloaded(uint32_t module)
{
	pthread_mutex_lock(&instrument.lock);
	for (struct module_plan **link = &instrument.plans; *link; link = &(*link)->next) {
		struct module_plan *p = *link;
		if (p->module == module) {
			*link = p->next;
			free(p->lines);
			free(p);
			break;
		}
	}
	pthread_mutex_unlock(&instrument.lock);
}

/* Caller holds the lock. NULL: the PTX is unknown. */
static const struct module_plan *plan_of(uint32_t module, CUfunction f)
{
	struct module_plan *p = instrument.plans;

	while (p && p->module != module)
		p = p->next;
	if (p)
		return p;
	char *text = module == TT_NO_ID ? NULL : instrument.text(f);
	if (text && (p = calloc(1, sizeof(*p))) && !(p->lines = plan_lines(text, strlen(text), &p->count))) {
		free(p);
		p = NULL;
	}
	free(text);
	if (!p)
		return NULL;
	p->module = module;
	p->next = instrument.plans;
	instrument.plans = p;
	return p;
}

bool instrument_next(void)
{
	pthread_mutex_lock(&instrument.lock);
	uint64_t number = ++instrument.matched;
	pthread_mutex_unlock(&instrument.lock);

	if (options.instrument_launch)
		return number == options.instrument_launch;
	return options.instrument_every < 2 || number % options.instrument_every == 0;
}

static void open_once(void)
{
	Dl_info info;
	void *library = NULL;

	if (dladdr((void *)(uintptr_t)real.cuLaunchKernel, &info) && info.dli_fname)
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (library) {
		instrument.simulate = (tt_sim_trace_next *)(uintptr_t)dlsym(library, "ttSimTraceNext");
		instrument.simulate_node = (tt_sim_trace_node *)(uintptr_t)dlsym(library, "ttSimTraceNode");
		instrument.text = (tt_sim_text *)(uintptr_t)dlsym(library, "ttSimText");
		dlclose(library);
	}
	heartbeats_late_blocks = instrument.simulate;
	instrument.patches = !instrument.simulate && plan_patches();
	instrument.patches_graphs = !instrument.simulate && options.instrument_way != WAY_SANITIZER;
	if (!instrument.simulate && !instrument.patches)
		sanitizer_open();
}

void instrument_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (options.instrument)
		pthread_once(&once, open_once);
}

static struct flight *refuse(struct tt_traced *t, const struct function *f, uint32_t why, const char *text)
{
	session_warn("launches of %.120s are not traced: %s", f->name, text);
	t->refused = why;
	t->text = store_string(session_store(), text);
	flight_refused(t);
	return NULL;
}

static struct flight *begin_simulated(struct context *c, struct tt_traced *t, const struct module_plan *p,
				      const struct traced_launch *l)
{
	struct flight_counts counts = {.instructions = plan_asked() & 1u << TT_TRACE_COUNT ? p->count : 0};
	struct flight *flight = flight_begin(c, t, &counts);
	CUdeviceptr device;

	if (!flight)
		return NULL;
	struct tt_sim_trace trace = {*flight_param(flight, &device), p->lines, p->count};
	if (l->exec)
		instrument.simulate_node(l->exec, l->node, &trace);
	else
		instrument.simulate(&trace);
	return flight;
}

static struct flight *begin_sanitized(struct context *c, struct tt_traced *t, const struct function *f)
{
	const char *missing = sanitizer_missing();
	CUdeviceptr device;

	if (!missing && !(plan_asked() & sanitizer_kinds()) && !heartbeats_wanted())
		missing = "on a GPU only the kinds opcode, addresses, values, tma and heartbeat are traced";
	if (missing)
		return refuse(t, f, TT_REFUSED_CODE, missing);
	struct flight *flight = flight_begin(c, t, &(struct flight_counts){0});
	if (flight) {
		struct tt_trace_param *param = flight_param(flight, &device);
		sanitizer_next(param, device);
	}
	return flight;
}

static struct flight *begin_patched(struct context *c, struct tt_traced *t, const struct function *f, struct traced_launch *l)
{
	const char *text;
	uint32_t refused;
	CUdeviceptr device;

	const struct patched *copy = patcher_copy(c, f, &l->program, &refused, &text);
	if (!copy)
		return refuse(t, f, refused, text);
	struct flight_counts counts = patcher_counts(copy);
	t->image = patcher_image(copy);
	struct flight *flight = flight_begin(c, t, &counts);
	if (!flight)
		return NULL;
	l->runs = l->program;
	text = "no host memory, or its parameters are unknown";
	if (heartbeats_wanted() && !flight_param(flight, &device)->heartbeat)
		text = "no memory for the heartbeats of its warps";
	else if (patcher_redirect(copy, f, flight, &l->runs))
		return flight;
	l->runs.f = NULL;
	flight_submitted(flight, l->program.stream, true);
	session_lost("a launch of %.120s is not traced: %s", f->name, text);
	return NULL;
}

struct flight *instrument_begin(struct context *c, const struct function *f, struct traced_launch *l)
{
	struct tt_traced t = {.seq = l->seq,
			      .function = f->id,
			      .kinds = plan_asked(),
			      .text = l->number,
			      .grid = {l->grid[0], l->grid[1], l->grid[2]},
			      .block = {l->block[0], l->block[1], l->block[2]}};

	tensor_maps_write();
	if (l->refused)
		return refuse(&t, f, TT_REFUSED_CALL, l->refused);
	if (instrument.patches || (l->exec && instrument.patches_graphs))
		return begin_patched(c, &t, f, l);
	if (!instrument.simulate)
		return l->exec ? refuse(&t, f, TT_REFUSED_CALL, "the Sanitizer API does not trace kernels in graphs")
			       : begin_sanitized(c, &t, f);
	pthread_mutex_lock(&instrument.lock);
	const struct module_plan *p = plan_of(f->module, l->program.f);
	pthread_mutex_unlock(&instrument.lock);
	return p ? begin_simulated(c, &t, p, l) : refuse(&t, f, TT_REFUSED_CODE, "their PTX is unknown");
}

void instrument_submitted(struct flight *flight, const struct function *f, CUstream stream, bool failed)
{
	if (!instrument.simulate && !instrument.patches && !sanitizer_done() && !failed)
		session_lost("launches of %.120s are not traced: their module was not changed", f->name);
	flight_submitted(flight, stream, failed);
}

void instrument_context_ends(struct context *c)
{
	traced_graphs_context_ends(c);
	flights_context_ends(c);
	patcher_context_ends(c);
}

void instrument_forget(void)
{
	pthread_mutex_init(&instrument.lock, NULL);
	traced_graphs_forget();
	flights_forget();
	tensor_maps_forget();
	patcher_forget();
}
