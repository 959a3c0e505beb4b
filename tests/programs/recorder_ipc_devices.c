/*
 * A process opens the handle of another process's memory on two devices, which write to it in turn. With
 * "fork" a thread opens it once while the owner is stopped; a child forked meanwhile opens a handle, too.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 5000

static CUcontext contexts[2];
static CUipcMemHandle handle;

static void transfer(ssize_t n, size_t size)
{
	if (n != (ssize_t)size)
		exit(4);
}

static void allocates(int from, int to, bool stops)
{
	char done;

	start();
	CUdeviceptr p = allocate(BYTES);
	OK(cuMemsetD8(p, 1, BYTES));
	OK(cuCtxSynchronize());
	OK(cuIpcGetMemHandle(&handle, p));
	transfer(write(to, &handle, sizeof(handle)), sizeof(handle));
	if (stops)
		raise(SIGSTOP);
	transfer(read(from, &done, 1), 1);
	print_device("found", p, BYTES);
	fflush(stdout);
}

static void opens_twice(void)
{
	CUdeviceptr p[2];

	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		SHOW(cuIpcOpenMemHandle(&p[i], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		SHOW(cuMemsetD8(p[i] + 1000 * (CUdeviceptr)i, (unsigned char)(i + 2), 500));
		SHOW(cuCtxSynchronize());
	}
	print_device("opened", p[1], BYTES);
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		SHOW(cuIpcCloseMemHandle(p[i]));
	}
}

static void *opens(void *unused)
{
	CUdeviceptr p;

	OK(cuCtxSetCurrent(contexts[0]));
	SHOW(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return unused;
}

static void forks(pid_t other)
{
	CUipcMemHandle none = handle;
	CUdeviceptr p;
	pthread_t thread;
	int status;

	memset((char *)&none + 8, 7, 24); /* of nobody */
	waitpid(other, &status, WUNTRACED);
	pthread_create(&thread, NULL, opens, NULL);
	usleep(100000); /* it waits for an answer by now */
	pid_t child = fork();
	if (!child) {
		alarm(20);
		_exit(cuIpcOpenMemHandle(&p, none, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ? 0 : 1);
	}
	waitpid(child, &status, 0);
	printf("the child ended with %d\n", status);
	kill(other, SIGCONT);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	bool with_fork = argc > 1 && !strcmp(argv[1], "fork");
	int down[2], up[2], status;

	if (pipe(down) || pipe(up))
		return 3;
	pid_t other = fork();
	if (!other) {
		allocates(up[0], down[1], with_fork);
		return 0;
	}
	transfer(read(down[0], &handle, sizeof(handle)), sizeof(handle));
	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		CUdeviceptr unused = allocate(100);
		OK(cuMemFree(unused));
	}
	if (with_fork)
		forks(other);
	else
		opens_twice();
	fflush(stdout);
	transfer(write(up[1], "", 1), 1);
	waitpid(other, &status, 0);
	printf("the other ended with %d\n", status);
	return 0;
}
