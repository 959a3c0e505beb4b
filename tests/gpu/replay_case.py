"""Kernels of many kinds, from PyTorch's libraries and from Triton where that is installed."""

# mypy: ignore-errors
import importlib.util
import sys
from pathlib import Path

import torch
import torch.nn.functional as nnf
from torch.nn.attention import SDPBackend, sdpa_kernel

ON = {"device": "cuda"}


def products() -> None:
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        a, b = (torch.randn(256, 256, **ON).to(kind) for _ in range(2))
        a @ b
    torch.bmm(torch.randn(8, 64, 96, **ON), torch.randn(8, 96, 48, **ON))
    torch.randn(300, **ON) @ torch.randn(300, 500, **ON)


def attention() -> None:
    q, k, v = (torch.randn(2, 4, 128, 64, dtype=torch.bfloat16, **ON) for _ in range(3))
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            nnf.scaled_dot_product_attention(q, k, v, is_causal=True)


def layers() -> None:
    x = torch.randn(64, 512, requires_grad=True, **ON)
    norm = torch.nn.LayerNorm(512, **ON)
    y = nnf.dropout(nnf.gelu(norm(x)), 0.1)
    nnf.cross_entropy(y, torch.randint(0, 512, (64,), **ON)).backward()
    nnf.softmax(torch.randn(64, 1000, **ON), 1)
    nnf.conv2d(torch.randn(2, 8, 32, 32, **ON), torch.randn(16, 8, 3, 3, **ON))


def indices() -> None:
    table, at = torch.randn(1000, 64, **ON), torch.randint(0, 1000, (300,), **ON)
    nnf.embedding(at, table)
    table[at]
    table.gather(0, at[:64].expand(3, 64))
    table.scatter(0, at[:64].expand(3, 64), 1.0)
    torch.cat([table, table])
    torch.cumsum(table, 0)
    torch.topk(table, 4, 1)
    torch.where(table > 0, table, -table)
    (table > 0).nonzero()
    table.sum()
    table.t().contiguous()


def optimiser() -> None:
    weights = torch.randn(500, 300, requires_grad=True, **ON)
    weights.grad = torch.randn_like(weights)
    for kind, options in ((torch.optim.AdamW, {"fused": True}), (torch.optim.SGD, {})):
        kind([weights], lr=0.1, **options).step()


def triton() -> None:
    place = str(Path(__file__).parent)
    sys.path.insert(0, place)
    import triton_case as case

    a, b = (torch.randn(5000, **ON) for _ in range(2))
    case.add_kernel[(5,)](a, b, torch.empty_like(a), 5000, BLOCK=1024)
    rows = torch.randn(64, 300, **ON)
    case.softmax_kernel[(64,)](rows, torch.empty_like(rows), 300, 300, BLOCK=512)
    m, n = torch.randn(128, 64, **ON), torch.randn(64, 128, **ON)
    out = torch.empty(128, 128, **ON)
    case.matmul_kernel[(2, 2)](m, n, out, 128, 128, 64, BM=64, BN=64, BK=32)


torch.manual_seed(1)
for part in (products, attention, layers, indices, optimiser):
    part()
if importlib.util.find_spec("triton"):
    triton()
torch.cuda.synchronize()
print("done")
