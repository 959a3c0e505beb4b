/*
 * Reports submitted and executed work to a client. See trace.h.
 */
#include "sim/driver/trace.h"

#include <time.h>

#include "sim/driver/driver.h"

static const struct trace_client *client;

__attribute__((visibility("default"))) void sim_trace(const struct trace_client *new_client)
{
	pthread_mutex_lock(&sim_mutex);
	client = new_client;
	pthread_mutex_unlock(&sim_mutex);
}

static uint32_t number_of(CUcontext ctx)
{
	return (uint32_t)ctx->id + 1;
}

/* As traces have it; 0 where it is none. */
__attribute__((visibility("default"))) uint32_t sim_context_number(CUcontext ctx)
{
	pthread_mutex_lock(&sim_mutex);
	uint32_t number = context_alive(ctx) ? number_of(ctx) : 0;
	pthread_mutex_unlock(&sim_mutex);
	return number;
}

uint64_t trace_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint32_t trace_submitted(void)
{
	return client ? client->submitted() : 0;
}

void trace_ran(const struct sim_op *op, uint64_t begin)
{
	const struct sim_work *w = op->work;
	struct trace_work t = {
		.correlation = op->correlation,
		.begin = begin,
		.end = trace_now(),
		.device = (uint32_t)op->ctx->device,
		.context = number_of(op->ctx),
		.node = op->node,
	};

	if (!client)
		return;
	switch (w->type) {
	case WORK_KERNEL:
		t.kind = TRACE_KERNEL;
		t.name = ptx_info(w->kernel.function->code)->name;
		break;
	case WORK_COPY:
		t.kind = TRACE_COPY;
		t.bytes = w->copy.copy.width * w->copy.copy.height * w->copy.copy.depth;
		break;
	case WORK_FILL:
		t.kind = TRACE_SET;
		t.bytes = (uint64_t)w->fill.width * w->fill.element * w->fill.height;
		break;
	default:
		return;
	}
	client->ran(&t);
}
