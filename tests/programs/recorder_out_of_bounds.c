/*
 * Does what its arguments say, one step each: recorder_out_of_bounds STEP... Slots of allocations count from 0.
 *
 *   a:BYTES  A:BYTES  M:BYTES    allocate; in the order of a stream; managed memory
 *   f:SLOT  F:SLOT               free; in the order of a stream
 *   w:SLOT:OFFSET:WORDS:VALUE    a kernel writes so many words to the offset, in any direction from the slot
 *   m:SLOT:OFFSET:BYTES:VALUE    a memset does
 *   c:SLOT:OFFSET:BYTES:FROM     a copy does, from the beginning of another slot
 *   s  S                         wait; for the stream alone
 *   p:SLOT:WORDS                 print words
 */
#include "program.h"

#define SLOTS 32768

static CUdeviceptr slots[SLOTS];
static unsigned count;

static void step(const char *text, CUfunction fill, CUstream stream)
{
	long long slot = 0, offset = 0, size = 0, value = 0;
	int given = sscanf(text + 1, ":%lld:%lld:%lld:%lld", &slot, &offset, &size, &value);
	CUdeviceptr at = given > 0 && slot < SLOTS ? slots[slot] + (CUdeviceptr)offset : 0;
	unsigned n = (unsigned)size, word = (unsigned)value;

	switch (*text) {
	case 'a':
		OK(cuMemAlloc(&slots[count++], (size_t)slot));
		break;
	case 'A':
		OK(cuMemAllocAsync(&slots[count++], (size_t)slot, stream));
		break;
	case 'M':
		OK(cuMemAllocManaged(&slots[count++], (size_t)slot, CU_MEM_ATTACH_GLOBAL));
		break;
	case 'f':
		OK(cuMemFree(slots[slot]));
		break;
	case 'F':
		OK(cuMemFreeAsync(slots[slot], stream));
		break;
	case 'w':
		OK(launch(fill, n, stream, PARAMS(&at, &n, &word)));
		break;
	case 'm':
		OK(cuMemsetD8Async(at, (unsigned char)value, (size_t)size, stream));
		break;
	case 'c':
		OK(cuMemcpyDtoDAsync(at, slots[value], (size_t)size, stream));
		break;
	case 's':
		OK(cuCtxSynchronize());
		break;
	case 'S':
		OK(cuStreamSynchronize(stream));
		break;
	case 'p':
		print_words("words", slots[slot], (unsigned)offset);
		break;
	}
}

int main(int argc, char **argv)
{
	CUstream stream;

	start();
	CUfunction fill = get_kernel(load_kernels(), "fill");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 1; i < argc && count < SLOTS; i++)
		step(argv[i], fill, stream);
	OK(cuCtxSynchronize());
	return 0;
}
