/* Calls after the driver's own end. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

extern void (*simonly_after_exit_call)(void);

static CUresult (*count_devices)(int *);

static void late(void)
{
	int count;

	printf("late %d\n", (int)count_devices(&count));
	fflush(stdout);
}

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned);
	int count;

	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&count_devices = dlsym(driver, "cuDeviceGetCount");
	printf("before %d\n", (int)count_devices(&count));
	printf("init %d\n", (int)init(0));
	printf("count %d\n", (int)count_devices(&count));
	fflush(stdout);
	simonly_after_exit_call = late;
	return 0;
}
