"""Starts the ranks of a test program: a process each, with its GPU.

They meet at a file, because two programs at the same time may choose the same port. If one fails,
the others end too: they would wait for it.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _rank(
    rank: int, work: Callable[..., None], world: int, place: str, given: tuple[object, ...]
) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{place}", rank=rank, world_size=world)
    work(rank, world, *given)
    dist.destroy_process_group()


def start(work: Callable[..., None], world: int, *given: object) -> None:
    """Runs work(rank, world, *given) in all ranks, to the end of the last."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (work, world, f"{folder}/ranks", given), nprocs=world)
