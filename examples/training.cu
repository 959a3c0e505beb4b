/*
 * The kernels of a two-layer perceptron. Matrices are row-major; every sum runs in one thread in
 * a fixed order, so that results are the same on every machine.
 */

/* c = a · b, with a (rows × inner) and b (inner × columns). */
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int rows, int inner, int columns)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0.0f;

	if (i >= rows * columns)
		return;
	for (int k = 0; k < inner; k++)
		sum += a[i / columns * inner + k] * b[k * columns + i % columns];
	c[i] = sum;
}

/* c = aᵀ · b, with a (inner × rows) and b (inner × columns): the gradient of a weight matrix. */
extern "C" __global__ void matmul_at(const float *a, const float *b, float *c, int rows, int inner, int columns)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0.0f;

	if (i >= rows * columns)
		return;
	for (int k = 0; k < inner; k++)
		sum += a[k * rows + i / columns] * b[k * columns + i % columns];
	c[i] = sum;
}

/* c = a · bᵀ, with a (rows × inner) and b (columns × inner): the gradient of a layer's input. */
extern "C" __global__ void matmul_bt(const float *a, const float *b, float *c, int rows, int inner, int columns)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0.0f;

	if (i >= rows * columns)
		return;
	for (int k = 0; k < inner; k++)
		sum += a[i / columns * inner + k] * b[i % columns * inner + k];
	c[i] = sum;
}

extern "C" __global__ void relu(float *x, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

/* Passes a gradient on where the activation was positive. */
extern "C" __global__ void relu_gradient(const float *activation, float *gradient, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n && activation[i] <= 0.0f)
		gradient[i] = 0.0f;
}

/* The gradient of the mean squared error, and its value; one block, which loops over all n. */
extern "C" __global__ void squared_error(const float *output, const float *target, float *gradient, float *loss,
					 int n, float scale)
{
	__shared__ float part[256];
	int t = threadIdx.x;
	float sum = 0.0f;

	for (int i = t; i < n; i += 256) {
		float error = output[i] - target[i];
		gradient[i] = 2.0f * scale * error;
		sum += error * error;
	}
	part[t] = sum;
	__syncthreads();
	for (int half = 128; half > 0; half /= 2) {
		if (t < half)
			part[t] += part[t + half];
		__syncthreads();
	}
	if (t == 0)
		*loss = part[0] * scale;
}

/* One step of gradient descent. */
extern "C" __global__ void update(float *weight, const float *gradient, int n, float rate)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		weight[i] -= rate * gradient[i];
}
