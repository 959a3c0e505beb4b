"""Triton: three kernels on PyTorch tensors, compared with what PyTorch computes."""

# mypy: ignore-errors
# ruff: noqa: N803
import hashlib

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(rows, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(rows + row * stride + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < columns)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        total += tl.dot(
            tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
        )
    tl.store(c + m[:, None] * N + n[None, :], total)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16]


def main() -> None:
    torch.manual_seed(1)
    a, b = torch.randn(100_003).cuda(), torch.randn(100_003).cuda()
    out = torch.zeros_like(a)
    add_kernel[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
    print("add", torch.equal(out, a + b), digest(out))

    rows = torch.randn(200, 333).cuda()
    soft = torch.zeros_like(rows)
    softmax_kernel[(200,)](rows, soft, rows.stride(0), 333, BLOCK=512)
    print("softmax", torch.allclose(soft, torch.softmax(rows, 1)), digest(soft))

    x = torch.randint(-4, 5, (128, 256)).half().cuda()
    y = torch.randint(-4, 5, (256, 192)).half().cuda()
    product = torch.zeros(128, 192, device="cuda")
    matmul_kernel[(2, 3)](x, y, product, 128, 192, 256, BM=64, BN=64, BK=32)
    print("product", torch.equal(product, x.float() @ y.float()), digest(product))


if __name__ == "__main__":
    main()
