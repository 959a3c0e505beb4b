"""Training steps of a small perceptron in PyTorch, each timed to the end of its last kernel.

    python train_step.py [--steps N] [--pause MS] [--profile]

Prints {"step_us": […]}. With --profile, the same steps bare, under torch.profiler with the
GPU's activity only, and with the CPU's and with stacks: {"bare_us": […], "gpu_us": […],
"stacks_us": […]}.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch

WARM = 30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warm", type=int, default=WARM)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()

    torch.manual_seed(0)
    width = options.width
    layers = [torch.nn.Linear(width, width) for _ in range(options.layers)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    inputs = torch.randn(64, width, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(options.warm):
        step()
    if not options.profile:
        print(json.dumps({"step_us": timed(step, options.steps, options.pause)}))
        return
    from torch.profiler import ProfilerActivity, profile

    out = {"bare_us": timed(step, options.steps, options.pause)}
    ways = {
        "gpu_us": profile(activities=[ProfilerActivity.CUDA]),
        "stacks_us": profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True
        ),
    }
    for name, profiler in ways.items():
        with profiler:
            step()
            out[name] = timed(step, options.steps, options.pause)
    print(json.dumps(out))


def timed(step: Callable[[], None], steps: int, pause: float) -> list[float]:
    """Microseconds of each step; pause: milliseconds between two."""
    out = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        out.append((time.perf_counter() - began) * 1e6)
        if pause:
            time.sleep(pause / 1000)
    return out


if __name__ == "__main__":
    main()
