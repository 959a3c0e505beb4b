/*
 * A CUPTI for the simulator, with the activity records that a recorder uses.
 *
 * Like NVIDIA's, it has one set of buffers for all clients, reports the call of an activity only while
 * records of calls are enabled, and delivers complete records when asked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti_abi.h"
#include "util/compiler.h"
#include "sim/driver/trace.h"

#define KINDS 64
#define FULL 64
#define AT_ONCE_NS 50000
#define CUPTI_ERROR_INVALID_PARAMETER 1
#define CUPTI_ERROR_NOT_INITIALIZED 15
#define CUPTI_ERROR_MAX_LIMIT_REACHED 12

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool enabled[KINDS], zeroed;
static cupti_request request_buffer;
static cupti_complete complete_buffer;
static uint64_t (*_Atomic now)(void);
static uint32_t last_correlation;
static cupti_callback callback;
static void *callback_user;
static uint32_t followed_calls; /* bits by id */
static struct buffer {
	uint8_t *at;
	size_t size, used;
} buffer, full[FULL]; /* in order, delivered on request */
static unsigned full_count;

/* For callbacks, every call that submits work is one of these. */
static const char *const calls[] = {"", "cuCtxGetCurrent", "cuLaunchKernel"};
#define WORK 2

static size_t size_of(uint32_t kind)
{
	if (kind == CUPTI_MEMCPY || kind == CUPTI_MEMCPY_PEER || kind == CUPTI_MEMSET)
		return sizeof(struct cupti_transfer);
	return kind == CUPTI_CONCURRENT_KERNEL ? sizeof(struct cupti_kernel) : 0;
}

static void put_away(void)
{
	if (buffer.at && full_count < FULL)
		full[full_count++] = buffer;
	buffer = (struct buffer){0};
}

/* Whether a buffer is zeroed, as far as its owner promised that. */
static bool is_as_promised(const struct buffer *b)
{
	size_t i = 0;

	while (zeroed && i < b->size && !b->at[i])
		i++;
	return !zeroed || i == b->size;
}

/* With the lock held. */
static void add(const void *record, uint32_t kind)
{
	size_t size = size_of(kind), most;

	if (!enabled[kind] || !request_buffer)
		return;
	if (buffer.at && buffer.used + size > buffer.size)
		put_away();
	if (!buffer.at) {
		request_buffer(&buffer.at, &buffer.size, &most);
		buffer.used = 0;
		if (buffer.at && !is_as_promised(&buffer))
			buffer.size = 0; /* NVIDIA's would have wrong records */
	}
	if (!buffer.at || size > buffer.size)
		return;
	memcpy(buffer.at + buffer.used, record, size);
	buffer.used += size;
}

/* Names stay valid until the process ends, except those of modules. With the lock held. */
static const char *lasting(const char *name)
{
	static struct name {
		struct name *next;
		char text[];
	} *names;
	size_t size = strlen(name) + 1;

	for (struct name *n = names; n; n = n->next)
		if (!strcmp(n->text, name))
			return n->text;
	struct name *n = malloc(sizeof *n + size);
	if (!n)
		return NULL;
	memcpy(n->text, name, size);
	n->next = names;
	names = n;
	return n->text;
}

/* ---- the simulator's side ---- */

static uint32_t submitted(void)
{
	pthread_mutex_lock(&lock);
	struct cupti_call call = {.site = CUPTI_ENTER, .name = calls[WORK], .correlation = ++last_correlation};
	cupti_callback told = followed_calls >> WORK & 1 ? callback : NULL;
	void *user = callback_user;
	pthread_mutex_unlock(&lock);
	if (told)
		told(user, CUPTI_DRIVER_API, WORK, &call);
	return call.correlation;
}

static uint64_t own_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Converts from the simulator's clock to the requested one. Reads both at once, unless the thread is interrupted. */
static uint64_t shifted(uint64_t ns)
{
	uint64_t (*clock)(void) = now, before, read;

	if (!clock)
		return ns;
	do {
		before = own_clock();
		read = clock();
	} while (own_clock() - before > AT_ONCE_NS);
	return read - (before - ns);
}

static void ran(const struct trace_work *w)
{
	uint64_t begin = shifted(w->begin), end = begin + (w->end - w->begin);

	pthread_mutex_lock(&lock);
	switch (w->kind) {
	case TRACE_KERNEL:
		add(&(struct cupti_kernel){.kind = CUPTI_CONCURRENT_KERNEL,
					   .start = begin,
					   .end = end,
					   .completed = end,
					   .device = w->device,
					   .context = w->context,
					   .correlation = w->correlation,
					   .name = lasting(w->name),
					   .node = w->node},
		    CUPTI_CONCURRENT_KERNEL);
		break;
	case TRACE_COPY:
	case TRACE_SET: {
		uint32_t kind = w->kind == TRACE_COPY ? CUPTI_MEMCPY : CUPTI_MEMSET;
		add(&(struct cupti_transfer){.kind = kind,
					     .bytes = w->bytes,
					     .start = begin,
					     .end = end,
					     .device = w->device,
					     .context = w->context,
					     .correlation = w->correlation,
					     .node = w->node},
		    kind);
		break;
	}
	}
	pthread_mutex_unlock(&lock);
}

static CUptiResult follow(bool on)
{
	static const struct trace_client client = {submitted, ran};
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void (*trace)(const struct trace_client *);

	*(void **)&trace = driver ? dlsym(driver, "sim_trace") : NULL;
	if (trace)
		trace(on ? &client : NULL);
	if (driver)
		dlclose(driver);
	return trace ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
}

/* ---- the client's side ---- */

EXPORT CUptiResult cuptiGetVersion(uint32_t *version)
{
	*version = 130000;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSubscribe(void **subscriber, cupti_callback function, void *user)
{
	pthread_mutex_lock(&lock);
	bool taken = callback;
	if (!taken) {
		callback = function;
		callback_user = user;
	}
	pthread_mutex_unlock(&lock);
	if (taken)
		return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS;
	*subscriber = &callback;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiUnsubscribe(void *subscriber)
{
	if (subscriber != &callback)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	callback = NULL;
	followed_calls = 0;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name)
{
	if (domain != CUPTI_DRIVER_API || id >= sizeof calls / sizeof *calls)
		return CUPTI_ERROR_INVALID_PARAMETER;
	*name = calls[id];
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id)
{
	if (subscriber != &callback || domain != CUPTI_DRIVER_API || id >= sizeof calls / sizeof *calls)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	followed_calls = (followed_calls & ~(1u << id)) | enable << id;
	pthread_mutex_unlock(&lock);
	return follow(true);
}

EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
	now = clock;
	return clock ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

EXPORT CUptiResult cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value)
{
	if (attribute != CUPTI_ZEROED_BUFFERS || *size != 1)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	zeroed = *(uint8_t *)value;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityRegisterCallbacks(cupti_request request, cupti_complete complete)
{
	pthread_mutex_lock(&lock);
	request_buffer = request;
	complete_buffer = complete;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

static CUptiResult set(uint32_t kind, bool on)
{
	if (kind >= KINDS || !size_of(kind))
		return CUPTI_ERROR_INVALID_PARAMETER; /* among them kinds that slow the program down */
	pthread_mutex_lock(&lock);
	enabled[kind] = on;
	pthread_mutex_unlock(&lock);
	return follow(true);
}

EXPORT CUptiResult cuptiActivityEnable(uint32_t kind)
{
	return set(kind, true);
}

EXPORT CUptiResult cuptiActivityDisable(uint32_t kind)
{
	return set(kind, false);
}

EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flags)
{
	struct buffer ours[FULL];

	(void)flags;
	pthread_mutex_lock(&lock);
	put_away();
	unsigned count = full_count;
	memcpy(ours, full, count * sizeof *ours);
	full_count = 0;
	cupti_complete complete = complete_buffer;
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < count;
	     i++) /* without the lock: the client calls the simulator, which calls this file with its own lock */
		complete(NULL, 0, ours[i].at, ours[i].size, ours[i].used);
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t used, struct cupti_record **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : from;

	if (next >= from + used)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = (struct cupti_record *)next;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped)
{
	(void)context;
	(void)stream;
	*dropped = 0;
	return CUPTI_SUCCESS;
}

/* Records have the simulator's own number of a context; a client cannot learn it in another way here. */
EXPORT CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id)
{
	uint32_t (*number)(CUcontext);
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	*(void **)&number = driver ? dlsym(driver, "sim_context_number") : NULL;
	*id = number ? number(context) : 0;
	if (driver)
		dlclose(driver);
	return *id ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
