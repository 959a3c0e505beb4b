"""Triton kernels with barriers, TMA and wgmma."""

# mypy: ignore-errors
# ruff: noqa: N803
from collections.abc import Callable, Iterator
from functools import partial

import torch
import triton
import triton.language as tl
from triton_case import matmul_kernel


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
def tma_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total += tl.dot(a_tiles.load([m, k]), b_tiles.load([k, n]))
    c_tiles.store([m, n], total.to(tl.float16))


def operations() -> Iterator[tuple[str, Callable[[], list[torch.Tensor]]]]:
    rows = torch.randn(200, 333, device="cuda")
    keys = torch.randint(0, 999, (16, 256), device="cuda", dtype=torch.int32)
    m, n, k = 512, 768, 1024
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")

    def softmax() -> list[torch.Tensor]:
        out = torch.zeros_like(rows)
        rows_kernel[(200,)](rows, out, 333, BLOCK=512)
        return [out]

    def sort() -> list[torch.Tensor]:
        out = torch.zeros_like(keys)
        sort_kernel[(16,)](keys, out, BLOCK=256)
        return [out]

    def product(kind: torch.dtype, stages: int, warps: int) -> list[torch.Tensor]:
        out = torch.zeros(m, n, device="cuda")
        tiles = {"BM": 128, "BN": 128, "BK": 32}
        matmul_kernel[(m // 128, n // 128)](
            *(a.to(kind), b.to(kind), out, m, n, k), **tiles, num_warps=warps, num_stages=stages
        )
        return [out]

    def tma(stages: int) -> list[torch.Tensor]:
        out = torch.zeros(m, n, device="cuda").half()
        triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))
        tiles = {"BM": 128, "BN": 128, "BK": 64}
        tma_kernel[(m // 128, n // 128)](
            *(a.half(), b.half(), out, m, n, k), **tiles, num_warps=4, num_stages=stages
        )
        return [out]

    yield "triton softmax", softmax
    yield "triton sort", sort
    for kind, stages in ((torch.half, 3), (torch.bfloat16, 4), (torch.float, 2)):
        for warps in (4, 8):
            yield f"triton product {kind} {warps}", partial(product, kind, stages, warps)
    for stages in (1, 3):
        yield f"triton tma {stages}", partial(tma, stages)
