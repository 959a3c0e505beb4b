"""PyTorch: the same steps twice, the second time under torch.profiler, which writes its trace."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import sys
import time

import torch
from torch.cuda import nvtx
from torch.profiler import ProfilerActivity, profile

STEPS = 6


def step(a: torch.Tensor, b: torch.Tensor, host: torch.Tensor, side: torch.cuda.Stream) -> None:
    """Kernels, copies beside and after them, and a pause of the host."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy = host.cuda(non_blocking=True)
    for _ in range(8):
        a = torch.tanh(a @ b)
    torch.cuda.current_stream().wait_stream(side)
    copy.add_(1)
    host.copy_(copy, non_blocking=True)
    torch.cuda.synchronize()
    time.sleep(0.01)


def main() -> None:
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    host = torch.zeros(16 << 20, pin_memory=True)
    side = torch.cuda.Stream()
    for _ in range(5):
        step(a, b, host, side)
    for number in range(STEPS):
        with nvtx.range(f"step {number}"):
            step(a, b, host, side)
    activities = [ProfilerActivity.CUDA, ProfilerActivity.CPU]
    with profile(activities=activities) as warm:
        step(a, b, host, side)
    del warm
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step(a, b, host, side)
    profiler.export_chrome_trace(sys.argv[1])


if __name__ == "__main__":
    main()
