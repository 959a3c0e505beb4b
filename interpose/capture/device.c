/*
 * The recorder's resources on a device: kernels, ring, digest store. See capture.h.
 *
 * Invariant: nothing here makes the program's own allocations fail. The ring takes a share of the free memory, or
 * uses pinned host memory if the device has too little.
 */
#include <stdlib.h>
#include <string.h>

#include "capture/drain.h"
#include "options/options.h"
#include "session/session.h"
#include "util/clock.h"
#include "capture/capture.h"
#include "capture/graph_epochs.h"
#include "capture/packed.h"

extern const char capture_ptx[], pack_ptx[];

#define RING_DEFAULT ((uint64_t)1 << 30)
#define RING_OF_DIGESTS ((uint64_t)64 << 20)
#define RING_DEFAULT_LEAST ((uint64_t)1 << 20)
#define RING_SMALLEST ((uint64_t)4 << 20)
#define RING_HOST ((uint64_t)64 << 20)
#define LENT 64 /* one part in LENT of the ring's memory is for lists */
#define SLAB ((uint64_t)1 << 20)
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER; /* frees of the program use `places` too */

#define WIPING_MS 500 /* most time until freed memory counts as free */
#define STEADY_MS 5
#define ASK_FIRST_NS 200000u
#define ASK_NS 20000000u
#define WORD_AT(i) (32 * (i)) /* words that are waited for each have a cache line */
#define STATUS_AT WORD_AT(1 + DRAIN_BUFFERS)
#define CAPTURED_AT (STATUS_AT + CAPTURE_PENDING * sizeof(struct tt_capture_status))
#define SHARED_SIZE (CAPTURED_AT + CAPTURE_WORDS * sizeof(uint32_t))

/* Makes the driver return memory that it keeps until an allocation fails. */
static void free_kept(void)
{
	size_t left = 0, total = 0;
	CUdeviceptr p;

	if (real.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && real.cuMemAlloc_v2(&p, total) == CUDA_SUCCESS)
		real.cuMemFree_v2(p);
}

bool capture_memory(struct capture *p, struct memory *m, uint64_t size, bool host)
{
	return capture_memory_of(p->context, m, size, host || p->host_only);
}

bool capture_memory_of(struct context *c, struct memory *m, uint64_t size, bool host)
{
	uint64_t before = context_free_bytes();
	bool ok = memory_anywhere(c, m, size, host);

	context_account(c, before);
	return ok;
}

void capture_outgrow(struct capture *p, struct memory *m)
{
	if (m->device && !m->lent && p->outgrown_count < CAPTURE_OUTGROWN)
		p->outgrown[p->outgrown_count++] = *m;
	*m = (struct memory){0};
}

static void free_outgrown(struct capture *p)
{
	while (p->outgrown_count)
		memory_free(p->context, &p->outgrown[--p->outgrown_count]);
}

void capture_free_outgrown(struct capture *p)
{
	if (!p->outgrown_count)
		return;
	uint64_t before = context_free_bytes();
	free_outgrown(p);
	context_account(p->context, before);
}

/* Uses the end of the ring's memory for block digests and for the list of changed blocks. */
static void lend(struct capture *p)
{
	uint64_t lent = p->ring.size / LENT & ~(uint64_t)(TT_RING_ALIGN - 1);
	uint64_t digests = lent / 5 & ~(uint64_t)(TT_RING_ALIGN - 1);

	p->ring.size -= lent;
	p->scratch = p->ring;
	p->scratch.device += p->ring.size;
	p->scratch.size = lent - digests;
	p->scratch.lent = true;
	if (digests)
		free_ranges_add(&p->places, p->scratch.device + p->scratch.size, digests);
}

static bool make_ring(struct capture *p, uint64_t *wanted)
{
	size_t left = 0, total = 0;
	uint64_t want = options.ring_bytes, asked;

	real.cuMemGetInfo_v2(&left, &total);
	if (!want)
		want = options.contents.none ? RING_OF_DIGESTS : RING_DEFAULT;
	asked = want &= ~(uint64_t)(TT_RING_ALIGN - 1);
	if (!options.ring_bytes && want > total / 64)
		asked = want = total / 64 > RING_DEFAULT_LEAST ? total / 64 & ~(uint64_t)0xfffff : RING_DEFAULT_LEAST;
	uint64_t smallest = want < RING_SMALLEST ? want : RING_SMALLEST;
	while (want > left / 4 && want > smallest)
		want /= 2;
	want &= ~(uint64_t)(TT_RING_ALIGN - 1);
	bool host = p->host_only || want > left / 4;
	while (!host && want >= smallest && !memory_on_device(p->context, &p->ring, want))
		want = want / 2 & ~(uint64_t)(TT_RING_ALIGN - 1);
	if (!p->ring.size && !memory_on_host(&p->ring, asked < RING_HOST ? asked : RING_HOST))
		return false;
	*wanted = asked;
	return true;
}

static void tell_ring(const struct capture *p, uint64_t wanted)
{
	if (p->ring.host)
		session_warn("no free device memory: the ring is %llu MiB of pinned host memory",
			     (unsigned long long)(p->ring.size >> 20));
	else if (p->ring.size < wanted)
		session_warn("not enough free device memory: the ring is %llu MiB instead of %llu",
			     (unsigned long long)(p->ring.size >> 20), (unsigned long long)(wanted >> 20));
	session_set_ring(p->ring.size, p->ring.host ? "host" : "device");
}

bool capture_is_idle(const struct capture *p)
{
	CUstream own[] = {p->stream, p->drain_streams[0], p->drain_streams[1]};

	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (real.cuStreamQuery(own[i]) == CUDA_ERROR_NOT_READY)
			return false;
	return true;
}

static void destroy(struct capture *p)
{
	pthread_mutex_lock(&places_lock);
	if (p->context->capture == p)
		p->context->capture = NULL;
	pthread_mutex_unlock(&places_lock);
	instrumentation_switch_off(p->context);
	memory_free(p->context, &p->ring);
	memory_free(p->context, &p->control);
	memory_free(p->context, &p->scratch);
	memory_free(p->context, &p->regions);
	memory_free(p->context, &p->shared);
	free_outgrown(p);
	for (unsigned i = 0; i < p->slab_count; i++)
		memory_free(p->context, &p->slabs[i]);
	memory_free(p->context, &p->staging_memory);
	for (int i = 0; i < CAPTURE_PENDING; i++)
		for (unsigned k = 0; k < 2; k++) {
			CUevent event = k ? p->begun[i] : p->done[i];
			if (event)
				real.cuEventDestroy_v2(event);
		}
	for (int i = 0; i <= DRAIN_LIST; i++) {
		if (p->pinned[i])
			real.cuMemFreeHost(p->pinned[i]);
	}
	if (p->order)
		real.cuEventDestroy_v2(p->order);
	if (p->stream)
		real.cuStreamDestroy_v2(p->stream);
	for (int i = 0; i < 2; i++)
		if (p->drain_streams[i])
			real.cuStreamDestroy_v2(p->drain_streams[i]);
	if (p->module)
		real.cuModuleUnload(p->module);
	if (p->pack_module)
		real.cuModuleUnload(p->pack_module);
	region_list_release(p->list);
	flight_drop_all(p);
	free(p->kept);
	free_ranges_end(&p->places);
	regions_unplace(p->context);
	free(p);
}

static bool had(CUresult r, const char *call, const char **refused)
{
	if (r != CUDA_SUCCESS)
		*refused = call;
	return r == CUDA_SUCCESS;
}

/* Loads the kernel now: a driver that loads it at its first launch would wait then for all running work. */
static CUresult get_kernel(CUmodule module, const char *name, CUfunction *kernel)
{
	CUresult r = real.cuModuleGetFunction(kernel, module, name);

	return r == CUDA_SUCCESS && real.cuFuncLoad ? real.cuFuncLoad(*kernel) : r;
}

static CUresult get_kernels(struct capture *p)
{
	CUresult r = real.cuModuleLoadData(&p->module, capture_ptx);

	if (r == CUDA_SUCCESS)
		r = get_kernel(p->module, TT_KERNEL_DIGEST, &p->digest);
	if (r == CUDA_SUCCESS)
		r = get_kernel(p->module, TT_KERNEL_DIGEST_SMALL, &p->digest_small);
	if (r == CUDA_SUCCESS)
		r = get_kernel(p->module, TT_KERNEL_GATHER, &p->gather);
	if (r != CUDA_SUCCESS || options.compress != COMPRESS_DEVICE)
		return r;
	r = real.cuModuleLoadData(&p->pack_module, pack_ptx);
	return r == CUDA_SUCCESS ? get_kernel(p->pack_module, TT_KERNEL_PACK, &p->pack) : r;
}

static struct capture *create(struct context *c, bool host_only)
{
	struct capture *p = calloc(1, sizeof(*p));
	const char *name = "?", *refused = NULL;
	uint64_t ring_wanted;
	int processors = 1;
	unsigned timing = options.max_overhead ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
	CUresult r;

	if (!p) {
		session_fail("no host memory for captures");
		return NULL;
	}
	pthread_mutex_init(&p->cancel_lock, NULL);
	p->context = c;
	p->host_only = host_only;
	r = get_kernels(p);
	if (r != CUDA_SUCCESS) {
		real.cuGetErrorName(r, &name);
		session_fail("the driver refused the capture kernels: %s", name);
		destroy(p);
		return NULL;
	}
	real.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->device);
	p->processors = (unsigned)processors;
	bool ok = had(real.cuStreamCreateWithPriority(&p->stream, CU_STREAM_NON_BLOCKING, -100), "to create a stream",
		      &refused) &&
		  had(real.cuStreamCreateWithPriority(&p->drain_streams[0], CU_STREAM_NON_BLOCKING, -100), "to create a stream",
		      &refused) &&
		  had(real.cuStreamCreateWithPriority(&p->drain_streams[1], CU_STREAM_NON_BLOCKING, -100), "to create a stream",
		      &refused) &&
		  had(real.cuEventCreate(&p->order, CU_EVENT_DISABLE_TIMING), "to create an event", &refused) &&
		  memory_on_host(&p->shared, SHARED_SIZE) &&
		  memory_anywhere(c, &p->control, sizeof(struct tt_capture_control), p->host_only) &&
		  make_ring(p, &ring_wanted);
	for (int i = 0; ok && i < CAPTURE_PENDING; i++)
		ok = had(real.cuEventCreate(&p->done[i], timing), "to create an event", &refused) &&
		     (!options.max_overhead || had(real.cuEventCreate(&p->begun[i], timing), "to create an event", &refused));
	for (int i = 0; ok && i <= DRAIN_LIST; i++)
		ok = real.cuMemHostAlloc((void **)&p->pinned[i],
					 i == DRAIN_LIST ? DRAIN_LIST_SIZE
					 : p->pack       ? PACKED_BUFFER
							 : DRAIN_BUFFER,
					 0) == CUDA_SUCCESS;
	ok = ok && had(real.cuMemsetD8Async(p->control.device, 0, p->control.size, p->stream), "to clear memory", &refused);
	if (!ok) {
		session_set_ring(0, "none");
		if (refused)
			session_fail("the driver refused %s", refused);
		else
			session_fail("no memory for the ring: neither on the device nor pinned on the host");
		destroy(p);
		return NULL;
	}
	tell_ring(p, ring_wanted);
	lend(p);
	memset(p->shared.host, 0, SHARED_SIZE);
	capture_release(p, atomic_load(&c->captures)); /* captures before this one are complete */
	p->force_full = true;
	return p;
}

struct capture *capture_create(struct context *c, bool host_only)
{
	uint64_t before = context_free_bytes();
	struct capture *p = create(c, host_only);

	context_account(c, before);
	return p;
}

uint64_t capture_destroy(struct capture *p)
{
	struct context *c = p->context;
	uint64_t before = context_free_bytes(), expected = before + (p->ring.host ? 0 : p->ring.size);

	/*
	 * Unlike a free, an unmap does not wait for work that uses the memory. Other threads' default streams,
	 * which the caller could not query, end by themselves.
	 */
	if (!atomic_load(&captures_active))
		real.cuCtxSynchronize();
	destroy(p);
	context_account(c, before);
	return expected;
}

void capture_freed(struct context *c, uint64_t expected)
{
	uint64_t before = context_free_bytes(), now = before;

	free_kept();
	for (int ms = 0, same = 0; ms < WIPING_MS && (same < STEADY_MS || now < expected); ms++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		uint64_t again = context_free_bytes();
		same = again == now ? same + 1 : 0;
		now = again;
	}
	context_account(c, before);
}

uint64_t capture_device_bytes(const struct context *c)
{
	int64_t bytes = (int64_t)atomic_load(&c->device_bytes);

	return bytes > 0 ? (uint64_t)bytes : 0;
}

static bool place(struct capture *p, struct region *r)
{
	uint64_t size = region_blocks(r) * sizeof(uint64_t);

	while (!(r->placed = free_ranges_take(&p->places, size, &r->slot))) {
		struct memory *slab = &p->slabs[p->slab_count];
		uint64_t wanted = size > SLAB ? size : SLAB;
		if (p->slab_count == sizeof(p->slabs) / sizeof(p->slabs[0]) ||
		    (!capture_memory(p, slab, wanted, false) && !capture_memory(p, slab, wanted, true)))
			return false;
		p->slab_count++;
		if (!free_ranges_add(&p->places, slab->device, wanted))
			return false;
	}
	return true;
}

bool capture_place(struct capture *p, struct region *r)
{
	pthread_mutex_lock(&places_lock);
	bool ok = r->placed || place(p, r);
	pthread_mutex_unlock(&places_lock);
	return ok;
}

/* The room for its digests is free at once: later captures run after those that still use it. */
void capture_region_gone(struct region *r)
{
	pthread_mutex_lock(&places_lock);
	if (r->placed && r->context->capture)
		free_ranges_add(&r->context->capture->places, r->slot, region_blocks(r) * sizeof(uint64_t));
	r->placed = false;
	pthread_mutex_unlock(&places_lock);
}

uint32_t *capture_copied_word(struct capture *p, int buffer)
{
	return (uint32_t *)((char *)p->shared.host + WORD_AT(buffer));
}

CUdeviceptr capture_copied_address(struct capture *p, int buffer)
{
	return p->shared.device + (uint64_t)WORD_AT(buffer);
}

struct tt_capture_status *capture_status(struct capture *p, uint32_t slot)
{
	return (struct tt_capture_status *)((char *)p->shared.host + STATUS_AT) + slot;
}

CUdeviceptr capture_status_address(struct capture *p, uint32_t slot)
{
	return p->shared.device + STATUS_AT + slot * sizeof(struct tt_capture_status);
}

void capture_failed(struct capture *p, CUresult r, const char *call)
{
	const char *name = "?";

	real.cuGetErrorName(r, &name);
	session_listeners.context_failed(p->context, r, call, 0);
	atomic_store(&p->broken, true);
	session_fail("the context failed (%s from %s): its epochs that are not stored yet are lost", name, call);
}

bool capture_enter(struct context *c)
{
	CUresult r = real.cuCtxPushCurrent_v2(c->handle);

	if (r != CUDA_SUCCESS && c->capture)
		capture_failed(c->capture, r, "cuCtxPushCurrent");
	return r == CUDA_SUCCESS;
}

/* Orders reads of memory that the device wrote before the word after this. */
static bool has_come(const uint32_t *word, uint32_t value)
{
	return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

uint32_t *capture_word(const struct capture *p, uint32_t capture)
{
	return (uint32_t *)((char *)p->shared.host + CAPTURED_AT) + capture % CAPTURE_WORDS;
}

CUdeviceptr capture_word_address(const struct capture *p, uint32_t capture)
{
	return p->shared.device + CAPTURED_AT + capture % CAPTURE_WORDS * sizeof(uint32_t);
}

bool capture_released(const struct capture *p, uint32_t capture)
{
	return has_come(capture_word(p, capture), capture);
}

static void raise_word(uint32_t *word, uint32_t value)
{
	uint32_t come = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	while ((int32_t)(value - come) > 0 &&
	       !__atomic_compare_exchange_n(word, &come, value, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
		continue;
}

void capture_release(struct capture *p, uint32_t captures)
{
	for (uint32_t i = 0; i < CAPTURE_WORDS; i++)
		raise_word(capture_word(p, captures - i), captures - i);
}

/*
 * Polls memory that the device writes, because calls would take the driver's locks from the program's launches.
 * Asks the driver for errors from time to time.
 */
bool capture_poll(struct capture *p, const uint32_t *word, uint32_t value, CUstream stream, uint32_t timeout_ms)
{
	uint64_t now = clock_ns(), deadline = now + timeout_ms * 1000000ull, step = ASK_FIRST_NS, ask = now + step;
	long pause = 0;

	while (!has_come(word, value)) {
		if (p->broken)
			return false;
		now = clock_ns();
		deadline = capture_deadline(deadline, false);
		if (now > ask || now > deadline) {
			CUresult r = real.cuStreamQuery(stream);
			if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY) {
				capture_failed(p, r, "cuStreamQuery");
				return false;
			}
			step = step < ASK_NS ? step * 2 : step;
			ask = now + step;
		}
		if (now > deadline && !has_come(word, value))
			return false;
		if (pause)
			nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
		pause = pause ? (pause < 50000 ? pause * 2 : pause) : 1000;
	}
	return true;
}

bool capture_copied(struct capture *p, int buffer)
{
	return has_come(capture_copied_word(p, buffer), p->copies[buffer]);
}

bool capture_complete(struct capture *p, uint32_t slot)
{
	return has_come((uint32_t *)&capture_status(p, slot)->sequence, 1);
}

bool capture_wait(struct capture *p, uint32_t slot, uint32_t timeout_ms)
{
	return capture_poll(p, (uint32_t *)&capture_status(p, slot)->sequence, 1, p->stream, timeout_ms);
}
