"""A PyTorch training step captured into a CUDA graph and replayed: prints every loss."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch


def main() -> None:
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    inputs = torch.zeros(256, 64, device="cuda")
    labels = torch.zeros(256, dtype=torch.long, device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()

    generator = torch.Generator().manual_seed(2)
    for number in range(10):
        inputs.copy_(torch.randn(256, 64, generator=generator))
        labels.copy_(torch.randint(0, 10, (256,), generator=generator))
        graph.replay()
        torch.cuda.synchronize()
        print(f"step {number}: {loss.item()!r}")
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
