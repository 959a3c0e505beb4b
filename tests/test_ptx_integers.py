"""The PTX interpreter: integers and bits, against arithmetic done in Python.

Every case runs over all combinations of values that are likely to be got wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.ptx_cases import (
    EVERYONE,
    INTEGERS,
    WIDTHS,
    as_float,
    bits,
    check,
    combinations,
    compute,
    edges,
    signed,
)

pytestmark = pytest.mark.native


def divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": lambda a, b: divide(a, b) if b else -1,
    "rem": lambda a, b: a - divide(a, b) * b if b else a,
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
def test_integer_arithmetic(name: str, kind: str) -> None:
    f = INTEGER_OPERATIONS[name]
    check(
        f"{name}.{kind} %d, %a, %b;",
        kind,
        [kind, kind],
        lambda a, b: f(signed(a, kind), signed(b, kind)),
    )


@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_products(kind: str) -> None:
    width = WIDTHS[kind]

    def product(a: int, b: int) -> int:
        return signed(a, kind) * signed(b, kind)

    check(f"mul.hi.{kind} %d, %a, %b;", kind, [kind, kind], lambda a, b: product(a, b) >> width)
    check(f"mad.lo.{kind} %d, %a, %b, %c;", kind, [kind] * 3, lambda a, b, c: product(a, b) + c)
    check(
        f"mad.hi.{kind} %d, %a, %b, %c;",
        kind,
        [kind] * 3,
        lambda a, b, c: (product(a, b) >> width) + c,
    )
    if width < 64:
        wide = f"{kind[0]}{2 * width}"
        check(f"mul.wide.{kind} %d, %a, %b;", wide, [kind, kind], product)
        check(
            f"mad.wide.{kind} %d, %a, %b, %c;",
            wide,
            [kind, kind, wide],
            lambda a, b, c: product(a, b) + c,
        )


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_signs(kind: str) -> None:
    check(f"neg.{kind} %d, %a;", kind, [kind], lambda a: -signed(a, kind))
    check(f"abs.{kind} %d, %a;", kind, [kind], lambda a: abs(signed(a, kind)))


@pytest.mark.parametrize("kind", INTEGERS)
def test_sums_of_differences(kind: str) -> None:
    check(
        f"sad.{kind} %d, %a, %b, %c;",
        kind,
        [kind] * 3,
        lambda a, b, c: c + abs(signed(a, kind) - signed(b, kind)),
    )


def test_saturation() -> None:
    def clamp(x: int) -> int:
        return max(-(2**31), min(2**31 - 1, x))

    check(
        "add.sat.s32 %d, %a, %b;",
        "s32",
        ["s32", "s32"],
        lambda a, b: clamp(signed(a, "s32") + signed(b, "s32")),
    )
    check(
        "sub.sat.s32 %d, %a, %b;",
        "s32",
        ["s32", "s32"],
        lambda a, b: clamp(signed(a, "s32") - signed(b, "s32")),
    )


def test_products_of_24_bits() -> None:
    def factor(x: int, kind: str) -> int:
        x &= 0xFFFFFF
        return x - (1 << 24) if kind == "s32" and x >> 23 else x

    for kind in ("u32", "s32"):
        for half, shift in (("lo", 0), ("hi", 16)):
            check(
                f"mul24.{half}.{kind} %d, %a, %b;",
                kind,
                [kind, kind],
                lambda a, b, kind=kind, shift=shift: factor(a, kind) * factor(b, kind) >> shift,
            )
    check(
        "mad24.lo.s32 %d, %a, %b, %c;",
        "s32",
        ["s32"] * 3,
        lambda a, b, c: factor(a, "s32") * factor(b, "s32") + c,
    )


def test_dot_products() -> None:
    for x, y in itertools.product("us", "us"):

        def dot(a: int, b: int, c: int, x: str = x, y: str = y) -> int:
            return c + sum(
                signed(a >> s, f"{x}8") * signed(b >> s, f"{y}8") for s in (0, 8, 16, 24)
            )

        check(f"dp4a.{x}32.{y}32 %d, %a, %b, %c;", "s32", ["b32"] * 3, dot)


@pytest.mark.parametrize("width", [32, 64])
def test_carries(width: int) -> None:
    """Sums, differences and products of twice the width, from halves."""
    u, wide, most = f"u{width}", 2 * width, 1 << width
    load = f".reg .b{width} %x<9>; "
    cases: list[tuple[str, Callable[[int, int, int, int], int]]] = [
        (
            f"add.cc.{u} %x1, %a, %c; addc.{u} %x2, %b, %e;",
            lambda a, b, c, e: (b << width | a) + (e << width | c),
        ),
        (
            f"sub.cc.{u} %x1, %a, %c; subc.{u} %x2, %b, %e;",
            lambda a, b, c, e: (b << width | a) - (e << width | c),
        ),
        (
            f"mad.lo.cc.{u} %x1, %a, %b, %c; madc.hi.{u} %x2, %a, %b, %e;",
            lambda a, b, c, e: a * b + (e << width | c),
        ),
    ]
    columns = combinations(u, u, u, u, most=2048)
    for text, f in cases:
        low = compute(load + text + f"mov.b{width} %d, %x1;", u, [u] * 4, columns)
        high = compute(load + text + f"mov.b{width} %d, %x2;", u, [u] * 4, columns)
        for row, x, y in zip(zip(*columns, strict=True), low, high, strict=True):
            assert y << width | x == f(*row) % (1 << wide), (text, [hex(v) for v in row])
    carry = f"add.cc.{u} %x1, %a, %b; addc.cc.{u} %x2, %a, %b; addc.{u} %d, 0, 0;"
    check(load + carry, u, [u, u], lambda a, b: (a + b + (a + b >= most)) >= most)
    borrow = f"sub.cc.{u} %x1, %a, %b; subc.cc.{u} %x2, %a, %b; subc.{u} %d, 5, 0;"
    check(load + borrow, u, [u, u], lambda a, b: 5 - ((a - b - (a < b)) < 0))


@pytest.mark.parametrize("kind", ["b16", "b32", "b64"])
def test_logic(kind: str) -> None:
    for name, f in {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}.items():
        check(f"{name}.{kind} %d, %a, %b;", kind, [kind, kind], f)
    check(f"not.{kind} %d, %a;", kind, [kind], lambda a: ~a)
    check(f"cnot.{kind} %d, %a;", kind, [kind], lambda a: a == 0)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts(width: int) -> None:
    amounts = [0, 1, 5, width - 1, width, width + 1, 63, 64, 200, 2**31, 2**32 - 1]
    rows = list(itertools.product(edges(f"b{width}"), amounts))
    columns = [list(c) for c in zip(*rows, strict=True)]
    u, s = f"u{width}", f"s{width}"
    check(
        f"shl.b{width} %d, %a, %b;", u, [u, "u32"], lambda a, b: a << b if b < width else 0, columns
    )
    check(f"shr.{u} %d, %a, %b;", u, [u, "u32"], lambda a, b: a >> min(b, width), columns)
    check(
        f"shr.{s} %d, %a, %b;", s, [s, "u32"], lambda a, b: signed(a, s) >> min(b, width), columns
    )


def test_funnel_shifts() -> None:
    rows = list(
        itertools.product(edges("b32"), edges("b32"), [0, 1, 13, 31, 32, 33, 63, 2**32 - 1])
    )
    columns = [list(c) for c in zip(*rows, strict=True)]
    for mode, count in (("wrap", lambda c: c & 31), ("clamp", lambda c: min(c, 32))):
        check(
            f"shf.l.{mode}.b32 %d, %a, %b, %c;",
            "b32",
            ["b32"] * 3,
            lambda a, b, c, count=count: ((b << 32 | a) << count(c)) >> 32,
            columns,
        )
        check(
            f"shf.r.{mode}.b32 %d, %a, %b, %c;",
            "b32",
            ["b32"] * 3,
            lambda a, b, c, count=count: (b << 32 | a) >> count(c),
            columns,
        )


@pytest.mark.parametrize("width", [32, 64])
def test_bit_counts(width: int) -> None:
    b, u, s = (f"{k}{width}" for k in "bus")

    def highest(x: int) -> int:
        return x.bit_length() - 1 if x else EVERYONE

    def flipped(x: int) -> int:
        return bits(~x, b) if x >> (width - 1) else x

    check(f"popc.{b} %d, %a;", "u32", [b], int.bit_count)
    check(f"clz.{b} %d, %a;", "u32", [b], lambda a: width - a.bit_length())
    check(f"brev.{b} %d, %a;", b, [b], lambda a: int(f"{a:0{width}b}"[::-1], 2))
    check(f"bfind.{u} %d, %a;", "u32", [u], highest)
    check(f"bfind.{s} %d, %a;", "u32", [s], lambda a: highest(flipped(a)))
    check(
        f"bfind.shiftamt.{u} %d, %a;",
        "u32",
        [u],
        lambda a: width - 1 - highest(a) if a else EVERYONE,
    )


@pytest.mark.parametrize("width", [32, 64])
def test_bit_fields(width: int) -> None:
    numbers = [0, 1, 5, 8, 31, 32, 40, 63, 64, 255, 256 + 3]
    rows = list(itertools.product(edges(f"b{width}"), numbers, numbers))
    columns = [list(c) for c in zip(*rows, strict=True)]

    def extract(a: int, position: int, length: int, sign: bool) -> int:
        position, length = position & 255, length & 255
        last = a >> min(position + length - 1, width - 1) & 1 if sign and length else 0
        out = 0
        for i in range(width):
            inside = i < length and position + i < width
            out |= (a >> (position + i) & 1 if inside else last) << i
        return out

    def insert(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for i in range(length):
            if position + i < width:
                b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
        return b

    u, s, b = f"u{width}", f"s{width}", f"b{width}"
    check(
        f"bfe.{u} %d, %a, %b, %c;",
        u,
        [u, "u32", "u32"],
        lambda a, p, n: extract(a, p, n, False),
        columns,
    )
    check(
        f"bfe.{s} %d, %a, %b, %c;",
        s,
        [s, "u32", "u32"],
        lambda a, p, n: extract(a, p, n, True),
        columns,
    )
    both = [columns[0], columns[0][::-1], columns[1], columns[2]]
    check(f"bfi.{b} %d, %a, %b, %c, %e;", b, [b, b, "u32", "u32"], insert, both)


def test_permutations() -> None:
    modes = {
        "f4e": [0x3210, 0x4321, 0x5432, 0x6543],
        "b4e": [0x5670, 0x6701, 0x7012, 0x0123],
        "rc8": [0x0000, 0x1111, 0x2222, 0x3333],
        "ecl": [0x3210, 0x3211, 0x3222, 0x3333],
        "ecr": [0x0000, 0x1110, 0x2210, 0x3210],
        "rc16": [0x1010, 0x3232, 0x1010, 0x3232],
    }

    def permute(a: int, b: int, selector: int) -> int:
        out = 0
        for i in range(4):
            s = selector >> 4 * i & 15
            byte = (b << 32 | a) >> 8 * (s & 7) & 255
            out |= (255 * (byte >> 7) if s & 8 else byte) << 8 * i
        return out

    check("prmt.b32 %d, %a, %b, %c;", "b32", ["b32"] * 3, permute)
    for mode, selectors in modes.items():
        check(
            f"prmt.b32.{mode} %d, %a, %b, %c;",
            "b32",
            ["b32"] * 3,
            lambda a, b, c, selectors=selectors: permute(a, b, selectors[c & 3]),
        )


def test_masks_and_extensions() -> None:
    numbers = [0, 1, 5, 16, 31, 32, 33, 255, 2**31]
    rows = list(itertools.product(numbers, numbers))
    columns = [list(c) for c in zip(*rows, strict=True)]

    def mask(position: int, length: int, clamp: bool) -> int:
        if not clamp:
            position, length = position & 31, length & 31
        return ((1 << min(length, 32)) - 1) << min(position, 32)

    for mode in ("clamp", "wrap"):
        check(
            f"bmsk.{mode}.b32 %d, %a, %b;",
            "b32",
            ["b32", "b32"],
            lambda a, b, clamp=mode == "clamp": mask(a, b, clamp),
            columns,
        )

    def extend(a: int, n: int, sign: bool, clamp: bool) -> int:
        if clamp and n > 31:
            return a
        n &= 31
        a &= (1 << n) - 1
        return a - (1 << n) if sign and n and a >> (n - 1) else a

    rows = list(itertools.product(edges("b32"), numbers))
    columns = [list(c) for c in zip(*rows, strict=True)]
    for mode, kind in itertools.product(("clamp", "wrap"), ("u32", "s32")):
        check(
            f"szext.{mode}.{kind} %d, %a, %b;",
            kind,
            [kind, "u32"],
            lambda a, b, s=kind == "s32", clamp=mode == "clamp": extend(a, b, s, clamp),
            columns,
        )

    def nth(m: int, base: int, offset: int) -> int:
        offset = signed(offset, "s32")
        if base > 31 or offset == 0:
            return base if base < 32 and m >> base & 1 else EVERYONE
        order = range(base, 32) if offset > 0 else range(base, -1, -1)
        places = [i for i in order if m >> i & 1]
        return places[abs(offset) - 1] if abs(offset) <= len(places) else EVERYONE

    rows3 = list(
        itertools.product(edges("b32"), [0, 3, 17, 31, 32], [0, 1, 2, 9, -1 % 2**32, -3 % 2**32])
    )
    check(
        "fns.b32 %d, %a, %b, %c;",
        "b32",
        ["b32"] * 3,
        nth,
        [list(c) for c in zip(*rows3, strict=True)],
    )


@pytest.mark.parametrize("table", [0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF])
def test_three_input_logic(table: int) -> None:
    def lop3(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i
            for i in range(32)
        )

    check(
        f"lop3.b32 %d, %a, %b, %c, {table};",
        "b32",
        ["b32"] * 3,
        lop3,
        combinations("b32", "b32", "b32", most=300),
    )


def test_packing() -> None:
    check("mov.b64 %d, {%a, %b};", "b64", ["b32", "b32"], lambda a, b: b << 32 | a)
    check("mov.b32 %d, {%a, %b};", "b32", ["b16", "b16"], lambda a, b: b << 16 | a)
    halves = ".reg .b16 %h<5>; "
    check(
        halves + "mov.b32 {%h1, %h2}, %a; mov.b32 %d, {%h2, %h1};",
        "b32",
        ["b32"],
        lambda a: (a >> 16) | a << 16,
    )
    check(
        "mov.b64 {%r1, %r2}, %a; mov.b64 %d, {%r2, %r1};",
        "b64",
        ["b64"],
        lambda a: (a >> 32) | a << 32,
    )
    four = halves + "mov.b64 {%h1, %h2, %h3, %h4}, %a; mov.b64 %d, {%h4, %h3, %h2, %h1};"
    check(
        four,
        "b64",
        ["b64"],
        lambda a: sum((a >> 16 * i & 0xFFFF) << 16 * (3 - i) for i in range(4)),
    )
    check("mov.b64 {_, %d}, %a;", "b32", ["b64"], lambda a: a >> 32)


def test_selection() -> None:
    check(
        "setp.gt.s32 %p, %a, 0; selp.b64 %d, %b, 77, %p;",
        "b64",
        ["s32", "b64"],
        lambda a, b: b if signed(a, "s32") > 0 else 77,
    )
    check(
        "slct.s32.s32 %d, %a, %b, %c;",
        "s32",
        ["s32"] * 3,
        lambda a, b, c: a if signed(c, "s32") >= 0 else b,
    )
    check(
        "slct.b64.f32 %d, %a, %b, %c;",
        "b64",
        ["b64", "b64", "f32"],
        lambda a, b, c: a if as_float(c, "f32") >= 0 else b,
    )
