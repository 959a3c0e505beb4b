"""A small transformer in PyTorch whose tensors are named: prints losses, and a digest of each
parameter.

``--spoil STEP`` doubles one item of a gradient in that step; ``--bare`` names nothing; ``--time``
prints how long a step takes instead.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"
from __future__ import annotations

import argparse
import hashlib
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

import ttanalyze.integrations.torch

SPOILED = 17


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x)[0]
        return x + self.mlp(self.norm(x))


class Model(torch.nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--spoil", type=int)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = Model(64, options.depth).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if not options.bare:
        ttanalyze.integrations.torch.watch(model, optimizer)
    inputs = torch.randn(32, 16, 64).cuda()
    labels = torch.randint(0, 10, (32,)).cuda()
    weight = model.layers[1].mlp[0].weight
    times = []
    for step in range(options.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        with torch.no_grad():
            weight.grad.view(-1)[SPOILED].mul_(2.0 if step == options.spoil else 1.0)
        torch.cuda.synchronize()
        optimizer.step()
        if options.time:
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        else:
            print(f"step {step}: {loss.item()!r}")
    if options.time:
        print(f"{sorted(times)[len(times) // 2] * 1000:.3f} ms")
        return
    for name, parameter in model.named_parameters():
        data = parameter.detach().cpu().numpy().tobytes()
        print(f"{name} {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
