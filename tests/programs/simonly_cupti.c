/* A program that uses CUPTI activity records itself, and looks up CUPTI's calls or is linked to them. */
#include <dlfcn.h>

#include "program.h"

#define CONCURRENT_KERNEL 10

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(CUcontext, uint32_t, uint8_t *, size_t, size_t);
typedef void (*callback_fn)(void *, uint32_t, uint32_t, const void *);

#ifdef LINKED
int cuptiSubscribe(void **, callback_fn, void *);
int cuptiActivityRegisterCallbacks(request_fn, complete_fn);
int cuptiActivityEnable(uint32_t);
int cuptiActivityFlushAll(uint32_t);
int cuptiActivityGetNextRecord(uint8_t *, size_t, uint32_t **);
#define find() (void)0
#else
static int (*cuptiSubscribe)(void **, callback_fn, void *);
static int (*cuptiActivityRegisterCallbacks)(request_fn, complete_fn);
static int (*cuptiActivityEnable)(uint32_t);
static int (*cuptiActivityFlushAll)(uint32_t);
static int (*cuptiActivityGetNextRecord)(uint8_t *, size_t, uint32_t **);

static void find(void)
{
	void *library = dlopen("libcupti.so.13", RTLD_NOW);

	*(void **)&cuptiSubscribe = dlsym(library, "cuptiSubscribe");
	*(void **)&cuptiActivityRegisterCallbacks = dlsym(library, "cuptiActivityRegisterCallbacks");
	*(void **)&cuptiActivityEnable = dlsym(library, "cuptiActivityEnable");
	*(void **)&cuptiActivityFlushAll = dlsym(library, "cuptiActivityFlushAll");
	*(void **)&cuptiActivityGetNextRecord = dlsym(library, "cuptiActivityGetNextRecord");
}
#endif

static unsigned kernels, others;

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
	*buffer = malloc(*size = 1 << 16);
	*most = 0;
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t used)
{
	uint32_t *record = NULL;

	(void)context;
	(void)stream;
	(void)size;
	while (!cuptiActivityGetNextRecord(buffer, used, &record))
		*(*record == CONCURRENT_KERNEL ? &kernels : &others) += 1;
	free(buffer);
}

static void called(void *user, uint32_t domain, uint32_t id, const void *call)
{
	(void)user;
	(void)domain;
	(void)id;
	(void)call;
}

int main(void)
{
	unsigned n = 1000, value = 1;
	void *subscriber;

	start();
	CUfunction add = get_kernel(load_kernels(), "add");
	CUdeviceptr p = allocate(n * 4);
	OK(cuMemsetD8(p, 0, n * 4));
	for (int i = 0; i < 3; i++)
		OK(launch(add, n, NULL, PARAMS(&p, &n, &value)));
	OK(cuCtxSynchronize());
	find();
	printf("subscribe %d\n", cuptiSubscribe(&subscriber, called, NULL));
	printf("register %d\n", cuptiActivityRegisterCallbacks(request, complete));
	printf("enable %d\n", cuptiActivityEnable(CONCURRENT_KERNEL));
	for (int i = 0; i < 5; i++)
		OK(launch(add, n, NULL, PARAMS(&p, &n, &value)));
	OK(cuMemsetD32(p, 5, 1));
	OK(cuCtxSynchronize());
	printf("flush %d\n", cuptiActivityFlushAll(1));
	printf("%u kernels, %u others\n", kernels, others);
	print_device("result", p, n * 4);
	return 0;
}
