"""The PTX interpreter: comparisons, and conversions between all types."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from operator import and_, or_, xor
from typing import Any

import numpy as np
import pytest

from tests.ptx_cases import (
    EVERYONE,
    INTEGERS,
    WIDTHS,
    as_float,
    bits,
    check,
    compute,
    edges,
    f32_bits,
    f64_bits,
    rounded,
    signed,
)

pytestmark = pytest.mark.native

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_integer_comparisons(name: str, kind: str) -> None:
    f = COMPARISONS[name]
    wanted = lambda a, b: 1 if f(signed(a, kind), signed(b, kind)) else 2  # noqa: E731
    check(f"setp.{name}.{kind} %p, %a, %b; selp.b32 %d, 1, 2, %p;", "b32", [kind, kind], wanted)
    alias = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}.get(name)
    if alias and kind[0] == "u":
        check(
            f"setp.{alias}.{kind} %p, %a, %b; selp.b32 %d, 1, 2, %p;", "b32", [kind, kind], wanted
        )


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_float_comparisons(name: str, kind: str) -> None:
    f = COMPARISONS[name]

    def ordered(a: int, b: int) -> int:
        x, y = as_float(a, kind), as_float(b, kind)
        return not (math.isnan(x) or math.isnan(y)) and f(x, y)

    def unordered(a: int, b: int) -> int:
        x, y = as_float(a, kind), as_float(b, kind)
        return math.isnan(x) or math.isnan(y) or f(x, y)

    check(f"setp.{name}.{kind} %p, %a, %b; selp.b32 %d, 1, 0, %p;", "b32", [kind, kind], ordered)
    check(f"setp.{name}u.{kind} %p, %a, %b; selp.b32 %d, 1, 0, %p;", "b32", [kind, kind], unordered)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_ordered_and_unordered_comparisons(kind: str) -> None:
    def nan(a: int, b: int) -> bool:
        return math.isnan(as_float(a, kind)) or math.isnan(as_float(b, kind))

    check(
        f"setp.num.{kind} %p, %a, %b; selp.b32 %d, 1, 0, %p;",
        "b32",
        [kind, kind],
        lambda a, b: not nan(a, b),
    )
    check(f"setp.nan.{kind} %p, %a, %b; selp.b32 %d, 1, 0, %p;", "b32", [kind, kind], nan)


def test_flushed_comparisons() -> None:
    tiny = f32_bits(1e-40)
    text = "setp.gt.ftz.f32 %p, %a, 0f00000000; selp.b32 %d, 1, 0, %p;"
    assert compute(text, "b32", ["f32"], [[tiny, f32_bits(1e-30)]]) == [0, 1]
    assert compute(text.replace(".ftz", ""), "b32", ["f32"], [[tiny]]) == [1]


@pytest.mark.parametrize("boolean", ["and", "or", "xor"])
def test_combined_comparisons(boolean: str) -> None:
    f: Callable[[bool, bool], bool] = {"and": and_, "or": or_, "xor": xor}[boolean]
    text = f"""setp.lt.u32 %q, %b, 100; setp.lt.{boolean}.s32 %p|%q, %a, 0, !%q;
        selp.b32 %r1, 1, 0, %p; selp.b32 %r2, 2, 0, %q; or.b32 %d, %r1, %r2;"""

    def wanted(a: int, b: int) -> int:
        less, other = signed(a, "s32") < 0, b >= 100
        return (1 if f(less, other) else 0) | (2 if f(not less, other) else 0)

    check(text, "b32", ["s32", "u32"], wanted)


def test_set_and_predicates() -> None:
    check(
        "set.lt.u32.s32 %d, %a, %b;",
        "u32",
        ["s32", "s32"],
        lambda a, b: EVERYONE if signed(a, "s32") < signed(b, "s32") else 0,
    )
    check(
        "set.ge.f32.u32 %d, %a, %b;",
        "b32",
        ["u32", "u32"],
        lambda a, b: 0x3F800000 if a >= b else 0,
    )
    text = """setp.lt.u32 %p, %a, 5; setp.lt.u32 %q, %b, 5;
        .reg .pred %s<6>; and.pred %s1, %p, %q; or.pred %s2, %p, !%q;
        xor.pred %s3, %p, %q; not.pred %s4, %p; mov.pred %s5, %q; mov.b32 %d, 0;
        @%s1 or.b32 %d, %d, 1; @%s2 or.b32 %d, %d, 2; @%s3 or.b32 %d, %d, 4; @!%s4 or.b32 %d, %d, 8;
        @%s5 or.b32 %d, %d, 16;"""

    def wanted(a: int, b: int) -> int:
        p, q = a < 5, b < 5
        return (p and q) | (p or not q) << 1 | (p != q) << 2 | p << 3 | q << 4

    check(text, "b32", ["u32", "u32"], wanted)


def test_classes_of_floats() -> None:
    tests: dict[str, Callable[[float, int], bool]] = {
        "finite": lambda x, _: math.isfinite(x),
        "infinite": lambda x, _: math.isinf(x),
        "number": lambda x, _: not math.isnan(x),
        "notanumber": lambda x, _: math.isnan(x),
        "normal": lambda x, b: math.isfinite(x) and b >> 23 & 255 != 0,
        "subnormal": lambda x, b: b & 0x7FFFFFFF != 0 and b >> 23 & 255 == 0,
    }
    for name, f in tests.items():
        check(
            f"testp.{name}.f32 %p, %a; selp.b32 %d, 1, 0, %p;",
            "b32",
            ["f32"],
            lambda a, f=f: f(as_float(a, "f32"), a),
        )
    check(
        "copysign.f32 %d, %a, %b;",
        "b32",
        ["f32", "f32"],
        lambda a, b: a & 0x80000000 | b & 0x7FFFFFFF,
    )


@pytest.mark.parametrize("to", ["u8", "s8", *INTEGERS])
def test_integer_conversions(to: str) -> None:
    for kind in ["u8", "s8", *INTEGERS]:
        register_kind = {"u8": "u16", "s8": "s16"}.get(kind, kind)
        columns = [edges(register_kind)]
        low, high = (
            (0, 2 ** WIDTHS[to] - 1)
            if to[0] == "u"
            else (-(2 ** (WIDTHS[to] - 1)), 2 ** (WIDTHS[to] - 1) - 1)
        )
        # Through a register that is wider than the result, to see it extended.
        wide = (
            "cvt.{0}.{1} %l1, %a; mov.b64 %d, %l1;"
            if to != "u64" and to != "s64"
            else "cvt.{0}.{1} %d, %a;"
        )
        check(
            wide.format(to, kind),
            "b64",
            [register_kind],
            lambda a, k=kind: signed(signed(a, k), to),
            columns,
        )
        check(
            wide.format("sat." + to, kind),
            "b64",
            [register_kind],
            lambda a, k=kind, low=low, high=high: min(max(signed(a, k), low), high),
            columns,
        )


def test_conversions_into_wider_registers() -> None:
    check("cvt.s8.s32 %d, %a;", "b16", ["s32"], lambda a: signed(a, "s8"))
    check(
        "cvt.s8.s32 %d, %a; shr.u16 %d, %d, 4;",
        "b16",
        ["s32"],
        lambda a: bits(signed(a, "s8"), "u16") >> 4,
    )
    check("cvt.s16.s32 %d, %a;", "b32", ["s32"], lambda a: signed(a, "s16"))
    check("cvt.s32.s8 %d, %a;", "b32", ["b64"], lambda a: signed(a, "s8"))
    check("cvt.u32.u16 %d, %a;", "b32", ["b32"], lambda a: a & 0xFFFF)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers(mode: str, kind: str) -> None:
    modes: dict[str, Callable[[float], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }
    whole = modes[mode]
    values = [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        1e-30,
        127.5,
        -128.5,
        65535.5,
        2147483647.0,
        -2147483648.0,
        4e9,
        -4e9,
        9.2e18,
        -9.3e18,
        1.8e19,
        1e30,
        -1e30,
        math.inf,
        -math.inf,
    ]
    patterns = [f32_bits(np.float32(x)) if kind == "f32" else f64_bits(x) for x in values]
    patterns.append(0x7FC00000 if kind == "f32" else 0x7FF8000000000000)
    for to in ["u8", "s8", *INTEGERS]:
        width = WIDTHS[to]
        low, high = (
            (0, 2**width - 1) if to[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
        )

        def wanted(
            a: int, to: str = to, width: int = width, low: int = low, high: int = high
        ) -> int:
            x = as_float(a, kind)
            if math.isnan(x):
                return signed(1 << (width - 1), to) if kind == "f64" or width == 64 else 0
            return (high if x > 0 else low) if math.isinf(x) else min(max(whole(x), low), high)

        out = "%l1" if width < 64 else "%d"
        check(
            f"cvt.{mode}.{to}.{kind} {out}, %a; {'mov.b64 %d, %l1;' if width < 64 else ''}",
            "b64",
            [kind],
            wanted,
            [patterns],
        )


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_to_floats(mode: str) -> None:
    for kind, to in itertools.product(["u8", "s8", *INTEGERS], ["f32", "f64"]):
        register_kind = {"u8": "u16", "s8": "s16"}.get(kind, kind)

        def wanted(a: int, kind: str = kind, to: str = to) -> int:
            x = signed(a, kind)
            return rounded(Fraction(x), to, mode) if x else 0

        check(
            f"cvt.{mode}.{to}.{kind} %d, %a;", to, [register_kind], wanted, [edges(register_kind)]
        )


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_floats_to_narrower_floats(mode: str) -> None:
    rng = random.Random(3)
    values = [rng.uniform(-2, 2) * 2.0 ** rng.randint(-150, 126) for _ in range(500)]
    values += [
        65504.0,
        65519.0,
        65520.0,
        2.0**-24,
        2.0**-25,
        1.5 * 2.0**-25,
        2.0**-26,
        -(2.0**-14),
        1 + 2.0**-11,
        1 + 2.0**-10,
    ]

    def check_kind(source: str, to: str, name: str) -> None:
        patterns = [f32_bits(np.float32(x)) if source == "f32" else f64_bits(x) for x in values]
        patterns = [
            p for p in patterns if math.isfinite(as_float(p, source)) and as_float(p, source)
        ]
        check(
            name,
            to,
            [source],
            lambda a: rounded(Fraction(as_float(a, source)), to, mode),
            [patterns],
        )

    check_kind("f64", "f32", f"cvt.{mode}.f32.f64 %d, %a;")
    if mode in ("rn", "rz"):
        check_kind("f32", "f16", f"cvt.{mode}.f16.f32 %d, %a;")
        check_kind("f64", "f16", f"cvt.{mode}.f16.f64 %d, %a;")


def test_float_conversions_without_loss() -> None:
    check(
        "cvt.f64.f32 %d, %a;",
        "b64",
        ["f32"],
        lambda a: f64_bits(as_float(a, "f32")),
        [[e for e in edges("f32") if not math.isnan(as_float(e, "f32"))]],
    )
    everything = [h for h in range(0, 65536, 7) if h & 0x7FFF <= 0x7C00]
    check(
        "cvt.f32.f16 %d, %a;", "b32", ["f16"], lambda a: f32_bits(as_float(a, "f16")), [everything]
    )
    check(
        "cvt.rni.f32.f32 %d, %a;",
        "b32",
        ["f32"],
        lambda a: f32_bits(np.rint(np.float32(as_float(a, "f32")))),
        [[f32_bits(x) for x in (0.5, 1.5, -2.5, 1e20, -0.2, 7.0)]],
    )
    values = [f32_bits(x) for x in (-1.0, 0.5, 3.0)]
    assert compute("cvt.sat.f32.f32 %d, %a;", "b32", ["f32"], [values]) == [
        0,
        f32_bits(0.5),
        f32_bits(1),
    ]
    assert compute("cvt.ftz.f64.f32 %d, %a;", "b64", ["f32"], [[f32_bits(1e-40)]]) == [0]
    assert compute("cvt.rn.f32.f64 %d, %a;", "b32", ["f64"], [[0x7FF8000000000001]]) == [0x7FFFFFFF]
