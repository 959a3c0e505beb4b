"""Work of PyTorch in two streams, in an order or in none: `order_case.py CASE`."""

# mypy: ignore-errors
from __future__ import annotations

import sys

import torch

N = 1 << 20


def side_stream(waits: bool) -> torch.Tensor:
    side, x = torch.cuda.Stream(), torch.rand(N, device="cuda")
    torch.cuda.synchronize()
    for _ in range(10):
        x = x * 1.0001
    if waits:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    if waits:
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    return y


def freed_in_use(recorded: bool) -> torch.Tensor:
    """The allocator gives memory to another tensor that a side stream still reads."""
    side, total = torch.cuda.Stream(), torch.zeros(N, device="cuda")
    for step in range(20):
        x = torch.full((N,), float(step), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                total += x
        if recorded:
            x.record_stream(side)
        del x
        torch.full((N,), 7.0, device="cuda")
    torch.cuda.synchronize()
    return total


def both_read() -> torch.Tensor:
    """Streams may read the same weights at once."""
    streams, x = [torch.cuda.Stream() for _ in range(3)], torch.rand(N, device="cuda")
    torch.cuda.synchronize()
    out = []
    for stream in streams:
        with torch.cuda.stream(stream):
            out.append((x * 2).sum())
    torch.cuda.synchronize()
    return torch.stack(out)


def in_graph(joins: bool) -> torch.Tensor:
    x, y = torch.rand(N, device="cuda"), torch.rand(N, device="cuda")
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        x.mul_(1.5)
        if joins:
            side.wait_stream(main)
        with torch.cuda.stream(side):
            y.add_(x)
        main.wait_stream(side)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return y


def pipeline() -> torch.Tensor:
    """Buckets are reduced in a stream of their own while others are still made, as DDP does."""
    comm, buckets = torch.cuda.Stream(), [torch.zeros(N, device="cuda") for _ in range(4)]
    weights = torch.rand(N, device="cuda")
    for _ in range(10):
        events = []
        for bucket in buckets:
            bucket.copy_(weights).mul_(0.5)
            comm.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(comm):
                bucket.div_(2)
                events.append(comm.record_event())
        for bucket, event in zip(buckets, events, strict=True):
            event.wait()
            weights.add_(bucket, alpha=-0.1)
    torch.cuda.synchronize()
    return weights


def batches() -> torch.Tensor:
    """Page-locked batches are sent ahead in a stream of their own."""
    copies, main = torch.cuda.Stream(), torch.cuda.current_stream()
    network = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).cuda()
    total = torch.zeros((), device="cuda")
    for _ in range(20):
        host = torch.rand(64, 256).pin_memory()
        with torch.cuda.stream(copies):
            batch = host.to("cuda", non_blocking=True)
        main.wait_stream(copies)
        batch.record_stream(main)
        total = total + network(batch).sum().detach()
    torch.cuda.synchronize()
    return total


def staging(waits: bool) -> torch.Tensor:
    """Two page-locked buffers in turn; the host waits for the copy before it writes one again."""
    hosts = [torch.empty(N, pin_memory=True) for _ in range(2)]
    copied = [torch.cuda.Event() for _ in hosts]
    total = torch.zeros(N, device="cuda")
    for step in range(10):
        host, event = hosts[step % 2], copied[step % 2]
        if waits and step > 1:
            event.synchronize()
        host.fill_(step)
        total += host.to("cuda", non_blocking=True)
        event.record()
    torch.cuda.synchronize()
    return total


CASES = {
    "no_wait": lambda: side_stream(False),
    "wait": lambda: side_stream(True),
    "freed": lambda: freed_in_use(False),
    "record_stream": lambda: freed_in_use(True),
    "both_read": both_read,
    "graph_race": lambda: in_graph(False),
    "graph_join": lambda: in_graph(True),
    "pipeline": pipeline,
    "batches": batches,
    "staging": lambda: staging(False),
    "staging_wait": lambda: staging(True),
}


if __name__ == "__main__":
    torch.manual_seed(1)
    print(CASES[sys.argv[1]]().double().sum().item() is not None)
