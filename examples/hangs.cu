/* Kernels that end, or, started in another way, never do. */
/* Threads take a lock in turn, to count. */
extern "C" __global__ void count_locked(unsigned *lock, unsigned *sum)
{
	unsigned taken = 1;

	if (threadIdx.x % 32)
		return;
	while (taken)
		asm volatile("atom.global.cas.b32 %0, [%1], 0, 1;" : "=r"(taken) : "l"(lock) : "memory");
	*(volatile unsigned *)sum += 1;
	__threadfence();
	*(volatile unsigned *)lock = 0;
}

/* Two warps meet, if the second one comes. */
extern "C" __global__ void meet(unsigned *out, unsigned threads)
{
	if (threadIdx.x >= threads)
		return;
	asm volatile("bar.sync 1, 64;" ::: "memory");
	out[threadIdx.x] = threadIdx.x;
}

/* The barrier expects two arrivals. */
extern "C" __global__ void pass_on(unsigned *out, unsigned arrivals)
{
	__shared__ unsigned long long barrier;
	unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), done = 0;

	if (threadIdx.x == 0)
		asm volatile("mbarrier.init.shared.b64 [%0], 2;" ::"r"(at) : "memory");
	__syncthreads();
	if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < arrivals)
		asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(at) : "memory");
	while (!done)
		asm volatile("{\n\t.reg .pred p;\n\t"
			     "mbarrier.test_wait.parity.shared.b64 p, [%1], 0;\n\t"
			     "selp.b32 %0, 1, 0, p;\n\t}"
			     : "=r"(done)
			     : "r"(at)
			     : "memory");
	out[threadIdx.x] = threadIdx.x;
}

/* Block 0 fills a slot when it is free; block 1 takes from it when it is full, and frees it. */
extern "C" __global__ void exchange(volatile unsigned *slot, unsigned *out, unsigned rounds)
{
	volatile unsigned *free_slots = &slot[0], *full_slots = &slot[1], *value = &slot[2];

	if (threadIdx.x)
		return;
	for (unsigned i = 0; i < rounds; i++) {
		if (blockIdx.x == 0) {
			while (*free_slots == 0)
				;
			*free_slots = 0;
			*value = i;
			__threadfence();
			*full_slots = 1;
		} else {
			while (*full_slots == 0)
				;
			*full_slots = 0;
			out[0] += *value;
			__threadfence();
			*free_slots = 1;
		}
	}
}

/* Long, and correct. */
extern "C" __global__ void compute(unsigned *out, unsigned turns)
{
	unsigned x = threadIdx.x;

	for (unsigned i = 0; i < turns; i++)
		x = x * 1664525u + 1013904223u + i;
	out[threadIdx.x] = x;
}
