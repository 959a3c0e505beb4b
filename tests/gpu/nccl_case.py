"""NCCL through PyTorch: steps with an all-reduce each, in so many ranks, each with its GPU.

--late RANK pauses before each all-reduce. In step --wrong STEP, rank 1 reduces a copy, so its own
tensor lacks the sum. --leaves RANK ends after the others called the last all-reduce: then the first
process ends all others, as launchers do.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import argparse
import signal
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rank_processes import start
from torch.cuda import nvtx

STEPS = 9


def work(rank: int, world: int, options: argparse.Namespace, last: mp.SimpleQueue) -> None:
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
            if step == STEPS - 1 and rank == options.leaves:
                for _ in range(1, world):
                    last.get()
                time.sleep(3)
                signal.raise_signal(signal.SIGTERM)
            if step == STEPS - 1:
                last.put(rank)
            dist.all_reduce(reduced)
            values /= world
            torch.cuda.synchronize()
    print(rank, values.double().mean().item(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    for option in ("--late", "--wrong", "--leaves"):
        parser.add_argument(option, type=int, default=-1)
    options = parser.parse_args()
    start(work, options.ranks, options, mp.get_context("spawn").SimpleQueue())


if __name__ == "__main__":
    main()
