"""Training steps in PyTorch, each timed to the end of its last kernel.

    python train_step.py [--llama] [--steps N] [--pause MS] [--profile | --turns N] [--device cpu]
    python train_step.py [--llama] --slice I/N --meeting DIR [--under gpu_us | --under stacks_us]
    python train_step.py --serve [MODULE…]

The model is a small perceptron. With --llama it is a Llama of 8 layers and 34 million parameters
in bfloat16, whose layers run the operators of Hugging Face's one by one: a step is many small
launches, and waits for the processor.

Prints {"step_us": […]}. With --profile, the same steps bare, under torch.profiler with the
GPU's activity only, and with the CPU's and with stacks: {"bare_us": […], "gpu_us": […],
"stacks_us": […]}. With --turns, by turns N steps do not cut an epoch and N do, which only a
recorded program can: {"turns_us": [[…], …]}.

With --slice, N processes run steps by turns, 0.16 seconds each and on the same few cores, so that
what else the machine does slows all of them alike. This one is the Ith. When it is ready it writes
DIR/ready-I, and then waits for DIR/go, which has when the first turn begins and when all end.
{"slices_us": {ROUND: […], …}}. --under: the same under torch.profiler.
"""

# mypy: disable-error-code="misc,import-not-found"
from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from forked import serve
from torch import Tensor, nn
from torch.nn import functional

WARM = 30
VOCABULARY, WIDTH, HEADS, INNER, LAYERS = 8192, 512, 8, 1376, 8  # of the Llama
BATCH, LENGTH = 4, 256


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warm", type=int, default=WARM)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--slice")
    parser.add_argument("--meeting", type=Path)
    parser.add_argument("--under")
    options = parser.parse_args()

    if options.slice:
        os.sched_setaffinity(0, cores())  # also of threads that it will have
    torch.manual_seed(0)
    device = torch.device(options.device)
    train = llama(device) if options.llama else perceptron(device, options.width, options.layers)

    def step() -> None:
        train()
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(options.warm):
        step()
    if options.turns:
        print(json.dumps({"turns_us": by_turns(step, options.steps, options.turns)}))
        return
    if options.slice:
        index, count = map(int, options.slice.split("/"))
        with profiler(options.under) if options.under else contextlib.nullcontext():
            slices = by_slices(step, index, count, options.meeting)
        print(json.dumps({"slices_us": slices}))
        return
    if not options.profile:
        print(json.dumps({"step_us": timed(step, options.steps, options.pause)}))
        return
    out = {"bare_us": timed(step, options.steps, options.pause)}
    for name in ("gpu_us", "stacks_us"):
        with profiler(name):
            step()
            out[name] = timed(step, options.steps, options.pause)
    print(json.dumps(out))


def profiler(name: str) -> Any:
    """torch.profiler with the GPU's activity only, or with the CPU's and with stacks."""
    from torch.profiler import ProfilerActivity, profile

    if name == "gpu_us":
        return profile(activities=[ProfilerActivity.CUDA])
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True)


def perceptron(device: torch.device, width: int, count: int) -> Callable[[], None]:
    """A training step, but for the wait for its end."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(count))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    inputs = torch.randn(64, width, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


class Norm(nn.Module):
    """Root mean square normalisation, computed in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (wide * scale).to(x.dtype)


class Layer(nn.Module):
    """Attention, then a gated perceptron, each with its own normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = Norm(), Norm()
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        near = self.before(x)
        query, key, value = (
            project(near).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        query, key = _turned(query, cosine, sine), _turned(key, cosine, sine)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        near = self.between(x)
        return x + self.down(functional.silu(self.gate(near)) * self.up(near))


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Positions as rotations of pairs of values."""
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


class Llama(nn.Module):
    """Token numbers in, logits of the next tokens out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        pairs = WIDTH // HEADS // 2
        rates = 10000.0 ** (-torch.arange(pairs, device=tokens.device) / pairs)
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * rates
        angles = torch.cat((angles, angles), -1)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.head(self.norm(x))


def llama(device: torch.device) -> Callable[[], None]:
    """A training step, but for the wait for its end."""
    model = Llama().to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1]).float()
        targets = tokens[:, 1:].reshape(-1)
        functional.cross_entropy(logits.view(-1, VOCABULARY), targets).backward()
        optimizer.step()

    return step


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


SLICE = 0.16  # seconds
LEFT = 0.03  # of a slice, in which no step begins
CORES = 4


def cores() -> list[int]:
    """Some of those that this process may use: of two neighbours, which may share a core, one. All
    where there are few.
    """
    every = sorted(os.sched_getaffinity(0))
    return every[::2][:CORES] if len(every) >= 2 * CORES else every


def by_slices(
    step: Callable[[], None], index: int, count: int, meeting: Path
) -> dict[int, list[float]]:
    """Microseconds of the steps of each slice but its first, by round."""
    out: dict[int, list[float]] = {}
    step()
    (meeting / f"ready-{index}").touch()
    while not (meeting / "go").exists():
        time.sleep(0.02)
    begin, end = json.loads((meeting / "go").read_text())
    while time.time() < end:
        now = time.time() - begin
        number = int(now // SLICE)
        if now < 0 or number % count != index:
            rounds = number // count + (number % count > index) if now >= 0 else 0
            time.sleep(max((rounds * count + index) * SLICE - now, 0.002))
            continue
        step()
        until = begin + (number + 1) * SLICE - LEFT
        while time.time() < until:
            out.setdefault(number // count, []).extend(timed(step, 1, 0.0))
    return out


def by_turns(step: Callable[[], None], steps: int, turn: int) -> list[list[float]]:
    """Microseconds of the steps of each turn; in each second turn a step ends with an epoch."""
    cut = ctypes.CDLL(None).tt_epoch

    def step_with_epoch() -> None:
        step()
        cut(None, b"")

    ways = (step, step_with_epoch)
    return [timed(ways[i % 2], turn, 0.0) for i in range(steps // turn)]


if __name__ == "__main__":
    serve(main)
