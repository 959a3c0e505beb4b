"""What the tests of the PTX interpreter share: making kernels, running them, judging bits."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ptx_machine import HEADER, Array, Machine, Module, PtxError

EVERYONE = 0xFFFFFFFF
WIDTHS = {"b8": 8, "b16": 16, "b32": 32, "b64": 64, "f16": 16, "f32": 32, "f64": 64}
for _n in (8, 16, 32, 64):
    WIDTHS |= {f"u{_n}": _n, f"s{_n}": _n}
INTEGERS = ["u16", "s16", "u32", "s32", "u64", "s64"]


def bits(value: int, kind: str) -> int:
    """value cut to the width of kind."""
    return value & ((1 << WIDTHS[kind]) - 1)


def signed(value: int, kind: str) -> int:
    """The number that the bits of kind mean."""
    width = WIDTHS[kind]
    value = bits(value, kind)
    return value - (1 << width) if kind[0] == "s" and value >> (width - 1) else value


def f32_bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def f64_bits(x: float) -> int:
    return int(np.float64(x).view(np.uint64))


def as_float(pattern: int, kind: str) -> float:
    if kind == "f16":
        return float(np.uint16(pattern).view(np.float16))
    codes = ("<I", "<f") if kind == "f32" else ("<Q", "<d")
    return float(struct.unpack(codes[1], struct.pack(codes[0], pattern))[0])


def register(kind: str) -> str:
    return "pred" if kind == "pred" else f"b{max(WIDTHS[kind], 16)}"


def compute(
    instructions: str,
    out: str,
    kinds: Sequence[str],
    columns: Sequence[Sequence[int]],
    **options: Any,
) -> list[int]:
    """Runs instructions once for each row of columns: %a, %b, … are loaded as kinds say, %d is
    stored as out; %p, %q, %r<9> and %l<9> are free. Values go in and come out as bits."""
    count = len(columns[0])
    names = "abcef"[: len(kinds)]
    lines = [f".reg .{register(k)} %{n};" for n, k in zip(names, kinds, strict=True)]
    body = []
    for i, (n, k) in enumerate(zip(names, kinds, strict=True)):
        body.append(f"ld.param.u64 %base, [p{i}]; add.u64 %base, %base, %at;")
        body.append(f"ld.global.b{max(WIDTHS[k], 8)} %{n}, [%base];")
    parameters = (
        ", ".join(f".param .u64 p{i}" for i in range(len(kinds) + 1)) + ", .param .u32 count"
    )
    text = (
        HEADER
        + f"""
.visible .entry k({parameters})
{{
	.reg .pred %p, %q, %beyond; .reg .b32 %r<9>, %index, %n; .reg .b64 %l<9>, %at, %base;
	.reg .{register(out)} %d;
	{" ".join(lines)}
	mov.u32 %index, %ctaid.x; mov.u32 %n, %ntid.x; mul.lo.u32 %index, %index, %n;
	mov.u32 %n, %tid.x; add.u32 %index, %index, %n; ld.param.u32 %n, [count];
	setp.ge.u32 %beyond, %index, %n; @%beyond bra done;
	mul.wide.u32 %at, %index, 8;
	{" ".join(body)}
	{instructions}
	ld.param.u64 %base, [p{len(kinds)}]; add.u64 %base, %base, %at;
	st.global.b{WIDTHS[out]} [%base], %d;
done:
	ret;
}}
"""
    )
    machine = Machine()
    addresses = [machine.put(np.array([v & (2**64 - 1) for v in c], np.uint64)) for c in columns]
    result = machine.alloc(8 * count)
    machine.load(text).launch(
        "k", *addresses, result, count, grid=[(count + 63) // 64], block=[64], **options
    )
    return [bits(int(v), out) for v in machine.view(result, 8 * count, np.uint64)]


def edges(kind: str) -> list[int]:
    """Bit patterns of special values."""
    width = WIDTHS[kind]
    if kind == "f32":
        floats = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.5,
            3.0,
            -7.25,
            0.1,
            1e10,
            -1e-10,
            1e38,
            3e-39,
            -1e-45,
            math.inf,
            -math.inf,
        ]
        return [f32_bits(x) for x in floats] + [
            0x7F800001,
            0xFFC12345,
            0x00800000,
            0x007FFFFF,
            0x7F7FFFFF,
            0x3F7FFFFF,
        ]
    if kind == "f64":
        floats = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.5,
            3.0,
            -7.25,
            0.1,
            1e10,
            -1e-200,
            1e308,
            3e-310,
            math.inf,
            -math.inf,
        ]
        return [f64_bits(x) for x in floats] + [
            0x7FF8000000000000,
            0x0010000000000000,
            0x7FEFFFFFFFFFFFFF,
            1,
        ]
    top = 1 << (width - 1)
    random.seed(width)
    return [0, 1, 2, 3, 7, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2] + [
        random.getrandbits(width) for _ in range(6)
    ]


def combinations(*kinds: str, most: int = 4096) -> list[list[int]]:
    """Columns that hold every combination of edges, thinned out to at most most rows."""
    rows = list(itertools.product(*(edges(k) for k in kinds)))
    if len(rows) > most:
        rows = random.Random(len(rows)).sample(rows, most)
    return [list(c) for c in zip(*rows, strict=True)]


def check(
    instructions: str,
    out: str,
    kinds: Sequence[str],
    expected: Callable[..., int],
    columns: list[list[int]] | None = None,
) -> None:
    """compute over combinations (or columns) gives what expected says of the bits."""
    columns = columns or combinations(*kinds)
    got = compute(instructions, out, kinds, columns)
    for row, value in zip(zip(*columns, strict=True), got, strict=True):
        want = bits(expected(*row), out)
        assert value == want, (
            f"{instructions} of {[hex(v) for v in row]}: {value:#x}, not {want:#x}"
        )


DATA = Path(__file__).resolve().parent / "data" / "ptx"
M64 = 2**64 - 1


def kernel(parameters: str, body: str, before: str = "", name: str = "k") -> str:
    """A module with one kernel that has the usual registers; %t is the thread's index in its
    block and %o the address 4 * %t beyond the first parameter."""
    return (
        HEADER
        + f"""{before}
.visible .entry {name}({parameters})
{{
	.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<30>, %t; .reg .b64 %l<30>, %o, %base;
	.reg .f32 %f<9>; .reg .f64 %d<9>;
	mov.u32 %t, %tid.x; ld.param.u64 %base, [out]; mad.wide.u32 %o, %t, 4, %base;
{body}
	ret;
}}
"""
    )


def run(
    body: str, before: str = "", threads: int = 32, dtype: Any = np.uint32, **options: Any
) -> Array:
    """Runs one block, and returns what its threads store at %o."""
    machine = Machine()
    out = machine.alloc(8 * threads)
    machine.load(kernel(".param .u64 out", body, before)).launch(
        "k", out, block=[threads], **options
    )
    result: Array = machine.view(out, 4 * threads, dtype).copy()
    return result


def failure(
    body: str, before: str = "", parameters: str = ".param .u64 out", **options: Any
) -> PtxError:
    machine = Machine()
    out = machine.alloc(256)
    with pytest.raises(PtxError) as error:
        machine.load(kernel(parameters, body, before)).launch("k", out, **options)
    return error.value


def attempt(f: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, str]:
    """What f returns and "", or None and the message it failed with."""
    try:
        return f(*arguments, **options), ""
    except PtxError as error:
        return None, error.message


def program(name: str) -> tuple[Machine, Module]:
    machine = Machine()
    return machine, machine.load((DATA / f"{name}.ptx").read_text())


FORMATS = {"f16": (11, -14, 15), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def rounded(x: Fraction, kind: str, mode: str) -> int:
    """Bits of an exact number (not zero) rounded to kind."""
    precision, least, most = FORMATS[kind]
    width = WIDTHS[kind]
    sign = x < 0
    x = abs(x)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > x:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    whole, rest = divmod(x, unit)
    rest /= unit
    away = (mode == "rm" and sign) or (mode == "rp" and not sign)
    if mode == "rn":
        away = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    whole += 1 if away and rest else 0
    pattern = int(whole)
    if exponent >= least:
        pattern += (exponent - least) << (precision - 1)
    infinite = (2 * most + 1) << (precision - 1)
    if pattern >= infinite:
        grows = mode == "rn" or (mode == "rm" and sign) or (mode == "rp" and not sign)
        pattern = infinite if grows else infinite - 1
    return pattern | sign << (width - 1)
