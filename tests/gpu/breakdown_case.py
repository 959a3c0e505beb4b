"""PyTorch: the same steps twice, the second time under torch.profiler, which writes its trace.

Arguments: a folder for the traces, and the number of ranks, each with its GPU. Several ranks add up
a tensor beside their kernels.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from rank_processes import start
from torch.cuda import nvtx
from torch.profiler import ProfilerActivity, profile

STEPS = 6


class Work:
    """Kernels, copies and sums beside and after them, and a pause of the host."""

    def __init__(self, world: int) -> None:
        self.a, self.b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
        self.host = torch.zeros(16 << 20, pin_memory=True)
        self.side = torch.cuda.Stream()
        self.sum = torch.zeros(64 << 20, device="cuda") if world > 1 else None

    def step(self) -> None:
        a, total = self.a, None
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            copy = self.host.cuda(non_blocking=True)
        for number in range(8):
            a = torch.tanh(a @ self.b)
            if number == 6 and self.sum is not None:  # the last ones run beside it
                total = dist.all_reduce(self.sum, async_op=True)
        torch.cuda.current_stream().wait_stream(self.side)
        copy.add_(1)
        if total is not None:
            total.wait()
        self.host.copy_(copy, non_blocking=True)
        torch.cuda.synchronize()
        time.sleep(0.01)


def work(rank: int, world: int, folder: str) -> None:
    task = Work(world)
    for _ in range(5):
        task.step()
    for number in range(STEPS):
        with nvtx.range(f"step {number}"):
            task.step()
    activities = [ProfilerActivity.CUDA, ProfilerActivity.CPU]
    with profile(activities=activities) as warm:
        task.step()
    del warm
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            task.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")


def main() -> None:
    folder, world = sys.argv[1], int(sys.argv[2])
    if world == 1:
        work(0, 1, folder)
    else:
        start(work, world, folder)


if __name__ == "__main__":
    main()
