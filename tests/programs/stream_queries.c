/* Attributes and queries of streams. */
#include "program.h"

int main(void)
{
	CUstream plain, other;
	CUcontext current, of;
	CUstreamCaptureStatus capturing;
	unsigned flags;
	unsigned long long id, other_id;
	int low, high, priority;

	start();
	OK(cuCtxGetCurrent(&current));
	SHOW(cuStreamCreate(&plain, CU_STREAM_DEFAULT));
	SHOW(cuCtxGetStreamPriorityRange(&low, &high));
	printf("a range %d\n", low >= high);
	SHOW(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, high));
	SHOW(cuStreamGetPriority(other, &priority));
	printf("as asked %d\n", priority == high);
	SHOW(cuStreamGetFlags(plain, &flags));
	printf("flags %u\n", flags);
	SHOW(cuStreamGetFlags(other, &flags));
	printf("flags %u\n", flags);
	SHOW(cuStreamGetId(plain, &id));
	SHOW(cuStreamGetId(other, &other_id));
	printf("ids differ %d\n", id != other_id);
	SHOW(cuStreamGetCtx(other, &of));
	printf("its context %d\n", of == current);
	SHOW(cuStreamGetCtx(NULL, &of));
	printf("its context %d\n", of == current);
	SHOW(cuStreamIsCapturing(plain, &capturing));
	printf("capturing %d\n", (int)capturing);
	SHOW(cuStreamQuery(plain));
	SHOW(cuStreamQuery(NULL));
	SHOW(cuStreamSynchronize(NULL));
	SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	SHOW(cuStreamCreate(&other, 99));
	SHOW(cuStreamDestroy(plain));
	SHOW(cuStreamDestroy(NULL));
	return 0;
}
