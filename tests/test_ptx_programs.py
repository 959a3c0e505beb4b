"""The PTX interpreter: programs as nvcc makes them, from the sources beside them."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import support
from tests.ptx_cases import M64, program
from ttanalyze.disassembly import tools

PTXAS = tools.find("ptxas")
pytestmark = pytest.mark.native


@pytest.mark.skipif(not PTXAS, reason="needs ptxas")
@pytest.mark.parametrize("name", ["clusters", "tensor_maps"])
def test_ptxas_accepts_what_a_program_loads(name: str, built: Path, tmp_path: Path) -> None:
    """The simulator accepts more than a driver does."""
    environment = support.recording(support.simulator_environment(), tmp_path / "run")
    assert support.run(support.command(name, built), environment).status == 0
    (module,) = (tmp_path / "run" / "p0" / "modules").iterdir()
    command = [str(PTXAS[0]), "-arch=sm_90", "-o", str(tmp_path / "cubin"), str(module)]
    subprocess.run(command, check=True)


def test_block_hashes() -> None:
    machine, module = program("hash")
    blocks = 5
    data = np.random.default_rng(1).integers(0, 2**64, blocks * 8192, dtype=np.uint64)
    source, out = machine.put(data), machine.alloc(8 * (blocks + 1))
    module.launch("hash", source, out, blocks, grid=[2], block=[128])
    address, size = module.variable("secret")
    secret = machine.view(address, size, np.uint64)
    lanes = np.arange(32)
    expected = []
    for block in data.reshape(blocks, 128, 32, 2):
        a, b = lanes.astype(np.uint64), lanes.astype(np.uint64) + np.uint64(1)
        for i, row in enumerate(block):
            k, m = (
                row[:, 0] ^ secret[(lanes + i) & 15],
                row[:, 1] ^ secret[(lanes * 2 + 1 + i) & 15],
            )
            low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
            a += row[:, 1] + (k & low) * (k >> half)
            b += row[:, 0] + (m & low) * (m >> half)
        h = (
            sum(
                int(x) * (int(y) * 0x9E3779B185EBCA87 >> 64) + int(y)
                for x, y in zip(a, b, strict=True)
            )
            & M64
        )
        h ^= (((h >> 32) << 32 | h & 0xFFFFFFFF) << 13 >> 32) & 0xFFFFFFFF
        expected.append(h ^ M64 if h & 7 == 5 else h)
    got = [int(x) for x in machine.view(out, 8 * (blocks + 1), np.uint64)]
    assert got == [*expected, sum(expected) & M64]


def test_nvcc_function_calls() -> None:
    machine, module = program("calls")
    out = machine.alloc(128)
    pair = np.zeros(24, np.uint8)
    pair[:4] = np.frombuffer(np.int32(11).tobytes(), np.uint8)
    pair[8:16] = np.frombuffer(np.float64(2.75).tobytes(), np.uint8)
    pair[16:19] = [1, 2, 253]
    module.launch("structs", out, pair, np.int16(-5), 3)
    assert list(machine.view(out, 128, np.int32)) == [
        t + 5 + [t, t + 1, -3][t % 3] + [1, 2, -3][t % 3] * 1000 + 11 - 15 for t in range(32)
    ]
    module.launch("recursion", out)

    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert list(machine.view(out, 128, np.int32)) == [
        fibonacci(t % 12) * 2 + (t % 2 == 0) for t in range(32)
    ]
    module.launch("pointers", out, 6)
    assert list(machine.view(out, 128, np.int32)) == [
        [t + 6, t - 6, t * 6][t % 3] for t in range(32)
    ]
    module.launch("virtuals", out)
    assert list(machine.view(out, 128, np.float32)) == [
        t * t if t & 1 else 3 * t * t for t in range(32)
    ]
    order = np.random.default_rng(2).integers(0, 64, 64, dtype=np.int32)
    module.launch("locals", out, machine.put(order), 100)
    expected = []
    for t in range(32):
        stack = [k * t for k in range(64)]
        for k in range(100):
            at = int(order[(k + t) & 63])
            stack[at] += stack[(at + 1) & 63]
        total = 0
        for x in stack:
            total = total * 31 + x
        expected.append(total % 2**32)
    assert list(machine.view(out, 128, np.uint32)) == expected


def test_library_functions() -> None:
    machine, module = program("numeric")
    n = 300
    rng = np.random.default_rng(9)
    x = np.concatenate([rng.normal(0, 30, n - 4), [0.0, 1e5, -2e6, 100.0]])
    single = x.astype(np.float32)
    f, d = machine.alloc(4 * 10 * n), machine.alloc(8 * 9 * n)
    machine.view(f, 4 * n, np.float32)[:] = single
    machine.view(d, 8 * n, np.float64)[:] = x
    with np.errstate(all="ignore"):
        s64 = single.astype(np.float64)
        s, y = np.abs(s64), np.abs(x)
        wanted_f = [s64, np.sin(s64), np.exp(single * np.float32(0.1)), np.log(s + 1), s**1.7]
        wanted_f += [np.sqrt(s), s64 / 7, 1 / np.sqrt(s + 1), np.tanh(s64), np.fmod(s64, 3)]
        wanted_d = [x, np.sin(x), np.exp(x * 0.1), np.log(y + 1), y**1.7, np.sqrt(y), x / 7]
        wanted_d += [np.cbrt(x), np.arctan2(x, 2.0)]
    module.launch("functions", f, d, n, grid=[3], block=[128])
    got_f = machine.view(f, 40 * n, np.float32).reshape(10, n)
    got_d = machine.view(d, 72 * n, np.float64).reshape(9, n)
    for i, wanted in enumerate(wanted_f):
        np.testing.assert_allclose(
            got_f[i], wanted.astype(np.float32), rtol=2e-5 if i == 4 else 3e-6, atol=2e-7
        )
    for i, wanted in enumerate(wanted_d):
        np.testing.assert_allclose(got_d[i], wanted, rtol=1e-13, atol=1e-15)


def test_divisions_and_wide_products() -> None:
    machine, module = program("numeric")
    n = 200
    rng = np.random.default_rng(4)
    a = rng.integers(-(2**63), 2**63, n, dtype=np.int64) >> rng.integers(0, 60, n)
    b = (rng.integers(-(2**63), 2**63, n, dtype=np.int64) >> rng.integers(0, 60, n)) | 1
    out = machine.alloc(80 * n)
    module.launch("divisions", machine.put(a), machine.put(b), out, n, grid=[4], block=[64])
    got = [[int(v) for v in row] for row in machine.view(out, 80 * n, np.uint64).reshape(10, n)]
    for i in range(n):
        x, y = int(a[i]), int(b[i])
        ux, uy = x & M64, y & M64
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        x32, y32 = ((v + 2**31) % 2**32 - 2**31 for v in (x, y))
        y32 |= 1
        q32 = abs(x32) // abs(y32) * (1 if (x32 < 0) == (y32 < 0) else -1)
        wide = ux * uy + ux
        assert [row[i] for row in got] == [
            v & M64
            for v in (quotient, x - quotient * y, ux // uy, ux % uy, q32, (x & 0xFFFFFFFF) % 10007,
                      ux * uy >> 64, x * y >> 64, wide >> 64, wide)
        ]  # fmt: skip


def test_nvcc_half_precision() -> None:
    machine, module = program("numeric")
    n = 256
    rng = np.random.default_rng(8)
    a = (rng.normal(0, 100, n)).astype(np.float32)
    b = (rng.normal(0, 3, n)).astype(np.float32)
    out = machine.alloc(16 * n)
    module.launch("halves", machine.put(a), machine.put(b), out, n, grid=[2], block=[128])
    got = machine.view(out, 16 * n, np.uint16).reshape(8, n)
    x, y = a.astype(np.float16), b.astype(np.float16)
    assert (got[0] == x.view(np.uint16)).all()
    toward_zero = np.where(
        np.abs(x.astype(np.float32)) > np.abs(a), np.nextafter(x, np.float16(0)), x
    )
    assert (got[1] == toward_zero.view(np.uint16)).all()
    assert (got[2] == (x + y).view(np.uint16)).all()
    assert (got[3] == (x * y).view(np.uint16)).all()
    fused = (x.astype(np.float64) * y.astype(np.float64) + x.astype(np.float64)).astype(np.float16)
    assert (got[4] == fused.view(np.uint16)).all()
    assert (got[5] == (y + y).view(np.uint16)).all()
    assert (got[6] == np.trunc(a).astype(np.float16).view(np.uint16)).all()
    assert (got[7].astype(np.int16) == np.rint(x).astype(np.int16)).all()


def test_reductions_scans_and_sorts() -> None:
    machine, module = program("warp")
    rng = np.random.default_rng(6)
    data = rng.integers(-1000, 1000, 1024, dtype=np.int32)
    out = machine.alloc(4096)
    module.launch("scan", machine.put(data), out, block=[1024])
    assert (machine.view(out, 4096, np.int32) == np.cumsum(data, dtype=np.int32)).all()
    keys = machine.put(rng.integers(0, 2**32, 512, dtype=np.uint32))
    wanted = np.sort(machine.view(keys, 2048, np.uint32))
    module.launch("bitonic", keys, block=[512], shared=2048)
    assert (machine.view(keys, 2048, np.uint32) == wanted).all()
    whole = rng.integers(0, 100, 5000).astype(np.float32)
    module.launch("reduce", machine.put(whole), out, 5000, grid=[3], block=[256])
    parts = [sum(whole[i::768].sum() for i in range(b * 256, b * 256 + 256)) for b in range(3)]
    assert list(machine.view(out, 12, np.float32)) == parts


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_compaction_and_histogram(seed: int) -> None:
    machine, module = program("warp")
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 1000, 1000, dtype=np.int32)
    out, count = machine.alloc(4000), machine.alloc(4)
    module.launch("compact", machine.put(data), out, count, 1000, grid=[8], block=[128], seed=seed)
    wanted = data[data % 3 == 0]
    assert machine.view(count, 4, np.int32)[0] == len(wanted)
    assert sorted(machine.view(out, 4 * len(wanted), np.int32)) == sorted(wanted)
    letters = rng.integers(0, 256, 3000, dtype=np.uint8)
    bins, total = machine.alloc(1024), machine.alloc(8)
    module.launch(
        "histogram", machine.put(letters), bins, total, 3000, grid=[4], block=[96], seed=seed
    )
    assert (machine.view(bins, 1024, np.uint32) == np.bincount(letters, minlength=256)).all()


def test_divergent_loops_and_switches() -> None:
    machine, module = program("warp")
    width, height, most = 64, 16, 60
    out = machine.alloc(4 * width * height)
    module.launch("mandelbrot", out, width, most, grid=[2, height], block=[32])
    got = machine.view(out, 4 * width * height, np.int32).reshape(height, width)
    one = np.float32
    for y in range(0, height, 3):
        for x in range(width):
            cr, ci = (
                one(one(x) * one(3)) / one(width) - one(2),
                one(one(y) * one(2)) / one(height) - one(1),
            )
            zr = zi = one(0)
            n = 0
            while n < most and zr * zr + zi * zi < one(4):
                zr, zi = zr * zr - zi * zi + cr, one(2) * zr * zi + ci
                n += 1
            assert got[y, x] == n
    values = np.random.default_rng(3).integers(0, 12, 500, dtype=np.int32)
    result = machine.alloc(2000)
    module.launch("switches", machine.put(values), result, 500, grid=[4], block=[128])

    def switch(i: int) -> int:
        v = int(values[i])
        cases = [
            i * 3,
            i ^ 21,
            math.isqrt(i - 1) + 1 if i else 0,
            -i,
            i // 3,
            i // 3,
            i.bit_count(),
            i << (i & 15),
            42,
        ]
        return (cases[v] if v < 9 else v + 1000) % 2**32

    assert list(machine.view(result, 2000, np.uint32)) == [switch(i) for i in range(500)]
