/*
 * Threads count in their own memory with sets, and are delayed at times where they read the processor's
 * time-stamp counter, while the first thread waits for its stream repeatedly. Exit status 77 if the system
 * cannot delay them. x86-64 only.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>

enum { THREADS = 3, ROUNDS = 900, WORDS = 64 };

static CUcontext context;
static CUdeviceptr counters[THREADS];
static atomic_int counting = THREADS;
static atomic_uint reads;
static atomic_bool trapped;

/* What the instruction would have done, now and then a moment later. */
static void read_counter(int signal, siginfo_t *info, void *interrupted)
{
	greg_t *registers = ((ucontext_t *)interrupted)->uc_mcontext.gregs;
	const unsigned char *code = (const unsigned char *)registers[REG_RIP];
	bool ordered = code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9; /* rdtscp */

	(void)info;
	if (!ordered && !(code[0] == 0x0f && code[1] == 0x31)) {
		sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
		return;
	}
	prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
	unsigned long long ticks = __builtin_ia32_rdtsc();
	if (atomic_fetch_add(&reads, 1) % 13 == 0)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	registers[REG_RAX] = (greg_t)(ticks & 0xffffffff);
	registers[REG_RDX] = (greg_t)(ticks >> 32);
	if (ordered)
		registers[REG_RCX] = 0;
	registers[REG_RIP] += ordered ? 3 : 2;
}

static void *count(void *argument)
{
	unsigned number = *(unsigned *)argument;
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD32Async(counters[number], 0, WORDS, stream)); /* threads of the driver's would inherit it */
	OK(cuStreamSynchronize(stream));
	trapped = !prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	for (unsigned i = 0; i < ROUNDS; i++)
		OK(cuMemsetD32Async(counters[number], i + 1, WORDS, stream));
	prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
	OK(cuStreamSynchronize(stream));
	atomic_fetch_sub(&counting, 1);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];
	CUstream stream;

	start();
	sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = read_counter, .sa_flags = SA_SIGINFO}, NULL);
	OK(cuCtxGetCurrent(&context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < THREADS; i++)
		counters[i] = allocate((WORDS + i) * 4);
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, count, &numbers[i]);
	}
	while (atomic_load(&counting))
		OK(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		print_words("counted", counters[i], 1);
	}
	return atomic_load(&trapped) ? 0 : 77;
}
