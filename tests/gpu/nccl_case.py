"""NCCL through PyTorch: steps with an all-reduce each, in as many ranks as there are devices.

Arguments: the number of ranks, the rank that is late, and the rank that leaves out the last
collective (-1: none).
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.cuda import nvtx

STEPS = 9


def work(rank: int, world: int, late: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    values = torch.full((1 << 20,), float(rank + 1), device="cuda")
    other = torch.randn(2048, 2048, device="cuda")
    for step in range(STEPS):
        with nvtx.range(f"step {step}"):
            if rank == late:
                time.sleep(0.02)
            other = torch.tanh(other @ other)
            values += rank + step
            dist.all_reduce(values)
            values /= world
            torch.cuda.synchronize()
    print(rank, values.double().mean().item(), flush=True)
    dist.destroy_process_group()


def main() -> None:
    world, late = int(sys.argv[1]), int(sys.argv[2])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
    context = mp.get_context("spawn")
    ranks = [context.Process(target=work, args=(rank, world, late)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in ranks))


if __name__ == "__main__":
    main()
