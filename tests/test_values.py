"""Memory as numbers, against what plain Python makes of the same bits."""

from __future__ import annotations

import itertools
import json
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ttanalyze.core import values
from ttanalyze.core.values import TYPES, Tolerance, Type, compare_values, parse, summarise
from ttanalyze.core.values.compare import Comparison
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array

# Exponent and fraction bits of the floats, and whether the largest exponent has infinities.
FLOATS = {
    "f16": (5, 10, True),
    "bf16": (8, 7, True),
    "f32": (8, 23, True),
    "f64": (11, 52, True),
    "e4m3": (4, 3, False),
    "e5m2": (5, 2, True),
}
EVERY = sorted(TYPES)


def decoded(name: str, bits: int) -> float:
    """A float from its bits, by the book."""
    exponent_bits, fraction_bits, infinities = FLOATS[name]
    sign = -1.0 if bits >> (exponent_bits + fraction_bits) else 1.0
    exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        if infinities:
            return math.nan if fraction else sign * math.inf
        if fraction == (1 << fraction_bits) - 1:
            return math.nan
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)


def edge_bits(name: str) -> list[int]:
    """Zeros, the least and the largest numbers, infinities, NaNs, and what is next to them."""
    exponent_bits, fraction_bits, _ = FLOATS[name]
    top = ((1 << exponent_bits) - 1) << fraction_bits
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    some = [0, 1, 2, (1 << fraction_bits) - 1, 1 << fraction_bits, one - 1, one, one + 1]
    some += [top - 2, top - 1, top, top + 1, top + (1 << fraction_bits) - 1]
    sign = 1 << (exponent_bits + fraction_bits)
    return some + [bits | sign for bits in some]


def raw_of(name: str, bits: list[int]) -> Array:
    size = parse(name).itemsize
    return np.frombuffer(b"".join(b.to_bytes(size, "little") for b in bits), "u1")


def sample(kind: Type, count: int, seed: int) -> Array:
    """Random bytes with many corners in them."""
    random = np.random.default_rng(seed)
    raw = random.integers(0, 256, count * kind.itemsize, dtype="u1").reshape(count, kind.itemsize)
    part = kind.itemsize // (2 if kind.kind == "complex" else 1)
    name = {"c64": "f32", "c128": "f64"}.get(kind.name, kind.name)
    if name in FLOATS:
        corners = raw_of(name, edge_bits(name)).reshape(-1, part)
    else:
        corners = np.array([[0] * part, [255] * part, [0] * (part - 1) + [128]], "u1")
    for place in range(0, kind.itemsize, part):
        at = random.random(count) < 0.3
        chosen = corners[random.integers(0, len(corners), int(at.sum()))]
        raw[at, place : place + part] = chosen
    return raw.reshape(-1)


def items(kind: Type, raw: Array) -> list[Any]:
    """The items, by Python alone."""
    data = raw.tobytes()
    out: list[Any] = []
    for at in range(0, len(data), kind.itemsize):
        item = data[at : at + kind.itemsize]
        if kind.name in FLOATS:
            out.append(decoded(kind.name, int.from_bytes(item, "little")))
        elif kind.kind == "complex":
            half = kind.itemsize // 2
            name = "f32" if half == 4 else "f64"
            parts = (item[:half], item[half:])
            out.append(tuple(decoded(name, int.from_bytes(p, "little")) for p in parts))
        elif kind.name == "bool":
            out.append(item != b"\0")
        else:
            out.append(int.from_bytes(item, "little", signed=kind.name[0] == "i"))
    return out


# ---- types ----


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("float32", "f32"),
        ("F32", "f32"),
        ("half", "f16"),
        ("bfloat16", "bf16"),
        ("float8_e4m3fn", "e4m3"),
        ("float8_e5m2", "e5m2"),
        ("uint8", "u8"),
        ("int64", "i64"),
        ("complex64", "c64"),
        ("bool", "bool"),
    ],
)
def test_type_names(name: str, known: str) -> None:
    assert parse(name).name == known
    assert parse(known) == parse(name)


@pytest.mark.parametrize("name", ["", "f8", "f31", "u128", "f32[]"])
def test_unknown_type_names(name: str) -> None:
    with pytest.raises(Error, match=r"no type '.*': f16, f32, f64, bf16, "):
        parse(name)


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2"])
def test_every_small_float(name: str) -> None:
    kind = parse(name)
    bits = list(range(1 << (8 * kind.itemsize)))
    found = kind.to_float(raw_of(name, bits))
    wanted = np.array([decoded(name, b) for b in bits])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted) | np.signbit(found))
    assert kind.is_nan(raw_of(name, bits)).tolist() == np.isnan(wanted).tolist()
    assert kind.is_inf(raw_of(name, bits)).tolist() == np.isinf(wanted).tolist()


@pytest.mark.parametrize("name", EVERY)
def test_items_equal_their_bits(name: str) -> None:
    kind = parse(name)
    raw = sample(kind, 500, 1)
    found, wanted = kind.view(raw), items(kind, raw)
    assert len(found) == len(wanted)
    for a, b in zip(found.tolist(), wanted, strict=True):
        if kind.kind == "complex":
            assert repr((a.real, a.imag)) == repr(b)
        elif isinstance(b, float):
            assert repr(float(a)) == repr(b)
        else:
            assert a == b


@pytest.mark.parametrize("name", EVERY)
def test_unaligned_and_empty_arrays(name: str) -> None:
    kind = parse(name)
    raw = sample(kind, 50, 2)
    shifted = np.append(np.zeros(1, "u1"), raw)[1:]
    assert kind.view(shifted).tobytes() == kind.view(raw).tobytes()
    assert kind.ordinals(shifted).tolist() == kind.ordinals(raw).tolist()
    assert len(kind.view(raw[:0])) == len(kind.to_float(raw[:0])) == len(kind.is_nan(raw[:0])) == 0
    if kind.itemsize > 1:
        with pytest.raises(Error, match=f"49 bytes don't divide into {name} items"):
            kind.view(np.zeros(49, "u1"))


@pytest.mark.parametrize("name", [name for name in EVERY if TYPES[name].kind != "complex"])
def test_ordinals_increase_with_values(name: str) -> None:
    kind = parse(name)
    raw = sample(kind, 2000, 3)
    wanted = items(kind, raw)
    ordinals = kind.ordinals(raw).tolist()
    known = [(v, o) for v, o in zip(wanted, ordinals, strict=True) if v == v]
    known.sort()
    for (low, first), (high, second) in itertools.pairwise(known):
        assert (first < second) == (low < high)
        assert (first == second) == (low == high)


@pytest.mark.parametrize("name", list(FLOATS))
def test_neighbouring_floats_have_neighbouring_ordinals(name: str) -> None:
    kind = parse(name)
    _, fraction_bits, _ = FLOATS[name]
    one = edge_bits(name)[6]
    raw = raw_of(name, [one, one + 1, one - 1])
    a, above, below = kind.ordinals(raw).tolist()
    assert (above - a, a - below) == (1, 1)
    assert kind.to_float(raw)[:2].tolist() == [1.0, 1 + 2.0**-fraction_bits]


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "f32", "f64"])
def test_rounding(name: str) -> None:
    kind = parse(name)
    assert kind.nearest(1.0) == 1.0
    assert kind.nearest(-0.0) == 0.0
    assert kind.nearest(-math.inf) == -math.inf
    assert kind.nearest(1e308) == (1e308 if name == "f64" else math.inf)
    assert kind.nearest(440) == (448 if name in ("e4m3", "e5m2") else 440)
    step = 2.0 ** -FLOATS[name][1]
    assert kind.nearest(1 + 0.5 * step) == 1.0  # ties go to even
    assert kind.nearest(1 + 1.5 * step) == 1 + 2 * step
    if name != "f64":
        assert kind.nearest(1 + 0.51 * step) == 1 + step


@pytest.mark.parametrize("name", EVERY)
def test_json_and_text_of_items(name: str) -> None:
    kind = parse(name)
    raw = sample(kind, 100, 4)
    listed = json.loads(json.dumps(kind.listed(raw.tobytes()), allow_nan=False))
    for value, wanted in zip(listed, items(kind, raw), strict=True):
        if kind.kind == "complex":
            assert repr(tuple(float(part) for part in value)) == repr(wanted)
        elif kind.kind == "float":
            assert repr(float(value)) == repr(wanted)
        else:
            assert value == wanted
    for shown, wanted in zip(kind.texts(raw.tobytes()), items(kind, raw), strict=True):
        if kind.kind == "float" and math.isfinite(wanted):
            assert kind.nearest(float(shown)) == wanted


# ---- differences ----


def ordinal(kind: Type, value: Any, bits: int) -> int:
    """A place in the order of all items, by the sign and the magnitude of the bits."""
    if kind.name in FLOATS:
        sign = 1 << (8 * kind.itemsize - 1)
        return -(bits - sign) if bits & sign else bits
    return int(value)


def brute(kind: Type, ours: Array, theirs: Array, tolerance: Tolerance | None) -> dict[str, Any]:
    """A comparison item by item, in exact numbers."""
    size = kind.itemsize
    most: list[Any] = [0, 0.0, 0]
    unequal, differing = 0, []
    pairs = zip(items(kind, ours), items(kind, theirs), strict=True)
    for i, (a, b) in enumerate(pairs):
        raw_a, raw_b = (raw[i * size : (i + 1) * size].tobytes() for raw in (ours, theirs))
        if raw_a == raw_b:
            continue
        unequal += 1
        nan = [isinstance(v, float) and math.isnan(v) for v in (a, b)]
        inf = [isinstance(v, float) and math.isinf(v) for v in (a, b)]
        near = (all(nan) or (all(inf) and a == b)) and tolerance is not None
        if not any(nan) and not any(inf):
            apart = abs(Fraction(a) - Fraction(b))
            larger = max(abs(Fraction(a)), abs(Fraction(b)))
            bits = [int.from_bytes(raw, "little") for raw in (raw_a, raw_b)]
            ulp = abs(ordinal(kind, a, bits[0]) - ordinal(kind, b, bits[1]))
            rel = apart / larger if larger else Fraction(0)
            most = [max(m, new) for m, new in zip(most, (apart, rel, ulp), strict=True)]
            if tolerance is not None:
                near = tolerance.abs is not None and apart <= Fraction(tolerance.abs)
                near |= tolerance.rel is not None and rel <= Fraction(tolerance.rel)
                near |= tolerance.ulp is not None and ulp <= tolerance.ulp
        if not near:
            differing.append(i)
    return {"unequal": unequal, "differing": differing, "most": most}


@pytest.mark.parametrize("name", [name for name in EVERY if TYPES[name].kind != "complex"])
@pytest.mark.parametrize("given", [None, "0", "1e-3", ",1e-2", ",,3", "5,0.25,1", "1e300"])
def test_differences_against_exact_numbers(name: str, given: str | None) -> None:
    kind = parse(name)
    tolerance = None if given is None else Tolerance.parse(given)
    ours = sample(kind, 700, 5)
    theirs = sample(kind, 700, 6)
    # Some are the same, some are neighbours, some differ only in the sign.
    theirs[: 200 * kind.itemsize] = ours[: 200 * kind.itemsize]
    theirs[100 * kind.itemsize : 150 * kind.itemsize : kind.itemsize] ^= 1
    theirs[150 * kind.itemsize + kind.itemsize - 1 : 200 * kind.itemsize : kind.itemsize] ^= 0x80
    found = compare_values(kind, ours, theirs, tolerance, first=10_000)
    wanted = brute(kind, ours, theirs, tolerance)
    assert found.elements == 700
    assert found.unequal == wanted["unequal"]
    assert found.first == wanted["differing"]
    assert found.count == len(wanted["differing"])
    assert found.same == (not wanted["differing"])
    assert found.max_ulp == wanted["most"][2]
    if kind.kind != "float":
        assert found.max_abs == wanted["most"][0]
        assert isinstance(found.max_abs, int)
    elif wanted["most"][0] > Fraction(np.finfo("f8").max):
        assert found.max_abs == math.inf
    else:
        assert found.max_abs == float(wanted["most"][0])
    assert found.max_rel == pytest.approx(float(wanted["most"][1]), rel=1e-15)
    whole = [items(kind, raw) for raw in (ours, theirs)]
    if kind.kind == "float":
        assert found.nan == tuple(sum(math.isnan(v) for v in side) for side in whole)
        assert found.inf == tuple(sum(math.isinf(v) for v in side) for side in whole)
    else:
        assert (found.nan, found.inf) == ((0, 0), (0, 0))


def test_complex_distance_is_euclidean() -> None:
    kind = parse("c64")
    ours = np.array([1 + 1j, 0, math.nan, complex(0, math.inf), 3], "c8").view("u1")
    theirs = np.array([4 + 5j, 0, math.nan, complex(0, math.inf), 3 + 1e-6j], "c8").view("u1")
    found = compare_values(kind, ours, theirs)
    assert (found.unequal, found.count, found.first) == (2, 2, [0, 4])
    assert found.max_abs == 5.0
    assert found.max_rel == pytest.approx(5 / math.hypot(4, 5))
    assert (found.nan, found.inf) == ((1, 1), (1, 1))
    assert compare_values(kind, ours, theirs, Tolerance(abs=1e-5)).first == [0]


def test_complex_numbers_of_any_magnitude_differ() -> None:
    """A magnitude may be more than float64 holds, a distance too small a part of it."""
    kind = parse("c128")
    top = np.finfo("f8").max
    pairs = [
        (complex(top, top), complex(top, -top)),
        (complex(top, top), complex(top, top / 2)),
        (complex(1e300, 0), complex(1e300, 5e-324)),
        (complex(math.nan, 1), complex(math.nan, 2)),
        (complex(math.nan, 1), complex(1, math.nan)),
        (complex(math.inf, 1), complex(math.inf, 2)),
    ]
    ours, theirs = (np.array(side, "c16").view("u1") for side in zip(*pairs, strict=True))
    for tolerance in (Tolerance(abs=0), Tolerance(rel=0.0), Tolerance(ulp=0)):
        found = compare_values(kind, ours, theirs, tolerance)
        assert found.first == list(range(len(pairs))), tolerance
        assert compare_values(kind, ours, ours, tolerance).same
    assert found.max_rel == pytest.approx(math.sqrt(2))
    assert (found.nan, found.inf) == ((2, 2), (1, 1))
    assert compare_values(kind, ours, theirs, Tolerance(rel=0.5)).first == [0, 3, 4, 5]


def test_huge_complex_number_is_finite() -> None:
    top = np.finfo("f8").max
    every = np.array([complex(top, top), complex(0, math.inf), 1], "c16")
    found = summarise(parse("c128"), every.view("u1"))
    assert (found.inf, found.nan, found.min, found.max) == (1, 0, 1.0, top)
    assert sum(found.counts) == 2


def test_nan_and_zero_and_infinity() -> None:
    kind = parse("f32")
    nan, other = (struct.unpack("<f", b)[0] for b in (b"\0\0\xc0\x7f", b"\1\0\xc0\xff"))
    ours = struct.pack("<6f", nan, -0.0, math.inf, math.inf, nan, 1.0)
    theirs = struct.pack("<6f", other, 0.0, -math.inf, 3.0, 2.0, 1.0)
    a, b = (np.frombuffer(data, "u1") for data in (ours, theirs))
    assert compare_values(kind, a, b).first == [0, 1, 2, 3, 4]
    for tolerance in (Tolerance(abs=1e38), Tolerance(rel=1.0), Tolerance(ulp=1 << 40)):
        found = compare_values(kind, a, b, tolerance)
        assert found.first == [2, 3, 4], "NaNs are alike and zeros are, nothing else here"
    assert found.max_abs == 0
    assert found.unequal == 5


def test_integers_beyond_float_precision() -> None:
    a, b = (1 << 53) + 1, 1 << 53
    ours, theirs = (np.array([v], "u8").view("u1") for v in (a, b))
    found = compare_values(parse("u64"), ours, theirs, Tolerance.parse("0"))
    assert (found.count, found.max_abs, found.max_ulp) == (1, 1, 1)
    low, high = (np.array([v], "i8").view("u1") for v in (-(1 << 63), (1 << 63) - 1))
    found = compare_values(parse("i64"), low, high, Tolerance.parse(str((1 << 64) - 2)))
    assert (found.count, found.max_abs) == (1, (1 << 64) - 1)


def test_tails_and_lengths() -> None:
    kind = parse("f32")
    ours = np.arange(11, dtype="u1")
    theirs = ours.copy()
    theirs[10] = 77
    found = compare_values(kind, ours, theirs)
    assert (found.elements, found.count, found.tail, found.tail_differs) == (2, 0, 3, True)
    assert not found.same
    assert compare_values(kind, ours[:3], ours[:3]).same
    assert compare_values(kind, ours[:0], ours[:0]).elements == 0
    with pytest.raises(Error, match="11 bytes can't be compared with 3"):
        compare_values(kind, ours, ours[:3])


def test_parts_give_the_same_result_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = parse("f32")
    ours, theirs = sample(kind, 3000, 7), sample(kind, 3000, 8)
    whole = compare_values(kind, ours, theirs, Tolerance(ulp=5))
    comparison = Comparison(kind, Tolerance(ulp=5))
    for at in range(0, 12000, 400):
        comparison.add(ours[at : at + 400], theirs[at : at + 400])
    assert comparison.result() == whole
    monkeypatch.setattr(values.compare, "PIECE", 48)
    assert compare_values(kind, ours, theirs, Tolerance(ulp=5)) == whole


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1e-6", Tolerance(1e-6, None, None)),
        ("0", Tolerance(0, None, None)),
        ("1e-6,1e-3", Tolerance(1e-6, 1e-3, None)),
        (",,4", Tolerance(None, None, 4)),
        (" 1 , , 2 ", Tolerance(1, None, 2)),
        ("9007199254740993", Tolerance(9007199254740993, None, None)),
    ],
)
def test_tolerances(given: str, wanted: Tolerance) -> None:
    assert Tolerance.parse(given) == wanted


@pytest.mark.parametrize(
    "given", ["", ",", ",,", "1,2,3,4", "x", "-1", "nan", "inf", "1e999", ",,0.5", "1e-6;4"]
)
def test_invalid_tolerances_are_refused(given: str) -> None:
    with pytest.raises(Error, match=f"^tolerance {given}: "):
        Tolerance.parse(given)


# ---- summaries ----


def magnitude(real: float, imaginary: float) -> float:
    if math.isnan(real) or math.isnan(imaginary):
        return math.nan
    if math.isinf(real) or math.isinf(imaginary):
        return math.inf
    return min(math.hypot(real, imaginary), float(np.finfo("f8").max))


@pytest.mark.parametrize("name", EVERY)
def test_summaries_against_exact_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values.summary, "PIECE", 16 * 40)
    kind = parse(name)
    raw = sample(kind, 1000, 9)
    found = summarise(kind, np.append(raw, np.zeros(kind.itemsize - 1, "u1")))
    every = items(kind, raw)
    if kind.kind == "complex":
        every = [magnitude(*pair) for pair in every]
    if kind.name == "bool":
        every = list(map(int, every))
    finite = [v for v in every if math.isfinite(v)]
    assert found.elements == 1000
    assert found.tail == kind.itemsize - 1
    assert found.nan == sum(math.isnan(v) for v in every)
    assert found.inf == sum(math.isinf(v) for v in every)
    assert found.zero == finite.count(0)
    assert (found.min, found.max) == (min(finite), max(finite))
    exact = sum(map(Fraction, finite)) / len(finite)
    assert found.mean == pytest.approx(float(exact), rel=1e-9)
    if kind.kind in ("int", "bool"):
        assert found.mean == float(exact)
    assert sum(found.counts) == len(finite)
    assert (found.edges[0], found.edges[-1]) == (min(finite), max(finite))
    for i, count in enumerate(found.counts):
        low, high = found.edges[i], found.edges[i + 1]
        last = i == len(found.counts) - 1
        assert count == sum(low <= v < high or (last and v == high) for v in finite)
    json.loads(json.dumps(found.as_dict(), allow_nan=False))


def test_histogram_equals_numpy() -> None:
    data = np.random.default_rng(11).standard_normal(100_000)
    found = summarise(parse("f64"), data.view("u1"), bins=32)
    counts, edges = np.histogram(data, bins=32)
    assert found.edges == pytest.approx(edges.tolist())
    assert np.abs(np.array(found.counts) - counts).max() <= 1  # a value on an edge, if any


@pytest.mark.parametrize("name", EVERY)
def test_summaries_of_zero_and_one_values(name: str) -> None:
    kind = parse(name)
    empty = summarise(kind, np.empty(0, "u1"))
    assert (empty.elements, empty.min, empty.max, empty.mean, empty.counts) == (
        *(0, None, None, None),
        [],
    )
    zeros = summarise(kind, np.zeros(10 * kind.itemsize, "u1"))
    assert (zeros.min, zeros.max, zeros.mean, zeros.zero, zeros.counts) == (0, 0, 0.0, 10, [10])


def test_means_of_huge_numbers() -> None:
    top = np.finfo("f8").max
    found = summarise(parse("f64"), np.full(1000, top).view("u1"))
    assert (found.mean, found.min, found.max) == (top, top, top)
    both = summarise(parse("f64"), np.array([-top, top]).view("u1"))
    assert both.mean == 0.0
    assert sum(both.counts) == 2
    ends = summarise(parse("u64"), np.array([0, (1 << 64) - 1] * 500, "u8").view("u1"))
    assert ends.mean == float(Fraction((1 << 64) - 1, 2))
    assert (ends.edges[-1], ends.counts[0], ends.counts[-1]) == ((1 << 64) - 1, 500, 500)


def test_memory_use_is_bounded() -> None:
    """Of a large array no copy is made: a piece at a time is decoded."""
    import tracemalloc

    raw = np.zeros(64 << 20, "u1")
    tracemalloc.start()
    try:
        summarise(parse("bf16"), raw)
        summarise(parse("f32"), raw)
        compare_values(parse("f32"), raw, raw)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
