"""A GPU program in Python on the driver API: weights that overflow, and become NaN a step later.

`python overflow.py` needs nothing but a libcuda.so.1. Recorded, its memory and steps have names.
"""

from __future__ import annotations

import ctypes

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry square(.param .u64 weights)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<2>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd1, [weights];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    mul.rn.f32 %f2, %f1, %f1;
    sub.rn.f32 %f3, %f2, %f1;
    st.global.f32 [%rd3], %f3;
    ret;
}
"""
COUNT = 64
STEPS = 9


def check(result: int) -> None:
    assert result == 0, f"CUDA error {result}"


def main() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    recorder = ctypes.CDLL(None)
    recorded = hasattr(recorder, "tt_epoch")
    context, module, kernel = (ctypes.c_void_p() for _ in range(3))
    weights, size = ctypes.c_uint64(), ctypes.c_size_t(4 * COUNT)
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"square"))
    check(cuda.cuMemAlloc_v2(ctypes.byref(weights), size))
    if recorded:
        recorder.tt_label(weights, b"weights")
        for layer in range(2):  # of which one is in either half
            begin, half = (
                ctypes.c_uint64(weights.value + 2 * COUNT * layer),
                ctypes.c_uint64(2 * COUNT),
            )
            recorder.tt_label_range(begin, half, b"layers.%d.weight" % layer, b"f32")
    values = (ctypes.c_float * COUNT)(*(1 + i / COUNT * 1.5 for i in range(COUNT)))
    check(cuda.cuMemcpyHtoD_v2(weights, values, size))
    places = (ctypes.c_void_p * 1)(ctypes.addressof(weights))
    for step in range(STEPS):
        if recorded:
            recorder.tt_epoch(None, f"step {step}".encode())
        check(cuda.cuLaunchKernel(kernel, 1, 1, 1, COUNT, 1, 1, 0, None, places, None))
    check(cuda.cuCtxSynchronize())


if __name__ == "__main__":
    main()
