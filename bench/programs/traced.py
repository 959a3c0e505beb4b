"""Kernels of PyTorch and Triton whose traces are timed.

    python traced.py [REPEATS [PAUSE]]

Prints the microseconds that the GPU takes for a softmax in Triton, and for a training step of a
small perceptron: {"softmax": […], "step": […]}. A kernel that waits runs before each, so that the
times have nothing of the processor's work for launches.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import sys
import time

import torch
import triton
import triton.language as tl
from train_step import perceptron

WAIT_CYCLES = 150_000_000


@triton.jit
def softmax(rows, out, stride, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(rows + row * stride + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < columns)


def timed(work, repeats: int, pause: float) -> list[float]:
    """The first two load kernels. pause: s behind each, until its records are stored."""
    out = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        time.sleep(pause)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(WAIT_CYCLES)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        out.append(begin.elapsed_time(end) * 1000)
    return out[2:]


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    pause = int(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.3
    torch.manual_seed(0)
    rows = torch.randn(8192, 1000, device="cuda")
    out = torch.empty_like(rows)
    ways = {
        "softmax": lambda: softmax[(8192,)](rows, out, rows.stride(0), 1000, BLOCK=1024),
        "step": perceptron(torch.device("cuda"), 128, 8),
    }
    print(json.dumps({name: timed(work, repeats, pause) for name, work in ways.items()}))


if __name__ == "__main__":
    main()
