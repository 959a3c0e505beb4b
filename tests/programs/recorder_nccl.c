/*
 * Does what PyTorch and NCCL do in a rank, as the driver and NVTX see it. RANK and WORLD_SIZE say which. Arguments: the
 * number of steps, and a step and a rank whose all-reduce leaves a wrong element (-1: none).
 *
 * A communicator's range ends with a payload. Each step has a kernel of the program, an all-reduce, whose range has a
 * registered message and a payload, and a kernel that changes the result in place.
 */
#include "nvtx.h"
#include "program.h"

#define ELEMENTS (40u << 10) /* three blocks */
#define OWN (1 << 16)        /* bytes of NCCL's memory, which differs between ranks */

NVTX_MODULE(nccl, 16, 16)

static const char REDUCE[] = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

/* The sum over all ranks is known without them: it depends on the element and the step. */
static const char MODULE[] = PTX_HEADER
	PTX_BEGIN("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
		  ".param .u64 out, .param .u32 n, .param .u32 step, .param .u32 wrong", "n")
	PTX_ELEMENT("out")
	"ld.param.u32 %r3, [step];\nmad.lo.u32 %r4, %r1, 31, %r3;\n"
	"ld.param.u32 %r5, [wrong];\nsetp.ne.u32 %p1, %r1, %r5;\n@%p1 bra RIGHT;\nxor.b32 %r4, %r4, 1;\n"
	"RIGHT:\nst.global.u32 [%rd1], %r4;\n" PTX_END
	PTX_BEGIN("scale", ".param .u64 out, .param .u32 n, .param .u32 rank", "n")
	PTX_ELEMENT("out")
	"ld.param.u32 %r3, [rank];\nld.global.u32 %r4, [%rd1];\nmad.lo.u32 %r4, %r4, 3, %r3;\nst.global.u32 [%rd1], %r4;\n"
	PTX_END;

struct init {
	uint64_t communicator;
	int ranks, rank, device;
};
struct reduce {
	uint64_t communicator;
	size_t bytes;
	int operation;
};

static struct nvtx_module *nccl_module;
static void *domain;

static void *registered(const char *text)
{
	return NVTX_CALL(nccl_module, CORE2, REGISTER_A, void *(*)(void *, const char *), (domain, text), NULL);
}

static void push(void *in, struct nvtx_event *e)
{
	NVTX_CALL(nccl_module, CORE2, DOMAIN_PUSH, int (*)(void *, struct nvtx_event *), (in, e), 0);
}

static void pop(void *in)
{
	NVTX_CALL(nccl_module, CORE2, DOMAIN_POP, int (*)(void *), (in), 0);
}

static struct nvtx_event event_of(int type, const void *message)
{
	struct nvtx_event e = {.version = 3, .size = sizeof(e), .message_type = type};

	e.message.ascii = message;
	return e;
}

static void init(int rank, int ranks)
{
	struct nvtx_event e = event_of(3, registered("ncclCommInitRankConfig"));
	const struct init members = {0xabcdef, ranks, rank, 0};
	const struct nvtx_payload payload = {(1 << 24) + 11, sizeof(members), &members};

	push(domain, &e);
	OK(cuMemsetD8(allocate(OWN), (unsigned char)rank, OWN));
	NVTX_EXTENSION_CALL(nccl_module, POP_PAYLOAD, int (*)(void *, const struct nvtx_payload *, size_t),
			    (domain, &payload, 1), 0);
}

static void all_reduce(CUfunction kernel, CUdeviceptr out, unsigned step, unsigned wrong)
{
	struct nvtx_event e = event_of(3, registered("ncclAllReduce"));
	const struct reduce members = {0xabcdef, ELEMENTS * 4, 0};
	const struct nvtx_payload payload = {(1 << 24) + 5, sizeof(members), &members};
	unsigned n = ELEMENTS;

	e.payload_type = (int32_t)0xDFBD0009;
	e.reserved = 1;
	e.payload.u64 = (uintptr_t)&payload;
	push(domain, &e);
	OK(launch(kernel, n, NULL, PARAMS(&out, &n, &step, &wrong)));
	pop(domain);
}

int main(int argc, char **argv)
{
	int rank = atoi(getenv("RANK")), ranks = atoi(getenv("WORLD_SIZE")), steps = atoi(argv[1]);
	int wrong_step = argc > 3 ? atoi(argv[2]) : -1, wrong_rank = argc > 3 ? atoi(argv[3]) : -1;
	unsigned n = ELEMENTS;
	CUmodule module;

	start();
	CUdeviceptr values = allocate(ELEMENTS * 4);
	struct work work = begin_work();
	OK(cuModuleLoadData(&module, MODULE));
	CUfunction reduce = get_kernel(module, REDUCE), scale = get_kernel(module, "scale");
	nccl_module = use_nccl();
	domain = NVTX_CALL(nccl_module, CORE2, CREATE_A, void *(*)(const char *), ("NCCL"), NULL);
	init(rank, ranks);
	for (int step = 0; step < steps; step++) {
		char name[32];
		snprintf(name, sizeof(name), "step %d", step);
		struct nvtx_event e = event_of(1, name);
		bool wrong = step == wrong_step && rank == wrong_rank;
		push(NULL, &e);
		do_step(&work);
		all_reduce(reduce, values, (unsigned)step, wrong ? 5 : ELEMENTS);
		OK(launch(scale, n, NULL, PARAMS(&values, &n, &rank)));
		OK(cuCtxSynchronize());
		pop(NULL);
	}
	return 0;
}
