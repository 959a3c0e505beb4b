"""A training step with one operator that is not deterministic; PyTorch says which, where asked.

prove_operators.py [--strict | --scatter]: --strict asks PyTorch for deterministic algorithms, and
prints what it refuses; --scatter adds by index with many duplicates, and multiplies.
"""

# mypy: ignore-errors
import re
import sys

import torch
import torch.nn.functional as nnf

torch.manual_seed(1)
ON = {"device": "cuda"}


def step() -> None:
    first = torch.nn.Linear(64, 3 * 32 * 32, **ON)
    last = torch.nn.Linear(3 * 64 * 64, 10, **ON)
    optimiser = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
    x = nnf.gelu(first(torch.randn(16, 64, **ON))).view(16, 3, 32, 32)
    # Of all 64 x 64 points of each picture samples are taken within a few: gradients collide there.
    grid = 0.1 * torch.randn(16, 64, 64, 2, **ON)
    x = nnf.grid_sample(x, grid, mode="bilinear", align_corners=False)
    loss = nnf.mse_loss(last(x.flatten(1)), torch.randn(16, 10, **ON))
    loss.backward()
    optimiser.step()


def scatter() -> None:
    out = torch.zeros(16, 64, **ON)
    out.index_add_(0, torch.randint(0, 16, (20000,), **ON), torch.randn(20000, 64, **ON))
    torch.randn(256, 256, **ON) @ torch.randn(256, 256, **ON)


if "--strict" in sys.argv:
    torch.use_deterministic_algorithms(True)
    try:
        step()
        print("nothing is refused")
    except RuntimeError as e:
        print(re.match(r"\w+", str(e))[0])
elif "--scatter" in sys.argv:
    scatter()
else:
    step()
torch.cuda.synchronize()
