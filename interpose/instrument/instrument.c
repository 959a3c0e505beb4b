/*
 * Chooses launches, and prepares them. See instrument.h for the invariant.
 *
 * A simulator is told what to trace before the launch. On a GPU, the Sanitizer API inserts the code that records.
 */
#define _GNU_SOURCE
#include "instrument/instrument.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "instrument/heartbeats.h"
#include "instrument/plan.h"
#include "instrument/sanitizer.h"
#include "options/options.h"
#include "session/session.h"
#include "sim_trace.h"
#include "store/store.h"
#include "driver/driver.h"
#include "track/image_retention.h"

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
} instrument = {.lock = PTHREAD_MUTEX_INITIALIZER};

void instrument_module(uint32_t module, const void *image)
{
	struct retained_image retained;
	struct module_plan *p = calloc(1, sizeof(*p));

	retained_from_memory(&retained, image_readable(image) ? image : NULL);
	if (p && retained.image.kind == TT_MODULE_PTX)
		p->lines = plan_lines((const char *)retained.image.bytes, retained.image.size, &p->count);
	retained_release(&retained);
	if (!p || !p->lines) {
		free(p);
		return;
	}
	p->module = module;
	pthread_mutex_lock(&instrument.lock);
	p->next = instrument.plans;
	instrument.plans = p;
	pthread_mutex_unlock(&instrument.lock);
}

/* Caller holds the lock. */
static const struct module_plan *plan_of(uint32_t module)
{
	const struct module_plan *p = instrument.plans;

	while (p && p->module != module)
		p = p->next;
	return p;
}

/* Caller holds the lock. Counts a launch of a chosen function; whether it is traced. */
static bool is_next(void)
{
	uint64_t number = ++instrument.matched;

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
		dlclose(library);
	}
	heartbeats_late_blocks = instrument.simulate;
	if (!instrument.simulate)
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

static struct flight *begin_simulated(struct context *c, struct tt_traced *t, const struct module_plan *p)
{
	struct flight *flight = flight_begin(c, t, plan_asked() & 1u << TT_TRACE_COUNT ? p->count : 0);
	CUdeviceptr device;

	if (flight)
		instrument.simulate(&(struct tt_sim_trace){*flight_param(flight, &device), p->lines, p->count});
	return flight;
}

static struct flight *begin_patched(struct context *c, struct tt_traced *t, const struct function *f)
{
	const char *missing = sanitizer_missing();
	CUdeviceptr device;

	if (!missing && !(plan_asked() & sanitizer_kinds()) && !heartbeats_wanted())
		missing = "on a GPU only the kinds opcode, addresses, values and heartbeat are traced";
	if (missing)
		return refuse(t, f, TT_REFUSED_CODE, missing);
	struct flight *flight = flight_begin(c, t, 0);
	if (flight) {
		struct tt_trace_param *param = flight_param(flight, &device);
		sanitizer_next(param, device);
	}
	return flight;
}

struct flight *instrument_begin(struct context *c, const struct function *f, const unsigned grid[3], const unsigned block[3],
				uint64_t seq, bool captured)
{
	struct tt_traced t = {.seq = seq,
			      .function = f->id,
			      .kinds = plan_asked(),
			      .text = TT_NO_ID,
			      .grid = {grid[0], grid[1], grid[2]},
			      .block = {block[0], block[1], block[2]}};

	pthread_mutex_lock(&instrument.lock);
	bool next = is_next();
	const struct module_plan *p = plan_of(f->module);
	pthread_mutex_unlock(&instrument.lock);
	if (!next)
		return NULL;
	if (captured)
		return refuse(&t, f, TT_REFUSED_CALL, "they are part of a graph");
	if (!instrument.simulate)
		return begin_patched(c, &t, f);
	if (!p)
		return refuse(&t, f, TT_REFUSED_CODE, "their PTX is unknown");
	return begin_simulated(c, &t, p);
}

void instrument_submitted(struct flight *flight, const struct function *f, CUstream stream, bool failed)
{
	if (!instrument.simulate && !sanitizer_done() && !failed)
		session_lost("launches of %.120s are not traced: their module was not changed", f->name);
	flight_submitted(flight, stream, failed);
}

void instrument_forget(void)
{
	pthread_mutex_init(&instrument.lock, NULL);
	flights_forget();
}
