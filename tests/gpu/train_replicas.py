"""Data-parallel training of a small transformer, each rank with its GPU: PyTorch's
DistributedDataParallel, or FSDP with --sharded. Prints each rank's loss, or with --time how long a
step takes in a range "step N" and in one with another name.

--spoil STEP changes one element of a gradient of rank 1 after the all-reduce of that step.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from rank_processes import start
from torch.cuda import nvtx

import ttanalyze.integrations.torch

SPOILED = 17  # the element, of a matrix of the second layer


def model_of(width: int, depth: int) -> torch.nn.Sequential:
    layer = torch.nn.TransformerEncoderLayer
    layers = [layer(width, 8, 4 * width, dropout=0.0, batch_first=True) for _ in range(depth)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 64))


def parallel(model: torch.nn.Sequential, rank: int, sharded: bool) -> torch.nn.Module:
    """The model, of which each rank has a copy or a shard."""
    if not sharded:
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def work(rank: int, world: int, options: argparse.Namespace) -> None:
    torch.manual_seed(1)
    with torch.device("cuda"):
        plain = model_of(options.width, options.depth)
    weight = plain[1].linear1.weight
    model = parallel(plain, rank, options.sharded)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if not options.bare:
        ttanalyze.integrations.torch.watch(model, optimizer, activations=not options.time)
    torch.manual_seed(100 + rank)
    times = []
    for step in range(options.steps):
        inputs = torch.randn(options.batch, 64, options.width, device="cuda")
        labels = torch.randint(0, 64, (options.batch * 64,), device="cuda")
        torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        with nvtx.range(f"other {step}" if options.time and step % 2 else f"step {step}"):
            optimizer.zero_grad(set_to_none=False)  # gradients stay where they are
            with torch.autocast("cuda", torch.bfloat16, enabled=options.time):
                out = model(inputs)
            loss = torch.nn.functional.cross_entropy(out.float().view(-1, 64), labels)
            loss.backward()
            if rank == 1 and step == options.spoil:
                with torch.no_grad():
                    weight.grad.view(-1)[SPOILED] += 1
            optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    if options.time:
        medians = [1000 * statistics.median(times[first::2]) for first in (4, 5)]
        print(f"{rank}: {medians[0]:.3f} ms, other {medians[1]:.3f} ms", flush=True)
    else:
        print(f"{rank}: {loss.item():.6f}", flush=True)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count())
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--spoil", type=int, default=-1)
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--bare", action="store_true", help="name no tensors")
    parser.add_argument("--time", action="store_true", help="print median times")
    options = parser.parse_args()
    start(work, options.ranks, options)


if __name__ == "__main__":
    main()
