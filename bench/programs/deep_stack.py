"""Launches of an empty kernel from within 40 Python functions. Prints the median time of a launch,
in nanoseconds, over batches with nothing waiting.

--profile: the same through torch.profiler, bare, with the GPU's activity and with stacks as well.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEPTH = 40
BATCH = 100

PTX = (Path(__file__).parent / "work.ptx").read_bytes()


def launcher(cuda: Any) -> Callable[[], None]:
    """Launches the kernel `nothing` once."""
    context, module, function = (ctypes.c_void_p() for _ in range(3))
    memory = ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"nothing") == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
    params = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    keep = (memory, params)

    def launch() -> None:
        assert keep
        assert cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, params, None) == 0

    return launch


def deep(depth: int, launch: Callable[[], None], times: list[int], cuda: Any) -> None:
    if depth:
        deep(depth - 1, launch, times, cuda)
        return
    for _ in range(50):
        cuda.cuCtxSynchronize()
        began = time.perf_counter_ns()
        for _ in range(BATCH):
            launch()
        times.append((time.perf_counter_ns() - began) // BATCH)


def measured(cuda: Any, launch: Callable[[], None]) -> float:
    times: list[int] = []
    deep(DEPTH - 2, launch, times, cuda)
    return statistics.median(times)


def profiled(cuda: Any, launch: Callable[[], None]) -> dict[str, float]:
    from torch.profiler import ProfilerActivity, profile

    out = {"bare_ns": measured(cuda, launch)}
    ways: dict[str, dict[str, Any]] = {
        "gpu_ns": {"activities": [ProfilerActivity.CUDA]},
        "stacks_ns": {
            "activities": [ProfilerActivity.CPU, ProfilerActivity.CUDA],
            "with_stack": True,
        },
    }
    for name, options in ways.items():
        with contextlib.redirect_stdout(None), profile(**options):
            out[name] = measured(cuda, launch)
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", action="store_true")
    profiles = parser.parse_args().profile
    if profiles:
        import torch

        torch.cuda.init()
    cuda = ctypes.CDLL("libcuda.so.1")
    launch = launcher(cuda)
    measured(cuda, launch)
    answer = profiled(cuda, launch) if profiles else {"launch_ns": measured(cuda, launch)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
