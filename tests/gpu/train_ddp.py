"""DistributedDataParallel over so many NCCL ranks: prints losses and a digest of the weights."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import hashlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rank_processes import start


def work(rank: int, world: int, results: mp.SimpleQueue) -> None:
    """One rank."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)
    ).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    lines = []
    for step in range(6):
        inputs = torch.randn(128, 64, generator=generator).cuda()
        labels = torch.randint(0, 10, (128,), generator=generator).cuda()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        lines.append(f"step {step}: {loss.item():.6f}")
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    results.put((rank, lines, hashlib.sha256(weights).hexdigest()))
    dist.barrier()


def main() -> None:
    world, results = int(sys.argv[1]), mp.get_context("spawn").SimpleQueue()
    start(work, world, results)
    for rank, lines, digest in sorted(results.get() for _ in range(world)):
        print(f"rank {rank}", *lines, digest, sep="\n")


if __name__ == "__main__":
    main()
