"""PyTorch: a few steps of training, in ranges of NVTX."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import hashlib

import torch
from torch.cuda import nvtx


def main() -> None:
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True)
    nvtx.range_push("train")
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    model = model.cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, target = torch.randn(256, 64).cuda(), torch.randn(256, 8).cuda()
    for step in range(4):
        with nvtx.range(f"step {step}"):
            optimiser.zero_grad()
            with nvtx.range("forward"):
                loss = torch.nn.functional.mse_loss(model(inputs), target)
            with nvtx.range("backward"):
                loss.backward()
            with nvtx.range("update"):
                optimiser.step()
    nvtx.mark("trained")
    long = nvtx.range_start("evaluation")
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).cpu().numpy()
    nvtx.range_end(long)
    nvtx.range_pop()
    print("weights", hashlib.sha256(weights.tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
