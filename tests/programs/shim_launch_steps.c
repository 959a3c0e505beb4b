/*
 * How many instructions the calling thread takes for one call, counted one by one: the program
 * runs itself as a child under ptrace and lets it go step by step from one stop that the child asks
 * for to the next. What other threads do is not counted. Prints a line per call: its name, and
 * the least of several counts, less what stopping takes by itself.
 */
#include "program.h"

#include <limits.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES 5
#define WARM 600 /* so that what a thread does once, or once in many calls, is behind it */

static const char *const names[] = { "nothing", "launch", "launch_ex", "memset" };
#define CALLS (sizeof(names) / sizeof(names[0]))

static CUfunction function;
static CUstream stream;
static CUdeviceptr p;

static void make(size_t call)
{
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
		                      .blockDimZ = 1, .hStream = stream };
	unsigned value = 7;

	switch (call) {
	case 1:
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, PARAMS(&p, &value), NULL));
		break;
	case 2:
		OK(cuLaunchKernelEx(&config, function, PARAMS(&p, &value), NULL));
		break;
	case 3:
		OK(cuMemsetD32Async(p, value, 1, stream));
		break;
	}
}

static int child(void)
{
	CUmodule module;

	start();
	OK(cuModuleLoadData(&module, KERNELS));
	OK(cuModuleGetFunction(&function, module, "poke"));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&p, 4096));
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) {
		perror("ptrace");
		return 1;
	}
	for (size_t call = 0; call < CALLS; call++) {
		for (int i = 0; i < WARM; i++)
			make(call);
		for (int i = 0; i < TIMES; i++) {
			raise(SIGSTOP);
			make(call);
			raise(SIGSTOP);
		}
		OK(cuStreamSynchronize(stream));
	}
	return 0;
}

/* Waits for the child to stop; false at its end. */
static bool stopped(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP)
		return true;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return false;
	fprintf(stderr, "the child got to status %#x\n", (unsigned)status);
	exit(1);
}

static long count_steps(pid_t pid)
{
	for (long steps = 0;; steps++) {
		int status;

		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
			perror("single step");
			exit(1);
		}
		if (WSTOPSIG(status) == SIGSTOP)
			return steps;
	}
}

int main(void)
{
	long least[CALLS];
	pid_t pid = fork();

	if (pid == 0)
		return child();
	for (size_t call = 0; call < CALLS; call++) {
		least[call] = LONG_MAX;
		for (int i = 0; i < TIMES; i++) {
			if (!stopped(pid))
				return 1;
			long steps = count_steps(pid);

			least[call] = steps < least[call] ? steps : least[call];
			ptrace(PTRACE_CONT, pid, NULL, NULL);
		}
		if (call)
			printf("%s %ld\n", names[call], least[call] - least[0]);
	}
	return stopped(pid);
}
