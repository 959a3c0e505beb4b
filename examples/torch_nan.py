"""A training in PyTorch whose weights become NaN: its learning rate is far too large."""

from __future__ import annotations

import torch
import ttanalyze.torch  # type: ignore[import-not-found]


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=50)
    ttanalyze.torch.watch(model, optimizer)  # names the tensors if the program is recorded
    inputs = torch.randn(256, 64, device="cuda")
    targets = inputs.sum(1, keepdim=True)
    for _ in range(30):
        loss = ((model(inputs) - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
    print(f"loss {loss.item()}")


if __name__ == "__main__":
    main()
