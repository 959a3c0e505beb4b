/*
 * The program writes to page-locked memory after it called for a copy from there. The argument says what happens
 * in between, if anything.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "program.h"

enum { N = 16384, LARGE = 8 << 20, LOOPS = 100, THREADS = 4 };

static CUcontext context;
static CUstream one, other;
static CUevent event;
static CUdeviceptr to;
static CUfunction fill;
static unsigned *host;
static _Atomic unsigned *flag;
static const char *how;

static bool is(const char *word)
{
	return !strcmp(word, how);
}

static void copies(size_t bytes)
{
	OK(cuMemcpyHtoDAsync(to, host, bytes, one));
}

static void CUDA_CB set_flag(void *unused)
{
	(void)unused;
	*flag = 1;
}

static void CUDA_CB fill_host(void *unused)
{
	(void)unused;
	memset(host, 7, N * 4);
}

/* Between the copy and the write. */
static void waits(void)
{
	if (is("stream-sync"))
		OK(cuStreamSynchronize(one));
	else if (is("context-sync"))
		OK(cuCtxSynchronize());
	else if (is("other-stream-sync"))
		OK(cuStreamSynchronize(other));
	else if (is("event-sync") || is("event-before"))
		OK(cuEventSynchronize(event));
	else if (is("event-query"))
		while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
			;
	else if (is("stream-query"))
		while (cuStreamQuery(one) == CUDA_ERROR_NOT_READY)
			;
	else if (is("stream-in-between")) {
		OK(cuStreamWaitEvent(other, event, 0));
		OK(cuStreamSynchronize(other));
	} else if (is("function-tells")) {
		OK(cuLaunchHostFunc(one, set_flag, NULL));
		while (!*flag)
			;
	} else if (is("value-tells")) {
		OK(cuStreamWriteValue32(one, (uintptr_t)flag, 1, 0));
		while (!*flag)
			;
	}
}

/* Work of the device that writes to the host's memory before the copy reads it. */
static void device_writes(void)
{
	unsigned n = N, value = 3;
	CUdeviceptr p = (uintptr_t)host;

	if (is("download"))
		OK(cuMemcpyDtoHAsync(host, to, N * 4, one));
	else if (is("kernel"))
		OK(launch(fill, n, one, PARAMS(&p, &n, &value)));
	else if (is("function"))
		OK(cuLaunchHostFunc(one, fill_host, NULL));
	else if (is("wait-for-value"))
		OK(cuStreamWaitValue32(one, (uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void once(void)
{
	device_writes();
	if (is("event-before"))
		OK(cuEventRecord(event, one));
	copies(N * 4);
	if (!is("event-before"))
		OK(cuEventRecord(event, one));
	waits();
	if (is("download") || is("kernel") || is("function")) {
		while (!*(volatile unsigned *)host)
			;
		OK(cuStreamSynchronize(other));
	} else {
		memset(host, 1, N * 4);
	}
	if (is("wait-for-value"))
		*flag = 1;
	OK(cuStreamSynchronize(one));
}

static void in_loop(void)
{
	for (int i = 0; i < LOOPS; i++) {
		memset(host, i, N * 4);
		copies(N * 4);
	}
	OK(cuCtxSynchronize());
}

static void free_and_wait(void)
{
	OK(cuMemFreeHost(host));
	OK(cuStreamSynchronize(one));
	printf("done\n");
}

/* Memory that is gone when the recorder looks at it again. */
static void gone(void)
{
	void *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	OK(cuMemHostRegister(memory, LARGE, 0));
	OK(cuMemcpyHtoDAsync(to, memory, LARGE, one));
	copies(N * 4);
	OK(cuEventRecord(event, one));
	OK(cuEventSynchronize(event));
	munmap(memory, LARGE);
	OK(cuMemFreeHost(host));
	OK(cuCtxSynchronize());
}

/* As in a container that forbids it. */
static void forbid_reads_of_processes(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		printf("no filter: %m\n");
}

/* Waits for its own copies, and frees memory while other threads wait. */
static void *thread(void *unused)
{
	CUevent copied;
	CUstream stream;
	void *memory;

	OK(cuCtxSetCurrent(context));
	CUdeviceptr own = allocate(N * 4);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < LOOPS; i++) {
		OK(cuMemAllocHost(&memory, N * 4));
		memset(memory, i, N * 4);
		OK(cuMemcpyHtoDAsync(own, memory, N * 4, stream));
		OK(cuEventRecord(copied, stream));
		OK(i % 2 ? cuEventSynchronize(copied) : cuStreamSynchronize(stream));
		memset(memory, ~i, N * 4);
		OK(cuMemFreeHost(memory));
	}
	return unused;
}

static void in_threads(void)
{
	pthread_t threads[THREADS];

	OK(cuCtxGetCurrent(&context));
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	how = argc > 1 ? argv[1] : "nothing";
	size_t bytes = is("large") ? LARGE : N * 4;
	void *memory;

	if (is("at-exit"))
		atexit(free_and_wait); /* runs last */
	start();
	fill = get_kernel(load_kernels(), "fill");
	to = allocate(LARGE);
	OK(cuMemsetD8(to, 5, LARGE));
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuMemAllocHost(&memory, 4096));
	flag = memory;
	*flag = 0;
	host = aligned_alloc(4096, LARGE);
	memset(host, 0, LARGE);
	if (is("forbidden"))
		forbid_reads_of_processes();
	if (is("registered") || is("forbidden"))
		OK(cuMemHostRegister(host, LARGE, 0));
	else if (!is("pageable"))
		OK(cuMemAllocHost((void **)&host, LARGE));
	memset(host, 0, bytes);
	OK(cuCtxSynchronize());
	if (is("loop"))
		in_loop();
	else if (is("gone"))
		gone();
	else if (is("threads"))
		in_threads();
	else if (is("at-exit")) {
		copies(N * 4);
		OK(cuEventRecord(event, one));
		OK(cuEventSynchronize(event));
		return 0;
	}
	else if (is("large")) {
		copies(LARGE);
		memset(host, 1, LARGE);
		OK(cuCtxSynchronize());
	} else
		once();
	printf("done\n");
	return 0;
}
