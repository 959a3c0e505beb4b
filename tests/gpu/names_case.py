"""Programs of frameworks that name nothing themselves, for `record --names`.

    python names_case.py torch|compile|graph|jax|cupy

Each prints what it computed, which must not depend on whether it is recorded.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def model() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()


def train_torch(compiled: bool) -> None:
    import torch

    net = model()
    step = torch.compile(net) if compiled else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()
    inputs = torch.randn(32, 64, device="cuda")
    targets = torch.arange(32, device="cuda") % 8
    for _ in range(4):
        optimizer.zero_grad()
        outputs = step(inputs)
        loss = criterion(outputs, targets) + outputs.exp().mean()
        torch.cuda.synchronize()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        print(f"loss {loss.item()!r}")


def run_graph() -> None:
    import torch

    net = model().eval()
    static = torch.zeros(32, 64, device="cuda")
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            net(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = net(static)
    for step in range(3):
        static.fill_(step)
        graph.replay()
        torch.cuda.synchronize()
        print(f"sum {out.sum().item()!r}")


def train_jax() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    random = np.random.default_rng(1)
    params = {
        "dense": {"kernel": jnp.asarray(random.normal(0, 0.1, (32, 128)), jnp.float32)},
        "head": [jnp.asarray(random.normal(0, 0.1, (128, 4)), jnp.float32)],
    }
    moments = jax.tree.map(jnp.zeros_like, params)
    x = jnp.asarray(random.normal(size=(256, 32)), jnp.float32)
    y = jnp.asarray(random.normal(size=(256, 4)), jnp.float32)

    def loss_of(p: Any) -> Any:
        hidden = jnp.maximum(x @ p["dense"]["kernel"], 0)
        return jnp.mean((hidden @ p["head"][0] - y) ** 2)

    def step(p: Any, m: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(p)
        m = jax.tree.map(lambda a, g: 0.9 * a + g, m, gradient)
        return jax.tree.map(lambda a, b: a - 0.01 * b, p, m), m, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))
    for _ in range(4):
        params, moments, loss = compiled(params, moments)
        print(f"loss {float(loss)!r}")
    digest = hashlib.sha256(b"".join(np.asarray(p).tobytes() for p in jax.tree.leaves(params)))
    print(digest.hexdigest())


def run_cupy() -> None:
    import cupy as cp

    weights = {"a": cp.arange(4096, dtype=cp.float32), "b": [cp.ones((64, 64), dtype=cp.float64)]}
    every_second = weights["a"][::2]
    for _ in range(3):
        total = cp.sqrt(weights["a"]) + every_second.sum()
        weights["b"][0] = weights["b"][0] * 2
        cp.cuda.Device().synchronize()
        print(f"{float(total.sum())!r} {float(weights['b'][0].sum())!r}")


if __name__ == "__main__":
    case = sys.argv[1]
    if case in ("torch", "compile"):
        train_torch(case == "compile")
    else:
        {"graph": run_graph, "jax": train_jax, "cupy": run_cupy}[case]()
