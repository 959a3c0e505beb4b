"""A loop in PyTorch that forgets to wait for another stream.

    python raced.py [--steps N]

Each step adds up what the stream `side` made. Small kernels between the two give it the time that
it needs, so that the result is right until something is delayed.
"""

# mypy: disable-error-code="misc,import-not-found,import-untyped"
from __future__ import annotations

import argparse

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    device = torch.device("cuda")
    side = torch.cuda.Stream()
    values = torch.randn(128, 128, device=device)
    other, total = torch.zeros_like(values), torch.zeros((), device=device)
    torch.cuda.synchronize()
    for step in range(steps):
        with torch.cuda.stream(side):
            made = values * (step + 1)
        for _ in range(20):
            other.mul_(0.5).add_(1)
        total += made.sum()  # does not wait for `side`
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
