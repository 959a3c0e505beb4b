/* Particles in one dimension. */
extern "C" __global__ void push(float *velocity, const float *force, const float *mass, int n, float dt)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		velocity[i] += force[i] * mass[i] * dt;
}

extern "C" __global__ void advance(float *position, const float *velocity, int n, float dt)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		position[i] += velocity[i] * dt;
}

/* The mistake: no check against n, so the last block writes past the end of the positions. */
extern "C" __global__ void advance_unchecked(float *position, const float *velocity, int n, float dt)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	(void)n;
	position[i] += velocity[i] * dt;
}
