/*
 * Trains a two-layer perceptron by gradient descent to imitate a random one of the same shape,
 * with hand-written kernels; prints the loss of every step. --size is the width of the hidden
 * layer. --perturb STEP changes one weight just before that step.
 */
#include "common.h"

enum { BATCH = 32, INPUTS = 16, OUTPUTS = 4 };

EMBED(ptx, "training.ptx");

static CUdeviceptr zeros(long count)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, (size_t)count * sizeof(float)));
	CHECK(cuMemsetD32(p, 0, (size_t)count));
	return p;
}

/* Random values between -scale and scale. */
static CUdeviceptr weights(long count, long seed, float scale)
{
	float *values = random_floats(count, seed);
	CUdeviceptr p = zeros(count);

	for (long i = 0; i < count; i++)
		values[i] = (2.0f * values[i] - 1.0f) * scale;
	CHECK(cuMemcpyHtoD(p, values, (size_t)count * sizeof(float)));
	free(values);
	return p;
}

/* c (rows × columns) by one of the three products; see training.cu. */
static void multiply(CUfunction f, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int rows, int inner, int columns)
{
	launch(f, rows * columns, NULL, PARAMS(&a, &b, &c, &rows, &inner, &columns));
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv,
		(struct options){.size = 32, .steps = 20, .seed = 1, .can_perturb = true});
	int hidden = (int)o.size, first = INPUTS * hidden, second = hidden * OUTPUTS;
	int outputs = BATCH * OUTPUTS, activations = BATCH * hidden;
	float rate = 0.25f, scale = 1.0f / (BATCH * OUTPUTS), loss;
	CUmodule module;

	start_device();
	CHECK(cuModuleLoadData(&module, ptx));
	CUfunction matmul = kernel(module, "matmul"), matmul_at = kernel(module, "matmul_at");
	CUfunction matmul_bt = kernel(module, "matmul_bt"), relu = kernel(module, "relu");
	CUfunction relu_gradient = kernel(module, "relu_gradient"), update = kernel(module, "update");
	CUfunction squared_error = kernel(module, "squared_error");

	CUdeviceptr w1 = weights(first, o.seed, 0.25f), w2 = weights(second, o.seed + 1, 0.25f);
	CUdeviceptr x = weights(BATCH * INPUTS, o.seed + 2, 1.0f);
	CUdeviceptr h = zeros(activations), y = zeros(outputs), target = zeros(outputs);
	CUdeviceptr dh = zeros(activations), dy = zeros(outputs), dw1 = zeros(first), dw2 = zeros(second);
	CUdeviceptr device_loss = zeros(1);

	/* What to learn: the outputs of another network. */
	CUdeviceptr v1 = weights(first, o.seed + 3, 0.5f), v2 = weights(second, o.seed + 4, 0.5f);
	multiply(matmul, x, v1, h, BATCH, INPUTS, hidden);
	launch(relu, activations, NULL, PARAMS(&h, &activations));
	multiply(matmul, h, v2, target, BATCH, hidden, OUTPUTS);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFree(v1));
	CHECK(cuMemFree(v2));

	for (long step = 0; step < o.steps; step++) {
		if (step == o.perturb) {
			float changed = 0.125f;
			CHECK(cuMemcpyHtoD(w1, &changed, sizeof(changed)));
		}
		multiply(matmul, x, w1, h, BATCH, INPUTS, hidden);
		launch(relu, activations, NULL, PARAMS(&h, &activations));
		multiply(matmul, h, w2, y, BATCH, hidden, OUTPUTS);

		launch(squared_error, 1, NULL, PARAMS(&y, &target, &dy, &device_loss, &outputs, &scale));
		multiply(matmul_at, h, dy, dw2, hidden, BATCH, OUTPUTS);
		multiply(matmul_bt, dy, w2, dh, BATCH, OUTPUTS, hidden);
		launch(relu_gradient, activations, NULL, PARAMS(&h, &dh, &activations));
		multiply(matmul_at, x, dh, dw1, INPUTS, BATCH, hidden);

		launch(update, first, NULL, PARAMS(&w1, &dw1, &first, &rate));
		launch(update, second, NULL, PARAMS(&w2, &dw2, &second, &rate));
		CHECK(cuCtxSynchronize());
		CHECK(cuMemcpyDtoH(&loss, device_loss, sizeof(loss)));
		printf("step %ld: loss %.9g\n", step, (double)loss);
	}

	CUdeviceptr all[] = {w1, w2, x, h, y, target, dh, dy, dw1, dw2, device_loss};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		CHECK(cuMemFree(all[i]));
	CHECK(cuModuleUnload(module));
	CHECK(cuDevicePrimaryCtxRelease(0));
	return 0;
}
