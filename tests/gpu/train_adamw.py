"""A PyTorch training loop with AdamW: prints the loss of every step and a digest of the weights.

``--perturb STEP`` changes one weight just before that step.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import argparse
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--perturb", type=int)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    inputs = torch.randn(512, 64).cuda()
    labels = torch.randint(0, 10, (512,)).cuda()
    for step in range(options.steps):
        if step == options.perturb:
            with torch.no_grad():
                model[0].weight[3, 5] += 0.5
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item()!r}")
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
