"""Says how many bytes of the GPU's memory are free, once for each line it is given."""

from __future__ import annotations

import ctypes
import sys
from typing import Any


def check(result: int, call: str) -> None:
    if result:
        raise SystemExit(f"{call}: CUDA error {result}")


def main() -> None:
    cuda: Any = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    for _ in sys.stdin:
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        print(free.value, flush=True)


if __name__ == "__main__":
    main()
