/*
 * Code of the program: what nvcc registers for it at start, and launches.
 *
 * Invariant: an image is loaded when something of it is used first, into all contexts.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/runtime/runtime.h"

struct image {
	const void *wrapper;
	CUlibrary library; /* NULL: not loaded */
};

struct symbol {
	struct symbol *next;
	struct image *image;
	const void *host;
	const char *name;
	CUkernel kernel; /* NULL: not looked up */
	bool variable;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *symbols;

/* ---- what the program registers ---- */

EXPORT void **__cudaRegisterFatBinary(const void *wrapper);
EXPORT void **__cudaRegisterFatBinary(const void *wrapper)
{
	struct image *image = calloc(1, sizeof *image);

	if (!image)
		abort();
	image->wrapper = wrapper;
	return (void **)image;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle);
EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

/* The process ends, or a library of the program is closed. */
EXPORT void __cudaUnregisterFatBinary(void **handle);
EXPORT void __cudaUnregisterFatBinary(void **handle)
{
	struct image *image = (struct image *)handle;

	pthread_mutex_lock(&lock);
	for (struct symbol **at = &symbols; *at;) {
		struct symbol *s = *at;
		if (s->image != image) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s);
	}
	pthread_mutex_unlock(&lock);
	if (image->library)
		cuLibraryUnload(image->library);
	free(image);
}

static struct symbol *add(void **handle, const void *host, const char *name)
{
	struct symbol *s = calloc(1, sizeof *s);

	if (!s)
		abort();
	s->image = (struct image *)handle;
	s->host = host;
	s->name = name;
	pthread_mutex_lock(&lock);
	s->next = symbols;
	symbols = s;
	pthread_mutex_unlock(&lock);
	return s;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *function, const char *name, int limit, void *tid,
				   void *bid, void *block, void *grid, int *warp);
EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *function, const char *name, int limit, void *tid,
				   void *bid, void *block, void *grid, int *warp)
{
	(void)function, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
	add(handle, host, name);
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t size,
			      int constant, int global);
EXPORT void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t size,
			      int constant, int global)
{
	(void)address, (void)external, (void)size, (void)constant, (void)global;
	add(handle, host, name)->variable = true;
}

/* ---- what a host address stands for ---- */

static CUresult loaded(struct image *image)
{
	return image->library ? CUDA_SUCCESS : cuLibraryLoadData(&image->library, image->wrapper, NULL, NULL, 0, NULL, NULL, 0);
}

static struct symbol *find(const void *host, bool variable)
{
	struct symbol *s = symbols;

	while (s && (s->host != host || s->variable != variable))
		s = s->next;
	return s;
}

int kernel_of(const void *host, CUkernel *kernel)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	struct symbol *s = find(host, false);
	if (s && !s->kernel && !(r = loaded(s->image)))
		r = cuLibraryGetKernel(&s->kernel, s->image->library, s->name);
	*kernel = s ? s->kernel : NULL;
	pthread_mutex_unlock(&lock);
	return s ? (int)r : CUDA_INVALID_DEVICE_FUNCTION;
}

int variable_of(const void *host, CUdeviceptr *address, size_t *size)
{
	CUresult r = CUDA_SUCCESS;
	size_t unused;

	pthread_mutex_lock(&lock);
	struct symbol *s = find(host, true);
	if (s && !(r = loaded(s->image)))
		r = cuLibraryGetGlobal(address, size ? size : &unused, s->image->library, s->name);
	pthread_mutex_unlock(&lock);
	return s ? (int)r : CUDA_INVALID_SYMBOL;
}

/* ---- launches ---- */

static __thread struct configuration {
	struct dim3 grid, block;
	size_t shared;
	CUstream stream;
} pushed;

EXPORT unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, CUstream stream);
EXPORT unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, CUstream stream)
{
	pushed = (struct configuration){grid, block, shared, stream};
	return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, CUstream *stream);
EXPORT cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, CUstream *stream)
{
	*grid = pushed.grid;
	*block = pushed.block;
	*shared = pushed.shared;
	*stream = pushed.stream;
	return 0;
}

EXPORT char __cudaInitModule(void **handle);
EXPORT char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

CALL(__cudaGetKernel, (CUkernel * kernel, const void *host), kernel_of(host, kernel))

static int launch(CUkernel kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, CUstream stream)
{
	CUresult r = cuLaunchKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
				    stream, arguments, NULL);
	bool shape = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z ||
		     (uint64_t)block.x * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535;

	return r == CUDA_ERROR_INVALID_VALUE && shape ? CUDA_INVALID_CONFIGURATION : (int)r;
}

static int launch_host(const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, CUstream stream)
{
	CUkernel kernel;
	int r = kernel_of(host, &kernel);

	return r ? r : launch(kernel, grid, block, arguments, shared, stream);
}

CALL(__cudaLaunchKernel,
     (CUkernel kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, CUstream stream),
     launch(kernel, grid, block, arguments, shared, stream))
CALL(cudaLaunchKernel,
     (const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, CUstream stream),
     launch_host(host, grid, block, arguments, shared, stream))

static int launch_together(const void *host, struct dim3 g, struct dim3 b, void **arguments, size_t shared, CUstream stream)
{
	CUkernel kernel;
	int r = kernel_of(host, &kernel);

	return r ? r
		 : (int)cuLaunchCooperativeKernel((CUfunction)kernel, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream,
						  arguments);
}
CALL(cudaLaunchCooperativeKernel,
     (const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, CUstream stream),
     launch_together(host, grid, block, arguments, shared, stream))

/* As cudaLaunchConfig_t. */
struct launch_config {
	struct dim3 grid, block;
	size_t shared;
	CUstream stream;
	CUlaunchAttribute *attributes;
	unsigned count;
};

static int launch_with(const struct launch_config *c, const void *host, void **arguments)
{
	CUkernel kernel;
	int r = kernel_of(host, &kernel);
	CUlaunchConfig config = {c->grid.x,  c->grid.y,           c->grid.z, c->block.x,    c->block.y,
				 c->block.z, (unsigned)c->shared, c->stream, c->attributes, c->count};

	return r ? r : (int)cuLaunchKernelEx(&config, (CUfunction)kernel, arguments, NULL);
}
CALL(cudaLaunchKernelExC, (const struct launch_config *config, const void *host, void **arguments),
     launch_with(config, host, arguments))
CALL(cudaLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), cuLaunchHostFunc(stream, function, data))

/* ---- kernels ---- */

/* As cudaFuncAttributes; the rest of it is not filled. */
struct attributes {
	size_t shared, constant, local;
	int threads, registers, ptx, binary, cache, dynamic_shared;
};

static int function_of(const void *host, CUfunction *function)
{
	CUkernel kernel;
	int r = kernel_of(host, &kernel);

	return r ? r : (int)cuKernelGetFunction(function, kernel);
}

static int attributes_of(struct attributes *a, const void *host)
{
	CUfunction f;
	int r = function_of(host, &f), shared = 0, local = 0;

	memset(a, 0, sizeof *a);
	if (r || (r = (int)cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f)) ||
	    (r = (int)cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f)) ||
	    (r = (int)cuFuncGetAttribute(&a->threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f)) ||
	    (r = (int)cuFuncGetAttribute(&a->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f)) ||
	    (r = (int)cuFuncGetAttribute(&a->ptx, CU_FUNC_ATTRIBUTE_PTX_VERSION, f)) ||
	    (r = (int)cuFuncGetAttribute(&a->binary, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f)))
		return r;
	a->shared = (size_t)shared;
	a->local = (size_t)local;
	return (int)cuFuncGetAttribute(&a->dynamic_shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f);
}
CALL(cudaFuncGetAttributes, (struct attributes * a, const void *host), attributes_of(a, host))

static int set_attribute(const void *host, int attribute, int value)
{
	CUfunction f;
	int r = function_of(host, &f);

	return r ? r : (int)cuFuncSetAttribute(f, (CUfunction_attribute)attribute, value);
}
CALL(cudaFuncSetAttribute, (const void *host, int attribute, int value), set_attribute(host, attribute, value))

static int occupancy(int *blocks, const void *host, int threads, size_t shared, unsigned flags)
{
	CUfunction f;
	int r = function_of(host, &f);

	return r ? r : (int)cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, flags);
}
CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *host, int threads, size_t shared),
     occupancy(blocks, host, threads, shared, 0))
CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
     (int *blocks, const void *host, int threads, size_t shared, unsigned flags),
     occupancy(blocks, host, threads, shared, flags))
