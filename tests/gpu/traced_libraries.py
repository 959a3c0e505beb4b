"""Kernels of cuBLAS and CUTLASS through PyTorch: prints a digest of each result."""

# mypy: ignore-errors
from __future__ import annotations

import hashlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(raw).hexdigest()[:16]


def main() -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, b = (torch.randn(512, 512, device="cuda").to(dtype) for _ in range(2))
        print("product", dtype, digest(a @ b))
    heads = [torch.randn(1, 4, 256, 64, device="cuda") for _ in range(3)]
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(*heads)
    print("attention", digest(out))


if __name__ == "__main__":
    main()
