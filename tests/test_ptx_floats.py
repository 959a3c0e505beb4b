"""The PTX interpreter: floating-point arithmetic, against exact fractions rounded once."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.ptx_cases import (
    EVERYONE,
    WIDTHS,
    as_float,
    check,
    compute,
    edges,
    f32_bits,
    f64_bits,
    rounded,
)

pytestmark = pytest.mark.native

CANONICAL = {"f16": 0x7FFF, "f32": 0x7FFFFFFF}
FLOAT_OPERATIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "div": (2, lambda a, b: a / b),
    "fma": (3, lambda a, b, c: a * b + c),
}


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", FLOAT_OPERATIONS)
def test_exact_rounding(name: str, kind: str, mode: str) -> None:
    """Every operation on numbers rounds its exact result once, in the direction asked for."""
    count, f = FLOAT_OPERATIONS[name]
    rows = []
    rng = random.Random(name + kind)
    for _ in range(1500):
        spread = rng.choice([2, 30, 150 if kind == "f32" else 1000])
        values = [
            rng.uniform(-2, 2) * 2.0 ** rng.randint(-spread, min(spread, 120)) for _ in range(count)
        ]
        rows.append([f32_bits(np.float32(x)) if kind == "f32" else f64_bits(x) for x in values])
    columns = [list(c) for c in zip(*rows, strict=True)]
    got = compute(
        f"{name}.{mode}.{kind} %d, %a, %b{', %c' if count == 3 else ''};",
        f"b{WIDTHS[kind]}",
        [kind] * count,
        columns,
    )
    tested = 0
    for row, value in zip(rows, got, strict=True):
        numbers = [Fraction(as_float(b, kind)) for b in row]
        if name == "div" and not numbers[1]:
            continue
        exact = f(*numbers)
        if exact:
            tested += 1
            assert value == rounded(exact, kind, mode), (name, mode, [hex(b) for b in row])
    assert tested > 1400


@pytest.mark.parametrize("name", FLOAT_OPERATIONS)
def test_f32_special_values(name: str) -> None:
    """Infinities, zeros and NaN as IEEE has them; a NaN result is the canonical one."""
    count, f = FLOAT_OPERATIONS[name]

    def wanted(*patterns: int) -> int:
        with np.errstate(all="ignore"):
            x = [np.float32(as_float(b, "f32")) for b in patterns]
            if name == "fma":
                exact = np.float64(x[0]) * np.float64(x[1]) + np.float64(x[2])
                if math.isfinite(exact) and exact != 0:
                    return rounded(
                        Fraction(float(x[0])) * Fraction(float(x[1])) + Fraction(float(x[2])),
                        "f32",
                        "rn",
                    )
                result = np.float32(exact)
            else:
                result = np.float32(f(*x))
        return CANONICAL["f32"] if np.isnan(result) else int(result.view(np.uint32))

    check(
        f"{name}.rn.f32 %d, %a, %b{', %c' if count == 3 else ''};", "b32", ["f32"] * count, wanted
    )


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_roots_and_reciprocals(kind: str) -> None:
    numpy = np.float32 if kind == "f32" else np.float64

    def pattern(x: Any) -> int:
        if np.isnan(x) and kind == "f32":
            return CANONICAL["f32"]
        return f32_bits(x) if kind == "f32" else f64_bits(x)

    with np.errstate(all="ignore"):
        columns = [[e for e in edges(kind) if not math.isnan(as_float(e, kind))]]
        positive = [[e for e in columns[0] if as_float(e, kind) >= 0]]
        check(
            f"sqrt.rn.{kind} %d, %a;",
            kind,
            [kind],
            lambda a: pattern(np.sqrt(numpy(as_float(a, kind)))),
            positive,
        )
        check(
            f"rcp.rn.{kind} %d, %a;",
            kind,
            [kind],
            lambda a: pattern(numpy(1) / numpy(as_float(a, kind))),
            columns,
        )


def test_minimum_and_maximum() -> None:
    def choose(least: bool, propagate: bool) -> Callable[[int, int], int]:
        def f(a: int, b: int) -> int:
            x, y = as_float(a, "f32"), as_float(b, "f32")
            if (math.isnan(x) and math.isnan(y)) or (
                propagate and (math.isnan(x) or math.isnan(y))
            ):
                return CANONICAL["f32"]
            if math.isnan(x) or math.isnan(y):
                return b if math.isnan(x) else a
            if x == y:
                return a | b if least else a & b
            return a if (x < y) == least else b

        return f

    check("min.f32 %d, %a, %b;", "b32", ["f32", "f32"], choose(True, False))
    check("max.f32 %d, %a, %b;", "b32", ["f32", "f32"], choose(False, False))
    check("min.NaN.f32 %d, %a, %b;", "b32", ["f32", "f32"], choose(True, True))
    check("max.NaN.f32 %d, %a, %b;", "b32", ["f32", "f32"], choose(False, True))


def test_flushing_and_saturation() -> None:
    tiny, small = f32_bits(1e-40), f32_bits(1.2e-38)
    negative = tiny | 0x80000000
    assert compute(
        "add.ftz.f32 %d, %a, %b;",
        "b32",
        ["f32", "f32"],
        [[tiny, negative, small], [0, 0x80000000, tiny]],
    ) == [0, 0x80000000, small]
    assert compute("add.f32 %d, %a, %b;", "b32", ["f32", "f32"], [[tiny], [0]]) == [tiny]
    assert compute(
        "mul.ftz.f32 %d, %a, %b;", "b32", ["f32", "f32"], [[small], [f32_bits(-0.5)]]
    ) == [0x80000000]
    assert compute("neg.ftz.f32 %d, %a;", "b32", ["f32"], [[tiny]]) == [0x80000000]
    assert compute("abs.ftz.f32 %d, %a;", "b32", ["f32"], [[negative]]) == [0]
    values = [f32_bits(x) for x in (-3.0, 0.25, 7.0)] + [0x7FC00000]
    assert compute("add.sat.f32 %d, %a, 0f00000000;", "b32", ["f32"], [values]) == [
        0,
        f32_bits(0.25),
        f32_bits(1),
        0,
    ]
    assert compute("fma.rn.ftz.sat.f32 %d, %a, %a, %a;", "b32", ["f32"], [values]) == [
        f32_bits(1),
        f32_bits(0.3125),
        f32_bits(1),
        0,
    ]


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("sin", math.sin),
        ("cos", math.cos),
        ("ex2", lambda x: 2.0**x),
        ("lg2", lambda x: math.log2(abs(x))),
        ("tanh", math.tanh),
        ("rsqrt", lambda x: 1 / math.sqrt(abs(x))),
        ("rcp", lambda x: 1 / x),
        ("sqrt", lambda x: math.sqrt(abs(x))),
    ],
)
def test_approximations(name: str, f: Callable[[float], float]) -> None:
    values = [0.1, 0.5, 1.0, 2.75, 9.0, -0.3, -2.0, 30.0]
    absolute = "abs.f32 %a, %a;" if name in ("lg2", "rsqrt", "sqrt") else ""
    got = compute(
        f"{absolute} {name}.approx.ftz.f32 %d, %a;", "b32", ["f32"], [[f32_bits(x) for x in values]]
    )
    for x, value in zip(values, got, strict=True):
        assert as_float(value, "f32") == pytest.approx(f(float(np.float32(x))), rel=1e-6, abs=1e-7)


def test_gross_approximations() -> None:
    for x in (3.0, -7.5, 1e100):
        [got] = compute("rcp.approx.ftz.f64 %d, %a;", "b64", ["f64"], [[f64_bits(x)]])
        assert got & EVERYONE == 0
        assert as_float(got, "f64") == pytest.approx(1 / x, rel=2**-19)
    [got] = compute("rsqrt.approx.f64 %d, %a;", "b64", ["f64"], [[f64_bits(2.0)]])
    assert as_float(got, "f64") == pytest.approx(2**-0.5, rel=2**-19)


HALF_VALUES = [
    0,
    0x8000,
    1,
    0x8001,
    0x3FF,
    0x400,
    0x3C00,
    0xBC00,
    0x3555,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E00,
    0x6400,
]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_half_precision(name: str) -> None:
    count, f = FLOAT_OPERATIONS[name]
    rng = random.Random(7)
    rows = list(itertools.product(HALF_VALUES, repeat=2)) if count == 2 else []
    rows += [tuple(rng.getrandbits(16) for _ in range(count)) for _ in range(1500)]
    columns = [list(c) for c in zip(*rows, strict=True)]

    def wanted(*patterns: int) -> int:
        numbers = [as_float(b, "f16") for b in patterns]
        if all(math.isfinite(x) for x in numbers):
            exact = f(*map(Fraction, numbers))
            if exact:
                return rounded(exact, "f16", "rn")
        with np.errstate(all="ignore"):
            result = f(*map(np.float64, numbers))
        return CANONICAL["f16"] if np.isnan(result) else int(np.float16(result).view(np.uint16))

    operands = "%a, %b, %c" if count == 3 else "%a, %b"
    check(f"{name}.rn.f16 %d, {operands};", "b16", ["f16"] * count, wanted, columns)
    paired = [[a | b << 16 for a, b in zip(c, c[::-1], strict=True)] for c in columns]
    check(
        f"{name}.rn.f16x2 %d, {operands};",
        "b32",
        ["b32"] * count,
        lambda *p: wanted(*(x & 0xFFFF for x in p)) | wanted(*(x >> 16 for x in p)) << 16,
        paired,
    )
