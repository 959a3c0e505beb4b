"""A PyTorch training step with kernels of many kinds: attention, norms, products, index operations,
an optimiser. Prints the loss of each step.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch.nn import functional


class Block(torch.nn.Module):  # type: ignore[misc]
    """An embedding, attention, a norm and two products."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 64)
        self.qkv = torch.nn.Linear(64, 192)
        self.norm = torch.nn.LayerNorm(64)
        self.out = torch.nn.Linear(64, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        parts = self.qkv(x).view(*tokens.shape, 3, 4, 16).permute(2, 0, 3, 1, 4)
        x = x + functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return self.out(functional.gelu(self.norm(x)))


def main() -> None:
    torch.manual_seed(1)
    model = Block().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 100, (8, 32)).cuda()
    table = torch.zeros(50, 64, device="cuda")
    for step in range(2):
        optimizer.zero_grad()
        out = model(tokens)
        loss = functional.cross_entropy(out.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        table.index_add_(0, tokens.flatten() % 50, torch.ones(256, 64, device="cuda"))
        rows = torch.softmax(out.detach().flatten(0, 1), 1)
        best = rows.sort(1, descending=True).indices[:, 0]
        print(f"step {step}: {loss.item():.5f} {int(best.sum()) >= 0} {table.sum().item():.0f}")
        half = model.norm.weight.detach().half().expand(128, 64) @ torch.eye(64).half().cuda()
        print(f"half {half.float().sum().item():.0f}")


if __name__ == "__main__":
    main()
