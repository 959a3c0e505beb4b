"""Two ranks over NCCL: DistributedDataParallel, an asynchronous all-reduce, and a side stream with
record_stream. `missing`: without the wait for the all-reduce.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from rank_processes import start


def work(rank: int, world: int) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
    model = torch.nn.parallel.DistributedDataParallel(layers, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    side, x = torch.cuda.Stream(), torch.randn(64, 256, device="cuda")
    for _ in range(6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        metric = torch.ones(1 << 20, device="cuda")
        reduced = dist.all_reduce(metric, async_op=True)
        if "missing" not in sys.argv:
            reduced.wait()
        metric.mul_(0.5)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = x * 2
            x.record_stream(side)
        x = torch.randn(64, 256, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    print(rank, copy.shape, flush=True)


if __name__ == "__main__":
    start(work, 2)
