"""Two ranks over NCCL: DistributedDataParallel, an asynchronous all-reduce, and a side stream with
record_stream. `missing`: without the wait for the all-reduce.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import os
import subprocess
import sys


def start() -> int:
    """Starts this program once for each rank."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]
    return max(rank.wait() for rank in ranks)


def work(rank: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
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
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(start())
    work(int(os.environ["RANK"]))
