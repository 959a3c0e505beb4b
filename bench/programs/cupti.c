/*
 * The least that a tool on NVIDIA's profiling interface does with launches, for comparison. Loaded
 * by the driver where CUDA_INJECTION64_PATH names it. BENCH_CUPTI=callback: is called before and
 * after every launch, and counts. BENCH_CUPTI=activity: has every kernel's times recorded.
 */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER ((size_t)8 << 20)

static unsigned long long count;
static CUpti_SubscriberHandle subscriber; /* of the callback */

static void check(CUptiResult r, const char *call)
{
	const char *text = "unknown error";

	if (r == CUPTI_SUCCESS)
		return;
	cuptiGetResultString(r, &text);
	fprintf(stderr, "%s: %s\n", call, text);
	exit(1);
}

static void CUPTIAPI called(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
	(void)user, (void)domain, (void)id, (void)data;
	count++;
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
	*buffer = aligned_alloc(64, BUFFER);
	*size = *buffer ? BUFFER : 0;
	*records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t used)
{
	CUpti_Activity *record = NULL;

	(void)context, (void)stream, (void)size;
	while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS)
		count++;
	free(buffer);
}

static void report(void)
{
	cuptiActivityFlushAll(1);
	fprintf(stderr, "cupti: %llu\n", count);
}

/* Whether launches are reported. latency.c calls it, where this is preloaded too. */
__attribute__((visibility("default"))) void bench_switch(int on)
{
	CUpti_CallbackId id = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;

	if (subscriber)
		check(cuptiEnableCallback((uint32_t)on, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "cuptiEnableCallback");
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
	const char *mode = getenv("BENCH_CUPTI");

	if (mode && !strcmp(mode, "callback")) {
		check(cuptiSubscribe(&subscriber, called, NULL), "cuptiSubscribe");
		bench_switch(1);
	} else if (mode && !strcmp(mode, "activity")) {
		check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
		check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
	}
	atexit(report);
	return 1;
}
