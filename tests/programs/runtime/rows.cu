// 5 23
// Pitched memory and copies of rows.
#include "check.h"

__global__ void bump(char *p, size_t pitch) { ((int *)(p + blockIdx.x * pitch))[threadIdx.x] += 5; }

int main()
{
	int h[3][7], back[3][7];
	size_t pitch;
	char *p;
	for (int i = 0; i < 21; i++)
		h[i / 7][i % 7] = i - (i > 13 ? 2 : 0);
	OK(cudaMallocPitch(&p, &pitch, sizeof *h, 3));
	OK(cudaMemcpy2D(p, pitch, h, sizeof *h, sizeof *h, 3, cudaMemcpyHostToDevice));
	bump<<<3, 7>>>(p, pitch);
	OK(cudaMemcpy2D(back, sizeof *back, p, pitch, sizeof *back, 3, cudaMemcpyDeviceToHost));
	printf("%d %d\n", back[0][0], back[2][6]);
	OK(cudaFree(p));
}
