"""Planted faults in PyTorch and Triton: `torch_faults.py NAME [--fixed]`, as faults.c has them.

The line that is to be found ends with the comment "culprit".
"""

# mypy: ignore-errors
from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl

FIXED = "--fixed" in sys.argv
STEPS = 6
Fault = Callable[[], torch.Tensor]
FAULTS: dict[str, tuple[str, Fault]] = {}


def fault(check: str) -> Callable[[Fault], Fault]:
    def register(run: Fault) -> Fault:
        FAULTS[run.__name__] = check, run
        return run

    return register


def numbers(n: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, generator=generator).cuda()


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    return torch.nn.Sequential(*layers).cuda()


@triton.jit
def shift_kernel(to, source, n, shift, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(to + i + shift, tl.load(source + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def row_sum_kernel(to, source, n, block: tl.constexpr, masked: tl.constexpr):
    i = tl.arange(0, block)
    row = tl.load(source + i, mask=i < n, other=0.0) if masked else tl.load(source + i)
    tl.store(to, tl.sum(row))


@fault("determinism")
def forgotten_seed() -> torch.Tensor:
    network, x = model(), numbers(64 * 64).view(64, 64)
    if not FIXED:
        torch.seed()
    for _ in range(STEPS):
        x = torch.nn.functional.dropout(x, 0.5)  # culprit of forgotten_seed
        y = network(x)
        torch.cuda.synchronize()
    return y


@fault("determinism")
def float_atomics() -> torch.Tensor:
    at = torch.randint(0, 8, (1 << 18,), generator=torch.Generator().manual_seed(3)).cuda()
    total, values = torch.zeros(8, device="cuda"), numbers(1 << 18)
    if FIXED:
        return total + values[:8]
    return total.index_add_(0, at, values)  # culprit of float_atomics


@fault("determinism")
def shuffled_batches() -> torch.Tensor:
    network, data = model(), torch.rand(512, 64, generator=torch.Generator().manual_seed(2))
    if not FIXED:
        torch.seed()
    for batch in torch.randperm(512).view(STEPS + 2, -1):
        x = data[batch].cuda()  # culprit of shuffled_batches
        y = network(x)
        torch.cuda.synchronize()
    return y


@fault("uninitialized")
def empty_used() -> torch.Tensor:
    bias = torch.zeros(4096, device="cuda") if FIXED else torch.empty(4096, device="cuda")
    return numbers(4096) + bias  # culprit of empty_used


@fault("uninitialized")
def padding_read() -> torch.Tensor:
    """A kernel reads a whole block of a row that is shorter, and only sometimes sees it."""
    row, to = torch.empty(1024, device="cuda"), torch.zeros(1, device="cuda")
    row[:1000] = numbers(1000)
    row_sum_kernel[(1,)](to, row, 1000, block=1024, masked=FIXED)  # culprit of padding_read
    return to


@fault("uninitialized")
def rows_not_written() -> torch.Tensor:
    """An output is allocated empty; the rows of one expert that got no token are never written."""
    out = torch.empty(8, 512, device="cuda")
    for expert in range(8):
        if expert != 5 or FIXED:
            out[expert] = numbers(512, expert)
    return out.sum(0)  # culprit of rows_not_written


@fault("bounds")
def write_outside_tensor() -> torch.Tensor:
    """A kernel writes 12 bytes past a tensor, into the pool of the allocator."""
    to, source, other = torch.zeros(1024, device="cuda"), numbers(1024), numbers(1024, 2)
    shift = 0 if FIXED else 3
    shift_kernel[(4,)](to, source, 1024, shift, block=256)  # culprit of write_outside_tensor
    return to + other


@fault("bounds")
def write_before_tensor() -> torch.Tensor:
    to, source, other = torch.zeros(1024, device="cuda"), numbers(1024), numbers(1024, 2)
    shift = 0 if FIXED else -1
    shift_kernel[(4,)](to, source, 1024, shift, block=256)  # culprit of write_before_tensor
    return to + other


@fault("order")
def no_wait_for_stream() -> torch.Tensor:
    side, x = torch.cuda.Stream(), numbers(1 << 20)
    torch.cuda.synchronize()
    for _ in range(20):
        x = x * 1.0001
    if FIXED:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1  # culprit of no_wait_for_stream
    torch.cuda.synchronize()
    return y


@fault("order")
def written_while_sent() -> torch.Tensor:
    """A buffer is sent to the host in one stream, and used again in another without a wait."""
    side, x = torch.cuda.Stream(), numbers(1 << 20)
    host = torch.empty(1 << 20, pin_memory=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        host.copy_(x, non_blocking=True)
    if FIXED:
        torch.cuda.current_stream().wait_stream(side)
    x.mul_(2)  # culprit of written_while_sent
    torch.cuda.synchronize()
    return host


@fault("order")
def no_record_stream() -> torch.Tensor:
    """Memory that a side stream still reads goes back to the allocator, which gives it away."""
    side, total = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    x = numbers(1 << 20)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(20):
            total += x
    if FIXED:
        x.record_stream(side)
    del x
    y = torch.full((1 << 20,), 7.0, device="cuda")  # culprit of no_record_stream
    torch.cuda.synchronize()
    return total + y


@fault("order")
def race_in_graph() -> torch.Tensor:
    x, y = numbers(1 << 16), numbers(1 << 16, 2)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        x.mul_(1.5)
        if FIXED:
            side.wait_stream(main)
        with torch.cuda.stream(side):
            y.add_(x)  # culprit of race_in_graph
        main.wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    return y


@fault("order")
def staging_reused() -> torch.Tensor:
    """One page-locked buffer for all steps. The host writes it again while a copy may read it."""
    host, total = torch.empty(1 << 20, pin_memory=True), numbers(1 << 20)
    x = torch.empty(1 << 20, device="cuda")
    for step in range(6):
        host.fill_(step)
        x.copy_(host, non_blocking=True)  # culprit of staging_reused
        if FIXED:
            torch.cuda.current_stream().synchronize()
        total += x
    torch.cuda.synchronize()
    return total


@fault("values")
def zero_by_zero() -> torch.Tensor:
    x = numbers(4096)
    if not FIXED:
        x[17] = 0
    for _ in range(STEPS):
        x = x * 0.5
    return x / x  # culprit of zero_by_zero


@fault("values")
def half_overflow() -> torch.Tensor:
    x = numbers(4096).half() + 1
    for _ in range(3 if FIXED else 20):
        x = x * 3  # culprit of half_overflow
    return x


@triton.jit
def rows_kernel(to, source, rows, columns: tl.constexpr, masked: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, columns)
    value = tl.load(source + tl.minimum(row, rows - 1) * columns + i)
    tl.store(to + row * columns + i, value, mask=(row < rows) | (i < 0) if masked else i >= 0)


@fault("bounds")
def padding_row_written() -> torch.Tensor:
    """The grid is padded to pairs of blocks, and the last one writes a row past the output: its
    own result is right, and the next tensor in the pool, which another step reads, is wrong.
    """
    rows, columns = 15, 128
    source, to = numbers(rows * columns), torch.empty(rows, columns, device="cuda")
    kept = torch.arange(rows, device="cuda")
    rows_kernel[(rows + 1,)](to, source, rows, columns, FIXED)  # culprit of padding_row_written
    assert torch.equal(to.flatten(), source)
    return to + kept[:, None]


def main() -> None:
    if "--list" in sys.argv:
        for name, (check, _) in FAULTS.items():
            print(name, check)
        return
    print(FAULTS[sys.argv[1]][1]().double().sum().item())


if __name__ == "__main__":
    main()
