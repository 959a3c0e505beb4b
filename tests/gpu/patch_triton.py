"""Triton kernels with barriers, TMA and wgmma."""

# mypy: ignore-errors
# ruff: noqa: N803
from collections.abc import Iterator

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(rows, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(rows + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + at, tl.cumsum(e / tl.sum(e, axis=0), 0), mask=at < columns)


@triton.jit
def sort_kernel(rows, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(rows + at)))


@triton.jit
def product_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        total += tl.dot(
            tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
        )
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def tma_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total += tl.dot(a_tiles.load([m, k]), b_tiles.load([k, n]))
    c_tiles.store([m, n], total.to(tl.float16))


def run() -> Iterator[tuple[str, list[torch.Tensor]]]:
    rows = torch.randn(200, 333, device="cuda")
    out = torch.zeros_like(rows)
    rows_kernel[(200,)](rows, out, 333, BLOCK=512)
    yield "rows", [out]

    keys = torch.randint(0, 999, (16, 256), device="cuda", dtype=torch.int32)
    done = torch.zeros_like(keys)
    sort_kernel[(16,)](keys, done, BLOCK=256)
    yield "sort", [done]

    m, n, k = 512, 768, 1024
    for kind, stages in ((torch.half, 3), (torch.bfloat16, 4), (torch.float, 2)):
        x, y = (torch.randn(s, device="cuda").to(kind) for s in ((m, k), (k, n)))
        product = torch.zeros(m, n, device="cuda")
        grid = (m // 128, n // 128)
        for warps in (4, 8):
            product_kernel[grid](
                x, y, product, m, n, k, BM=128, BN=128, BK=32, num_warps=warps, num_stages=stages
            )
            yield f"product {kind} {warps}", [product]

    triton.set_allocator(lambda size, _, __: torch.empty(size, device="cuda", dtype=torch.int8))
    x, y = (torch.randn(s, device="cuda").half() for s in ((m, k), (k, n)))
    product = torch.zeros(m, n, device="cuda").half()
    for stages in (1, 3):
        tma_kernel[(m // 128, n // 128)](
            x, y, product, m, n, k, BM=128, BN=128, BK=64, num_warps=4, num_stages=stages
        )
        yield f"tma {stages}", [product]
