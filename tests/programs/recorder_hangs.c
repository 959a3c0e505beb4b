/*
 * Work that never ends. The first argument names the cause. The program prints "hangs" before it hangs.
 * What it waits for never happens, or a signal handler does it.
 */
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* spin(u32 *flag) runs until the flag is not 0. */
static const char SPIN[] =
	PTX_HEADER
	".visible .entry spin(.param .u64 flag)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [flag];\ncvta.to.global.u64 %rd1, %rd1;\n"
	"AGAIN:\nld.volatile.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra AGAIN;\nret;\n}\n"
	".visible .entry _ZN5outer12_GLOBAL__N_15innerIfEEvPT_(.param .u64 flag)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [flag];\ncvta.to.global.u64 %rd1, %rd1;\n"
	"AGAIN:\nld.volatile.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra AGAIN;\nret;\n}\n";

static volatile unsigned *flag; /* in the host's memory */
static CUdeviceptr device_flag, data;
static CUfunction spin, spin_in_cpp, fill, add, poke;
static CUstream first, second;
static unsigned n = 1000, value = 1;

static void hangs(void)
{
	printf("hangs\n");
	fflush(stdout);
}

static void launch_spin(CUfunction f, CUstream stream)
{
	OK(cuLaunchKernel(f, 4, 1, 1, 32, 1, 1, 0, stream, PARAMS(&device_flag), NULL));
}

static void launch_on(CUfunction f, CUstream stream)
{
	OK(launch(f, n, stream, PARAMS(&data, &n, &value)));
}

static void let_go(int number)
{
	(void)number;
	*flag = 1;
}

/* What the host never waited for is complete as well: the event says so. */
static void after_an_event(void)
{
	CUevent event, gone;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&gone, CU_EVENT_DISABLE_TIMING));
	launch_on(fill, first);
	launch_on(add, first);
	OK(cuEventRecord(event, first));
	launch_spin(spin, first);
	OK(cuEventRecord(gone, first));
	OK(cuEventDestroy(gone));
	launch_on(add, first);
}

static void behind_another_stream(void)
{
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	launch_spin(spin, first);
	OK(cuEventRecord(event, first));
	OK(cuStreamWaitEvent(second, event, 0));
	launch_on(add, second);
	OK(cuMemcpyDtoHAsync((void *)(flag + 1), data, 4, second));
}

/* All streams come first: the driver may wait for the device when it makes one. */
static void in_many_streams(void)
{
	CUstream streams[100];

	for (int i = 0; i < 100; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 100; i++)
		launch_spin(spin, streams[i]);
}

/* Nobody waits for what comes first. */
static void after_other_work(void)
{
	launch_on(fill, first);
	launch_on(add, first);
	launch_spin(spin, first);
	launch_on(add, first);
}

/* The context is lost by one of three launches. */
static void by_a_fault(void)
{
	CUdeviceptr nowhere = 0x10;

	launch_on(fill, second);
	OK(cuStreamSynchronize(second));
	launch_on(add, second);
	OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, first, PARAMS(&nowhere, &value), NULL));
	launch_on(add, first);
	SHOW(cuStreamSynchronize(first));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemFree(data));
}

/* Until the driver takes no more, and longer. */
static void with_many_launches(void)
{
	launch_spin(spin, first);
	hangs();
	for (;;)
		launch_on(add, first);
}

static void in_a_graph(void)
{
	CUgraph graph;
	CUgraphExec exec;

	OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch_on(add, first);
	launch_spin(spin, first);
	OK(cuStreamEndCapture(first, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, first));
}

/* Streams and events come and go for ever. */
static void *come_and_go(void *context)
{
	CUstream stream;
	CUevent event;

	OK(cuCtxSetCurrent(context));
	for (;;) {
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		launch_on(add, stream);
		OK(cuEventRecord(event, stream));
		launch_on(add, stream);
		OK(cuEventDestroy(event));
		OK(cuStreamDestroy(stream));
	}
	return NULL;
}

static void in_threads(void)
{
	CUcontext context;
	pthread_t thread;

	OK(cuCtxGetCurrent(&context));
	for (int i = 0; i < 6; i++)
		if (pthread_create(&thread, NULL, come_and_go, context))
			exit(1);
	hangs();
	pthread_join(thread, NULL);
}

/* More calls than are looked back at. */
static void many_calls(CUstream stream)
{
	unsigned one = 1;

	for (int i = 0; i < 70000; i++)
		OK(launch(add, one, stream, PARAMS(&data, &one, &value)));
}

static void *wait_for_value(void *context)
{
	OK(cuCtxSetCurrent(context));
	OK(cuStreamWaitValue32(first, device_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	for (;;)
		pause();
	return NULL;
}

/* By a thread that does nothing else, while another makes many calls. */
static void long_ago(void)
{
	CUcontext context;
	pthread_t thread;

	OK(cuCtxGetCurrent(&context));
	if (pthread_create(&thread, NULL, wait_for_value, context))
		exit(1);
	usleep(100000);
	many_calls(second);
	OK(cuStreamSynchronize(second));
}

/* What was recorded so far is there, where there are to be epochs. */
static void wait_for_the_disk(void)
{
	const char *run = getenv("TT_OUT"), *epoch = getenv("TT_EPOCH");
	char path[4096];
	struct stat found;

	snprintf(path, sizeof(path), "%s/p0/epochs.bin", run ? run : "");
	for (int i = 0; i < 20000 && (!epoch || strcmp(epoch, "none")) && !stat(path, &found) && found.st_size <= 64; i++)
		usleep(1000);
	usleep(50000); /* and the recorder knows that it is */
}

/* What waits for the kernel, by its name. */
static void wait_by(const char *how, CUdevice device)
{
	int (*dump)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tt_dump");
	int (*epoch)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_DEFAULT, "tt_epoch");

	if (!strcmp(how, "release")) {
		OK(cuDevicePrimaryCtxRelease(device));
	} else if (!strcmp(how, "reset")) {
		OK(cuDevicePrimaryCtxReset(device));
	} else if (!strcmp(how, "dump") && epoch && dump) {
		epoch(NULL, "behind it");
		dump();
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "spin";
	CUdevice device = start();

	CUmodule kernels = load_kernels(), module;
	OK(cuModuleLoadData(&module, SPIN));
	spin = get_kernel(module, "spin");
	spin_in_cpp = get_kernel(module, "_ZN5outer12_GLOBAL__N_15innerIfEEvPT_");
	fill = get_kernel(kernels, "fill");
	add = get_kernel(kernels, "add");
	poke = get_kernel(kernels, "poke");
	OK(cuMemHostAlloc((void **)&flag, 8, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device_flag, (void *)flag, 0));
	*flag = 0;
	data = allocate(n * 4);
	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	launch_on(fill, first);
	launch_on(add, second);
	OK(cuCtxSynchronize());
	wait_for_the_disk();
	if (!strcmp(how, "idle")) {
		hangs();
		for (;;)
			pause();
	} else if (!strcmp(how, "handler")) {
		signal(SIGTERM, let_go);
		launch_spin(spin, first);
	} else if (!strcmp(how, "event")) {
		after_an_event();
	} else if (!strcmp(how, "behind")) {
		behind_another_stream();
	} else if (!strcmp(how, "queue")) {
		after_other_work();
	} else if (!strcmp(how, "long ago")) {
		long_ago();
	} else if (!strcmp(how, "many calls")) {
		many_calls(first);
		launch_spin(spin, first);
	} else if (!strcmp(how, "threads")) {
		in_threads();
	} else if (!strcmp(how, "fault")) {
		by_a_fault();
		if (argc > 2)
			abort();
		return 4;
	} else if (!strcmp(how, "thread")) {
		launch_spin(spin, first = CU_STREAM_PER_THREAD);
	} else if (!strcmp(how, "streams")) {
		in_many_streams();
	} else if (!strcmp(how, "launches")) {
		with_many_launches();
	} else if (!strcmp(how, "graph")) {
		in_a_graph();
	} else if (!strcmp(how, "cpp")) {
		launch_spin(spin_in_cpp, first);
	} else if (!strcmp(how, "value")) {
		OK(cuStreamWaitValue32(first, device_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
		launch_on(add, first);
	} else if (!strcmp(how, "abort") || !strcmp(how, "segv") || !strcmp(how, "exit") ||
		   !strcmp(how, "release") || !strcmp(how, "reset") || !strcmp(how, "dump")) {
		launch_spin(spin, first);
	} else {
		launch_on(add, second);
		launch_spin(spin, first);
		launch_on(add, first);
		launch_on(add, first);
	}
	hangs();
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "segv"))
		*(volatile int *)NULL = 0;
	if (!strcmp(how, "exit"))
		return 0;
	wait_by(how, device);
	OK(strcmp(how, "streams") ? cuStreamSynchronize(strcmp(how, "behind") ? first : second) : cuCtxSynchronize());
	printf("let go\n");
	return 3;
}
