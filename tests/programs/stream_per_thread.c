/*
 * The per-thread default stream in each way to name it: its handle, the _ptsz and _ptds symbols, and the
 * flag of cuGetProcAddress.
 */
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>

typedef CUresult launch_fn(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
			   void **, void **);
typedef CUresult set_fn(CUdeviceptr, unsigned char, size_t, CUstream);
typedef CUresult copy_fn(void *, CUdeviceptr, size_t);
typedef CUresult sync_fn(CUstream);

struct calls {
	launch_fn *launch;
	set_fn *set;
	copy_fn *copy;
	sync_fn *sync;
};

static CUfunction mix;
static CUcontext context;

static void *look_up(const char *name)
{
	CUdriverProcAddressQueryResult found;
	void *p = NULL;

	OK(cuGetProcAddress(name, &p, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found));
	return p;
}

static void run(const char *name, const struct calls *c, CUstream stream)
{
	unsigned n = 3000, rounds = 9, out[3000];
	CUdeviceptr p = allocate(n * 4);

	printf("%s\n", name);
	SHOW(c->set(p, 7, n * 4, stream));
	SHOW(c->launch(mix, n, 1, 1, 1, 1, 1, 0, stream, PARAMS(&p, &n, &rounds), NULL));
	SHOW(c->sync(stream));
	SHOW(c->copy(out, p, n * 4));
	print_host("result", out, n * 4);
	OK(cuMemFree(p));
}

static void all_ways(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	struct calls handle = {cuLaunchKernel, cuMemsetD8Async, cuMemcpyDtoH, cuStreamSynchronize};
	struct calls symbols = {
		(launch_fn *)dlsym(driver, "cuLaunchKernel_ptsz"), (set_fn *)dlsym(driver, "cuMemsetD8Async_ptsz"),
		(copy_fn *)dlsym(driver, "cuMemcpyDtoH_v2_ptds"), (sync_fn *)dlsym(driver, "cuStreamSynchronize_ptsz"),
	};
	struct calls flag = {
		(launch_fn *)look_up("cuLaunchKernel"), (set_fn *)look_up("cuMemsetD8Async"),
		(copy_fn *)look_up("cuMemcpyDtoH"), (sync_fn *)look_up("cuStreamSynchronize"),
	};

	printf("look-ups agree %d\n", !memcmp(&symbols, &flag, sizeof(flag)));
	printf("and differ from the plain calls %d\n", symbols.launch != handle.launch && symbols.set != handle.set);
	run("handle", &handle, CU_STREAM_PER_THREAD);
	run("symbols", &symbols, NULL);
	run("flag", &flag, NULL);
	run("flag, legacy handle", &flag, CU_STREAM_LEGACY);
	dlclose(driver);
}

static void *other_thread(void *unused)
{
	OK(cuCtxSetCurrent(context));
	all_ways();
	return unused;
}

int main(void)
{
	pthread_t thread;

	start();
	OK(cuCtxGetCurrent(&context));
	mix = get_kernel(load_kernels(), "mix");
	all_ways();
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	return 0;
}
