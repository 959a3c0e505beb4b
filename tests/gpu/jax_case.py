"""JAX: a compiled training step, run several times; prints the loss of each."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import hashlib
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")

import jax
import jax.numpy as jnp
import numpy as np


def loss_of(weights: tuple[jax.Array, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jnp.maximum(x @ weights[0], 0)
    return jnp.mean((hidden @ weights[1] - y) ** 2)


def step(
    weights: tuple[jax.Array, jax.Array], x: jax.Array, y: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    moved = jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradient)
    return moved, loss


def main() -> None:
    random = np.random.default_rng(1)
    weights = (
        jnp.asarray(random.normal(0, 0.1, (32, 128)), jnp.float32),
        jnp.asarray(random.normal(0, 0.1, (128, 4)), jnp.float32),
    )
    x = jnp.asarray(random.normal(size=(256, 32)), jnp.float32)
    y = jnp.asarray(random.normal(size=(256, 4)), jnp.float32)
    print("platform", jax.devices()[0].platform)
    compiled = jax.jit(step)
    for number in range(8):
        weights, loss = compiled(weights, x, y)
        print(f"step {number}: {float(loss)!r}")
    print("weights", hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in weights)).hexdigest())


if __name__ == "__main__":
    main()
