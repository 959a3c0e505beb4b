/*
 * Pending captures: submitted and not known to be complete. Tracks how much of the ring they may
 * take, completes them, and cancels them. See capture.h for the invariant.
 */
#include <stddef.h>

#include "capture/drain.h"
#include "options/options.h"
#include "util/clock.h"
#include "capture/capture.h"
#include "session/session.h"

#define CANCEL_MS 2000 /* for the device to notice a cancellation */

/* Free bytes in the ring, from the drain's position. */
static uint64_t ring_free(const struct capture *p)
{
	return p->ring.size - (p->head - atomic_load(&p->tail));
}

void capture_account(struct capture *p, const struct tt_capture_status *s)
{
	if (!(s->flags & (TT_CAPTURE_OVERFLOW | TT_CAPTURE_DISCARDED)))
		p->head = s->position + s->size;
}

void capture_opened(struct capture *p, uint32_t slot, uint64_t size)
{
	p->open[(p->open_first + p->open_count++) % CAPTURE_PENDING] = (struct open_capture){slot, size};
	p->reserved += size;
}

/* Removes complete captures, in order. */
static void close_ended(struct capture *p)
{
	while (p->open_count) {
		struct open_capture *o = &p->open[p->open_first];
		struct tt_capture_status *s = capture_status(p, o->slot);
		if (!__atomic_load_n(&s->sequence, __ATOMIC_ACQUIRE))
			return;
		capture_account(p, s);
		p->gap |= (s->flags & TT_CAPTURE_DISCARDED) != 0;
		if (options.overwrite == OVERWRITE_DROP_OLDEST)
			flight_settled(p, s);
		p->reserved -= o->size;
		p->open_first = (p->open_first + 1) % CAPTURE_PENDING;
		p->open_count--;
	}
}

uint64_t capture_span(const struct capture *p, uint64_t size, uint64_t largest)
{
	uint64_t rest = p->ring.size - p->head % p->ring.size;

	if (p->reserved)
		return size + largest;
	return size + (size <= rest ? 0 : largest < rest ? largest : rest);
}

bool capture_fits(struct capture *p, uint64_t size, uint64_t largest)
{
	close_ended(p);
	return size <= p->ring.size && p->reserved + capture_span(p, size, largest) <= ring_free(p);
}

bool capture_begin_ring(struct capture *p, uint64_t size)
{
	size_t position = offsetof(struct tt_capture_control, head);
	_Static_assert(offsetof(struct tt_capture_control, head_at) == sizeof(uint64_t), "side by side");

	if (p->reserved || p->head != atomic_load(&p->tail) || p->head % p->ring.size == 0 ||
	    real.cuMemsetD8Async(p->control.device + position, 0, 2 * sizeof(uint64_t), p->stream) != CUDA_SUCCESS)
		return false;
	p->head = 0;
	atomic_store(&p->tail, 0);
	return capture_fits(p, size, size);
}

uint32_t capture_slot(struct capture *p)
{
	uint32_t slot = drain_slot();

	close_ended(p); /* the drain has stored the slot's last user */
	capture_status(p, slot)->sequence = 0;
	return slot;
}

/*
 * The drain cancels captures while another thread, which has the capture lock, may start the next. The lock orders
 * them: a capture that starts after the drain found one incomplete comes after it.
 */
void capture_begins(struct capture *p, uint32_t epoch)
{
	pthread_mutex_lock(&p->cancel_lock);
	p->last_epoch = epoch;
	pthread_mutex_unlock(&p->cancel_lock);
}

void capture_cancel(struct capture *p, uint32_t slot)
{
	CUdeviceptr word = p->control.device + offsetof(struct tt_capture_control, cancelled);
	uint64_t until = clock_ns() + CANCEL_MS * 1000000ull;

	pthread_mutex_lock(&p->cancel_lock);
	bool late = !__atomic_load_n(&capture_status(p, slot)->sequence, __ATOMIC_ACQUIRE);
	uint32_t captures = atomic_load(&p->context->captures), epoch = p->last_epoch + 1;
	if (late)
		atomic_store(&p->cancelled_before, epoch);
	bool asked = late && real.cuStreamWriteValue32_v2(p->drain_streams[0], word, epoch, 0) == CUDA_SUCCESS;
	pthread_mutex_unlock(&p->cancel_lock);
	/* Cancelled captures must stop reading first: the program may free the memory next. */
	while (asked && real.cuStreamQuery(p->drain_streams[0]) == CUDA_ERROR_NOT_READY) {
		if (clock_ns() > until) { /* the write may be behind these captures, in the same queue of the device */
			atomic_store(&p->torn_before, epoch);
			session_warn("the device did not take a cancellation: the program goes on, and epochs may be torn");
			break;
		}
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	if (late)
		capture_release(p, captures);
}

static uint32_t last_open(const struct capture *p)
{
	return p->open[(p->open_first + p->open_count - 1) % CAPTURE_PENDING].slot;
}

void capture_cancel_all(struct capture *p)
{
	if (p->open_count)
		capture_cancel(p, last_open(p));
}

bool capture_is_blocked(const struct capture *p)
{
	return p->open_count && p->last_epoch < atomic_load(&p->cancelled_before);
}

void capture_tell_late(uint32_t epoch)
{
	if (session_state == SESSION_ON)
		session_warn("epoch %u was cancelled: it waited more than %u ms for work of the program", epoch,
			     options.stall_ms);
}

void capture_give_up(struct capture *p)
{
	if (capture_is_blocked(p) || p->broken || session_hurried())
		return;
	capture_tell_late(p->last_epoch);
	capture_cancel_all(p);
}

bool capture_completes(struct capture *p, uint32_t timeout_ms)
{
	if (p->open_count && !capture_complete(p, last_open(p)) && !(timeout_ms && capture_wait(p, last_open(p), timeout_ms)))
		return false;
	close_ended(p);
	return true;
}

/* All captures use the kernels' one list: each must be complete before the next. */
bool capture_settled(struct capture *p)
{
	if (capture_completes(p, capture_is_blocked(p) ? 0 : options.stall_ms))
		return true;
	capture_give_up(p);
	return false;
}
