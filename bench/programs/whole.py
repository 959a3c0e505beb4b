"""Steps of programs of different kinds, each timed to the end of its last kernel.

    python whole.py NAME,NAME… [--steps N] [--warm N] [--wait] [--profile] [--device cpu]
    python whole.py --serve|--once [MODULE…]

NAME: gemm, stencil, sort, traversal, llama, diffusion (PyTorch) or jax. --wait: after the steps
that are not timed it prints "warm", and waits for a line. --profile: the steps run under
torch.profiler, with the activities of CPU and GPU.

Prints {"NAME": {"step_us": […]}, …}, a line after each program, with those before.
"""

# mypy: disable-error-code="misc,import-not-found,import-untyped"
from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from forked import serve

Step = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    out = {}
    for name in options.names.split(","):
        step = jax_step() if name == "jax" else torch_step(name, options.device)
        for _ in range(options.warm):
            step()
        if options.wait:
            print("warm", flush=True)
            sys.stdin.readline()
        with profiler() if options.profile else contextlib.nullcontext():
            step()
            out[name] = {"step_us": timed(step, options.steps)}
        print(json.dumps(out), flush=True)


def timed(step: Step, steps: int) -> list[float]:
    out = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        out.append((time.perf_counter() - began) * 1e6)
    return out


def profiler() -> Any:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


def torch_step(name: str, device: str) -> Step:
    """A step that ends with a wait for the device."""
    import torch

    torch.manual_seed(0)
    work: Step = PROGRAMS[name](torch, torch.device(device))

    def step() -> None:
        work()
        if device != "cpu":
            torch.cuda.synchronize()

    return step


def gemm(torch: Any, device: Any) -> Step:
    """Eight products of matrices of 2048 x 2048, each of the one before."""
    size = 2048 if device.type == "cuda" else 64
    a = torch.randn(size, size, device=device) / size**0.5
    state = [torch.randn(size, size, device=device)]

    def step() -> None:
        for _ in range(8):
            state[0] = a @ state[0]

    return step


def stencil(torch: Any, device: Any) -> Step:
    """Ten sweeps of a five-point average over a grid of 2048 x 2048."""
    size = 2048 if device.type == "cuda" else 64
    grid = torch.randn(size, size, device=device)

    def step() -> None:
        for _ in range(10):
            near = grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]
            grid[1:-1, 1:-1] = 0.25 * near

    return step


def sort(torch: Any, device: Any) -> Step:
    """Sorts four million random numbers of 32 bits."""
    count = 1 << 22 if device.type == "cuda" else 1 << 10
    keys = torch.empty(count, dtype=torch.int32, device=device)

    def step() -> None:
        keys.random_()
        torch.sort(keys)

    return step


def traversal(torch: Any, device: Any) -> Step:
    """A breadth-first traversal of a random graph of 262,144 nodes and 2 million edges, level by
    level: the host waits for each.
    """
    nodes = 1 << 18 if device.type == "cuda" else 1 << 8
    begins, ends = torch.randint(nodes, (2, nodes * 8), device=device)
    depth = torch.empty(nodes, dtype=torch.int32, device=device)

    def step() -> None:
        depth.fill_(-1)
        depth[0] = 0
        level = 0
        while True:
            reached = ends[depth[begins] == level]
            fresh = reached[depth[reached] < 0]
            if not len(fresh):
                return
            level += 1
            depth[fresh] = level

    return step


def llama(torch: Any, device: Any) -> Step:
    """A training step of a Llama of 34 million parameters."""
    from train_step import llama as made

    return made(device)


def diffusion(torch: Any, device: Any) -> Step:
    """A training step of a convolutional network that predicts the noise in images of 64 x 64."""
    nn, functional = torch.nn, torch.nn.functional
    width, levels = 64, 3
    layers = [nn.Conv2d(4, width, 3, padding=1)]
    for i in range(levels):
        layers += [nn.GroupNorm(8, width << i), nn.SiLU()]
        layers += [nn.Conv2d(width << i, width << (i + 1), 3, stride=2, padding=1)]
    for i in reversed(range(levels)):
        layers += [nn.GroupNorm(8, width << (i + 1)), nn.SiLU()]
        layers += [nn.ConvTranspose2d(width << (i + 1), width << i, 4, stride=2, padding=1)]
    model = nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch, side = (16, 64) if device.type == "cuda" else (1, 16)
    images = torch.randn(batch, 3, side, side, device=device)

    def step() -> None:
        noise = torch.randn_like(images)
        when = torch.rand(batch, 1, 1, 1, device=device)
        seen = images * (1 - when).sqrt() + noise * when.sqrt()
        optimizer.zero_grad(set_to_none=True)
        guess = model(torch.cat((seen, when.expand(-1, 1, side, side)), 1))
        functional.mse_loss(guess, noise).backward()
        optimizer.step()

    return step


PROGRAMS: dict[str, Callable[[Any, Any], Step]] = {
    made.__name__: made for made in (gemm, stencil, sort, traversal, llama, diffusion)
}


def jax_step() -> Step:
    """A compiled training step of a perceptron with four layers of 1024."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    if jax.default_backend() == "cpu":
        sys.exit("JAX finds no GPU")
    keys = jax.random.split(jax.random.PRNGKey(0), 6)
    state = [[jax.random.normal(key, (1024, 1024)) / 32 for key in keys[:4]]]
    inputs, wanted = (jax.random.normal(key, (256, 1024)) for key in keys[4:])

    def loss(weights: Any) -> Any:
        x = inputs
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.mean((x - wanted) ** 2)

    def train(weights: Any) -> Any:
        return [w - 0.05 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]

    compiled = jax.jit(train)

    def step() -> None:
        state[0] = jax.block_until_ready(compiled(state[0]))

    return step


if __name__ == "__main__":
    serve(main)
