"""NCCL through PyTorch: steps with an all-reduce each, in so many ranks, each with its GPU.

--late RANK pauses before each all-reduce. In step --wrong STEP, rank 1 reduces a copy, so its own
tensor lacks the sum. --leaves RANK calls no last all-reduce: then the first process ends all
others, as launchers do.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.cuda import nvtx

STEPS = 9


def work(rank: int, options: argparse.Namespace, last: mp.SimpleQueue) -> None:
    world = options.ranks
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    values = torch.full((1 << 20,), float(rank + 1), device="cuda")
    other = torch.randn(2048, 2048, device="cuda")
    for step in range(STEPS):
        with nvtx.range(f"step {step}"):
            if rank == options.late:
                time.sleep(0.02)
            other = torch.tanh(other @ other)
            values += rank + step
            copied = rank == 1 and step == options.wrong
            reduced = values.clone() if copied else values
            if step == STEPS - 1:
                last.put(rank)
                if rank == options.leaves:
                    time.sleep(600)
            dist.all_reduce(reduced)
            values /= world
            torch.cuda.synchronize()
    print(rank, values.double().mean().item(), flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    for option in ("--late", "--wrong", "--leaves"):
        parser.add_argument(option, type=int, default=-1)
    options = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
    context = mp.get_context("spawn")
    last = context.SimpleQueue()
    ranks = [
        context.Process(target=work, args=(rank, options, last)) for rank in range(options.ranks)
    ]
    for process in ranks:
        process.start()
    if options.leaves >= 0:
        for _ in ranks:
            last.get()
        time.sleep(3)
        for process in ranks:
            process.terminate()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in ranks))


if __name__ == "__main__":
    main()
