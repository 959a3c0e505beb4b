/*
 * One process allocates memory. Another opens its handles, reads and writes. Both must then read the same.
 * Handles of freed memory, or of no allocation, cannot be opened.
 */
#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

enum { MEMORIES = 4 };
static const size_t sizes[MEMORIES] = {5000, 700, 3 << 20, 100};

struct message {
	CUipcMemHandle handles[MEMORIES], freed;
};

static void give(int to, const void *data, size_t size)
{
	if (write(to, data, size) != (ssize_t)size)
		exit(4);
}

static void take(int from, void *data, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = read(from, (char *)data + got, size - got);

		if (n <= 0)
			exit(5);
		got += (size_t)n;
	}
}

static void opens(int from, int to)
{
	struct message m;
	CUdeviceptr p[MEMORIES], again;

	take(from, &m, sizeof(m));
	start();
	for (unsigned i = 0; i < MEMORIES; i++) {
		SHOW(cuIpcOpenMemHandle(&p[i], m.handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		print_device("opened", p[i], sizes[i]);
		OK(cuMemsetD8(p[i] + sizes[i] / 2, (unsigned char)(i + 1), sizes[i] / 4));
		print_device("changed", p[i], sizes[i]);
	}
	SHOW(cuCtxSynchronize());
	SHOW(cuIpcOpenMemHandle(&again, m.freed, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	memset(&m.handles[0], 7, sizeof(m.handles[0]));
	SHOW(cuIpcOpenMemHandle(&again, m.handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	for (unsigned i = 0; i < MEMORIES; i++)
		SHOW(cuIpcCloseMemHandle(p[i]));
	SHOW(cuIpcCloseMemHandle(p[0]));
	fflush(stdout);
	give(to, "", 1);
	take(from, &m, 1);
}

static void allocates(int from, int to)
{
	struct message m = {0};
	CUdeviceptr p[MEMORIES], freed, ordered;
	char done;

	start();
	freed = allocate(1000);
	SHOW(cuIpcGetMemHandle(&m.freed, freed));
	OK(cuMemFree(freed));
	for (unsigned i = 0; i < MEMORIES; i++) {
		unsigned char *bytes = pattern(sizes[i], i);

		p[i] = allocate(sizes[i]);
		OK(cuMemcpyHtoD(p[i], bytes, sizes[i]));
		free(bytes);
		print_device("given", p[i], sizes[i]);
		SHOW(cuIpcGetMemHandle(&m.handles[i], p[i]));
	}
	OK(cuMemAllocAsync(&ordered, 1000, NULL));
	CUipcMemHandle none;
	SHOW(cuIpcGetMemHandle(&none, ordered));
	SHOW(cuIpcGetMemHandle(&none, freed + ((CUdeviceptr)1 << 38)));
	SHOW(cuCtxSynchronize());
	fflush(stdout);
	give(to, &m, sizeof(m));
	take(from, &done, 1);
	for (unsigned i = 0; i < MEMORIES; i++) {
		print_device("found", p[i], sizes[i]);
		SHOW(cuMemFree(p[i]));
	}
	give(to, "", 1);
}

int main(void)
{
	int down[2], up[2], status;

	if (pipe(down) || pipe(up))
		return 3;
	fflush(stdout);
	pid_t child = fork();
	close(child ? down[0] : down[1]);
	close(child ? up[1] : up[0]);
	if (!child) {
		opens(down[0], up[1]);
		return 0;
	}
	allocates(up[0], down[1]);
	waitpid(child, &status, 0);
	printf("the other ended with %d\n", status);
	return 0;
}
