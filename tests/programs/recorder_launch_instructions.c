/*
 * Counts the instructions of the calling thread for one call, without those of the driver: the program runs
 * itself as a child under ptrace and single-steps it from one stop to the next. The driver's instructions
 * depend on its other threads and on malloc's lists, so neither they nor other threads are counted. Prints
 * a line per call: its name and the median of several counts, less the cost of a stop.
 */
#include "program.h"

#include <elf.h>
#include <malloc.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES 3
#define WARM 600 /* so that what a thread does once, or once in many calls, is behind it */

static const char *const names[] = { "nothing", "launch", "launch_ex", "memset", "stream", "step" };
#define CALLS (sizeof(names) / sizeof(names[0]))

static CUfunction function;
static CUstream stream;
static CUdeviceptr p;

static void make(size_t call)
{
	CUstream another;
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
	case 4:
		OK(cuStreamCreate(&another, CU_STREAM_NON_BLOCKING));
		OK(cuStreamDestroy(another));
		break;
	case 5: /* that ends with a wait */
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, PARAMS(&p, &value), NULL));
		OK(cuStreamSynchronize(stream));
		break;
	}
}

static int child(void)
{
	CUmodule module;

	mallopt(M_MXFAST, 0); /* lists of free memory that the driver's calls may tidy up, for seconds under ptrace */
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

/* Where a thread is, and what it goes back to if it is at the start of a function. */
static void where(pid_t pid, unsigned long long *at, unsigned long long *back)
{
	struct user_regs_struct r;
	struct iovec into = { &r, sizeof(r) };

	if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &into)) {
		perror("registers");
		exit(1);
	}
#if defined(__x86_64__)
	*at = r.rip;
	*back = (unsigned long long)ptrace(PTRACE_PEEKDATA, pid, r.rsp, NULL);
#else
	*at = r.pc;
	*back = r.regs[30];
#endif
}

/* The driver's code, as the child has it. */
static void find_driver(pid_t pid, unsigned long long *begin, unsigned long long *end)
{
	char path[64], line[4096], access[8];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "r");
	*begin = *end = 0;
	while (maps && !*end && fgets(line, sizeof(line), maps))
		if (strstr(line, "/libcuda.so") && sscanf(line, "%llx-%llx %7s", begin, end, access) == 3 && access[2] != 'x')
			*end = 0;
	if (!*end) {
		fprintf(stderr, "the driver is not in %s\n", path);
		exit(1);
	}
	fclose(maps);
}

static long count_steps(pid_t pid)
{
	unsigned long long begin, end, at, back, until = 0; /* until: where the driver goes back to */
	long steps = 0;

	find_driver(pid, &begin, &end);
	for (;;) {
		int status;

		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
			perror("single step");
			exit(1);
		}
		if (WSTOPSIG(status) == SIGSTOP)
			return steps;
		where(pid, &at, &back);
		if (until && at != until)
			continue;
		until = at >= begin && at < end ? back : 0;
		steps += !until;
	}
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return x < y ? -1 : x > y;
}

int main(void)
{
	long counts[CALLS][TIMES];
	pid_t pid = fork();

	if (pid == 0)
		return child();
	for (size_t call = 0; call < CALLS; call++) {
		for (int i = 0; i < TIMES; i++) {
			if (!stopped(pid))
				return 1;
			counts[call][i] = count_steps(pid);
			ptrace(PTRACE_CONT, pid, NULL, NULL);
		}
		qsort(counts[call], TIMES, sizeof(long), compare);
		if (call)
			printf("%s %ld\n", names[call], counts[call][TIMES / 2] - counts[0][TIMES / 2]);
	}
	return stopped(pid);
}
