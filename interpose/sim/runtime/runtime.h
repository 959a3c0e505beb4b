/*
 * A CUDA runtime for the simulator: the runtime API by calls of the driver API.
 *
 * Invariant: only documented calls of the driver are made, so that the recorder sees a program on the runtime as one
 * on the driver. A call that is missing has no symbol: the loader names it when a program makes it.
 */
#ifndef TT_SIM_RUNTIME_H
#define TT_SIM_RUNTIME_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "util/compiler.h"

/* Results have the driver's numbers, and some of their own. */
typedef int cudaError_t;
#define CUDA_INVALID_CONFIGURATION 9
#define CUDA_INVALID_SYMBOL 13
#define CUDA_INVALID_DEVICE_FUNCTION 98

struct dim3 {
	unsigned x, y, z;
};

enum direction { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

/* Makes the thread's device ready: its primary context becomes current, unless the program has made another. */
CUresult runtime_ready(void);
/* The result for the program, which cudaGetLastError returns later. */
cudaError_t runtime_result(int result);

/* What a host address stands for; a result of the runtime's own if it is unknown. */
int kernel_of(const void *host, CUkernel *kernel);
int variable_of(const void *host, CUdeviceptr *address, size_t *size);

#define CALL(name, params, ...) \
	EXPORT cudaError_t name params; \
	EXPORT cudaError_t name params \
	{ \
		int ready_ = (int)runtime_ready(); \
		return runtime_result(ready_ ? ready_ : (int)(__VA_ARGS__)); \
	}

#endif
