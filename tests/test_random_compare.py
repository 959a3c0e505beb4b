"""What is said of memory that differs from what was recorded is what a simple model says of the
bytes, in random memory.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze.cli import replay as verb
from ttanalyze.core.bytewise import Contents
from ttanalyze.core.values import Tolerance, parse
from ttanalyze.core.values.compare import Comparison
from ttanalyze.gpu.rebuild.address_map import Finding, State
from ttanalyze.verbs.replay import compare
from ttanalyze.verbs.replay.run import Outcome, verify
from ttanalyze.verbs.replay.show import difference_lines

FEW, MANY = range(120), range(1000, 4000)
BLOCK, BASE = 65536, 1 << 40
SIZES = (1, 30, 64, 1000, 3001, BLOCK, BLOCK + 7, 3 * BLOCK + 100, 20 * BLOCK)
FORMATS = {"u8": "B", "i16": "h", "u32": "I", "i64": "q", "f16": "e", "f32": "f", "f64": "d"}
LAYOUT = {"f16": (10, 5), "f32": (23, 8), "f64": (52, 11)}  # bits of fraction and exponent
LEAST = 5e-324
Number = int | float


def ordinal(raw: bytes, name: str) -> int:
    """Whole numbers that ascend with the values, neighbours one apart."""
    if name not in LAYOUT:
        return int(struct.unpack("<" + FORMATS[name], raw)[0])
    bits = int.from_bytes(raw, "little")
    sign = 1 << 8 * len(raw) - 1
    return sign - bits if bits & sign else bits


def apart(a: bytes, b: bytes, name: str) -> tuple[Number, float, int] | None:
    """How far two items are apart: in value, of the value, in units of the last place; None where
    either is no number.
    """
    steps = abs(ordinal(a, name) - ordinal(b, name))
    x, y = (struct.unpack("<" + FORMATS[name], raw)[0] for raw in (a, b))
    if name not in LAYOUT:
        return steps, float(steps) / max(abs(float(x)), abs(float(y))), steps
    if not (math.isfinite(x) and math.isfinite(y)):
        return None
    size, far = max(abs(x), abs(y)), abs(x - y)
    rel = far / size if size else 0.0
    if math.isinf(far):
        rel = abs(x / 4 - y / 4) / (size / 4)
    return far, LEAST if not rel and far else rel, steps


def allowed(a: bytes, b: bytes, name: str, tolerance: Tolerance | None) -> bool:
    if tolerance is None:
        return False
    distance = apart(a, b, name)
    if distance is None:
        x, y = (struct.unpack("<" + FORMATS[name], raw)[0] for raw in (a, b))
        return bool(x == y or (x != x and y != y))
    limits = tolerance.abs, tolerance.rel, tolerance.ulp
    return any(
        limit is not None and one <= limit for one, limit in zip(distance, limits, strict=True)
    )


def values(
    name: str, tolerance: Tolerance | None, recorded: bytes, now: bytes, begin: int, end: int
) -> dict[str, Any]:
    """What there is to say of the items in [begin, end), which lie in blocks of the region."""
    size = parse(name).itemsize
    whole = (end - begin) // size
    unequal = count = 0
    most: tuple[Number, float, int] = (0, 0.0, 0)
    first: list[int] = []
    odd = {"nan": [0, 0], "inf": [0, 0]}
    for block in range(begin // BLOCK, -(-end // BLOCK)):
        start, stop = max(begin, block * BLOCK), min(end, (block + 1) * BLOCK)
        here = slice(block * BLOCK, (block + 1) * BLOCK)
        if recorded[here] == now[here]:
            continue  # which are not looked at
        stop = min(stop, begin + whole * size)
        for side, data in enumerate((now, recorded)) if name in LAYOUT and stop > start else ():
            items = np.frombuffer(data[start:stop], f"<f{size}")
            odd["nan"][side] += int(np.isnan(items).sum())
            odd["inf"][side] += int(np.isinf(items).sum())
        for at in range(start, stop, size):
            ours, theirs = now[at : at + size], recorded[at : at + size]
            if ours == theirs:
                continue
            unequal += 1
            if not allowed(ours, theirs, name, tolerance):
                count += 1
                first.append((at - begin) // size)
            distance = apart(ours, theirs, name)
            if distance is not None:
                most = tuple(map(max, most, distance))  # type: ignore[assignment]
    tail = slice(begin + whole * size, end)
    return {
        "type": name,
        "elements": whole,
        "unequal": unequal,
        "count": count,
        **dict(zip(("max_abs", "max_rel", "max_ulp"), most, strict=True)),
        **{what: tuple(counts) for what, counts in odd.items()},
        "first": first[:8],
        "tail": end - tail.start,
        "tail_differs": recorded[tail] != now[tail],
    }


class Case:
    """A run of one epoch, and memory that a replay left, which is not quite as recorded."""

    def __init__(self, path: Path, seed: int) -> None:
        self.r = random.Random(seed)
        self.w = Writer(path)
        self.recorded: dict[int, bytes] = {}
        self.names: list[tuple[int, int, int, str | None, int, str | None]] = []
        self.labels: dict[int, str | None] = {}
        for number in range(self.r.randint(1, 3)):
            size = self.r.choice(SIZES)
            fill = self.r.random()
            data = bytes(size) if fill < 0.2 else self.r.randbytes(size)
            if 0.2 <= fill < 0.6:
                data = np.arange(size, dtype="<f4").tobytes()[:size]
            self.recorded[number] = data
            self.labels[number] = self.r.choice((None, "w", f"r{number}"))
            self.w.born(number, data, label=self.labels[number], base=BASE + (number << 24))
            for _ in range(self.r.choice((0, 0, 2, 20))):
                self._name(number)
        self.w.epoch("sync", "full")
        self.w.close()
        self.now = {number: self._changed(data) for number, data in self.recorded.items()}
        names = [*FORMATS, *["f32"] * 3]
        keys: list[Any] = [None, *(key for key in self.labels.values() if key), *self.recorded]
        self.types = {key: self.r.choice(names) for key in keys if self.r.random() < 0.4}
        self.tolerances = {key: self._tolerance() for key in keys if self.r.random() < 0.3}

    def _name(self, region: int) -> None:
        size = len(self.recorded[region])
        at = self.r.randrange(size) // 4 * 4
        length = min(self.r.choice((1, 8, 40, 4000, 2 * BLOCK)), size - at)
        name = self.r.choice((None, "a", "b", "c", f"layer.{at}"))
        of = self.r.choice((None, "f32", "i16", "u8", "odd"))
        start = self.r.choice((0, 0, 4, 6))
        self.w.name(region, at, length, name, of, start)
        self.names.append((region, at, length, name, start, of))

    def _changed(self, data: bytes) -> bytes:
        out = bytearray(data)
        for _ in range(self.r.choice((0, 0, 1, 2, 3, 12))):
            at = self.r.randrange(len(out))
            odd = struct.pack("<f", self.r.choice((math.nan, math.inf, -0.0, 1e30)))
            near = bytes([out[at] ^ 1])
            new = self.r.choice((near, near, odd, self.r.randbytes(self.r.choice((1, 9, 300)))))
            at = at // 4 * 4 if new is odd else at
            out[at : at + len(new)] = new[: len(out) - at]
        if self.r.random() < 0.15:
            out[::BLOCK] = bytes(byte ^ 1 for byte in out[::BLOCK])
        return bytes(out)

    def _tolerance(self) -> Tolerance:
        return self.r.choice(
            (
                *(Tolerance(abs=limit) for limit in (0, 1.5, 1000, 1e300)),
                *(Tolerance(rel=limit) for limit in (0.0, 1e-3, 2.0)),
                *(Tolerance(ulp=limit) for limit in (0, 1, 1 << 40)),
            )
        )

    def of(self, given: dict[Any, Any], region: int) -> Any:
        keys = (region, self.labels[region], None)
        return next((given[key] for key in keys if key in given and key != ""), None)

    # ---- what must be said ----

    def named(self, region: int) -> list[tuple[int, int, str, int, str | None]]:
        """Offset, bytes, name, start and type of the parts, as the last names have it."""
        names = [one for one in self.names if one[0] == region]
        owner = np.full(len(self.recorded[region]) + 1, -1)
        for at, (_, offset, size, name, _, _) in enumerate(names):
            owner[offset : offset + size] = -1 if name is None else at
        out = []
        begin = 0
        for end in (np.flatnonzero(np.diff(owner)) + 1).tolist():
            _, offset, _, name, start, of = names[owner[begin]]
            if owner[begin] >= 0 and name is not None:
                out.append((begin, end - begin, name, start + begin - offset, of))
            begin = end
        return out

    def difference(self, region: int, new: bool) -> dict[str, Any]:
        recorded, now = self.recorded[region], self.now[region]
        size = len(now)
        at = [i for i in range(size) if recorded[i] != now[i]] if recorded != now else []
        blocks = sorted({i // BLOCK for i in at})
        begins = [i for i, one in enumerate(at) if i == 0 or at[i - 1] != one - 1]
        ends = [*begins[1:], len(at)]
        window = max(0, at[0] // 16 * 16 - 16)
        of, tolerance = self.of(self.types, region), self.of(self.tolerances, region)
        said = of and values(of, tolerance, recorded, now, 0, size)
        tensors, tensor_values = [], []
        for offset, length, name, start, own in self.named(region):
            inside = [i for i in at if offset <= i < offset + length]
            if not inside:
                continue
            known, first = own if own in FORMATS else None, inside[0] - offset + start
            item = first // parse(known).itemsize if known else None
            tensors.append(
                {
                    "name": name,
                    "type": own,
                    "offset": offset,
                    "bytes": length,
                    "differing": len(inside),
                    "first": first,
                    "first_element": item,
                }
            )
            kind = known or of
            whole = kind and not offset % parse(kind).itemsize and not start % parse(kind).itemsize
            end = offset + length
            tensor_values.append(
                values(kind, tolerance, recorded, now, offset, end) if whole else None
            )
        return {
            "region": region,
            "kind": "device",
            "label": self.labels[region],
            "size": size,
            "blocks": blocks[:16],
            "block_count": len(blocks),
            "bytes": {
                "count": len(at),
                "first": at[0],
                "last": at[-1],
                "extents": [(at[b], e - b) for b, e in zip(begins, ends, strict=True)][:8],
                "extent_count": len(begins),
                "window": {
                    "offset": window,
                    "expected": recorded[window : window + 64].hex(),
                    "actual": now[window : window + 64].hex(),
                },
            },
            "values": said,
            "tensors": tensors[:16],
            "tensor_count": len(tensors),
            "tensor_values": tensor_values[:16],
            "tolerated": bool(said and not said["count"] and not said["tail_differs"]),
            "new": new,
            "partial": False,
        }


def unequal(one: bytes, other: bytes) -> list[int]:
    """The blocks that differ."""
    starts = range(0, len(one), BLOCK)
    return [i // BLOCK for i in starts if one[i : i + BLOCK] != other[i : i + BLOCK]]


def check(path: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
    case = Case(path, seed)
    process = tt.open(path).process(0)

    def copy_out(_: object, out: Any, address: int) -> None:
        region, at = divmod(address - BASE, 1 << 24)
        out[:] = np.frombuffer(case.now[region][at : at + len(out)], "u1")

    patch.setattr(compare, "copy_out", copy_out)
    rows = {int(number): row for row, number in enumerate(process.regions.id)}
    addresses = SimpleNamespace(now=lambda row: BASE + (int(process.regions.id[row]) << 24))
    replay_context = SimpleNamespace(process=process, device=None, addresses=addresses)
    replay: Any = SimpleNamespace(
        replay_context=replay_context, expected=State.of_epoch(process, 0, rows.values())
    )
    findings, expected = [], []
    for number, recorded in case.recorded.items():
        if case.r.random() < 0.2:
            continue  # it was not compared
        differ, new = unequal(recorded, case.now[number]), case.r.random() < 0.2
        label, size = case.labels[number], len(recorded)
        findings.append(Finding(number, label, size, 0, 0, np.array(differ, "i8"), new))
        if differ:
            expected.append(case.difference(number, new))
    types = {key: parse(name) for key, name in case.types.items()}
    compare.check_regions(process, types, case.tolerances)
    outcome = Outcome(7, "k", "unchecked")
    verify(outcome, replay, findings, types, case.tolerances)
    assert [asdict(one) for one in outcome.differences] == expected
    differs = any(not one["tolerated"] for one in expected)
    assert (outcome.status, outcome.regions) == ("differs" if differs else "same", len(findings))
    assert verb.status([outcome]) == (1 if differs else 0 if findings else 2)


def test_differences_equal_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in FEW:
        check(tmp_path / str(seed), seed, monkeypatch)


@pytest.mark.long
def test_differences_of_large_memory_equal_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in MANY:
        check(tmp_path / str(seed), seed, monkeypatch)


def test_parts_with_one_name_have_separate_values(run_path: Path) -> None:
    w = Writer(run_path)
    items = np.zeros(64, "<f4")
    w.born(0, items.tobytes())
    items[[3, 40, 41]] = 1
    w.born(1, items.tobytes())
    w.name(0, 0, 256, "w", "f32")
    w.name(0, 64, 64, None)
    w.epoch("sync", "full")
    w.close()
    process = tt.open(run_path).process(0)
    one, other = (
        Contents(process, records)
        for records in State.of_epoch(process, 0, (0, 1)).records.values()
    )
    found = compare.look(0, 0, one, other, [0], {}, {})
    assert [(part.name, part.differing) for part in found.tensors] == [("w", 2), ("w", 4)]
    assert [of.count for of in found.tensor_values if of] == [1, 2]
    said = [line for line in difference_lines(found, ("a", "b")) if "w from" in line]
    assert ["1 of 16 f32 differ" in said[0], "2 of 32 f32 differ" in said[1]] == [True, True]


def test_unread_tail_is_reported() -> None:
    comparison = Comparison(parse("f32"))
    comparison.add(np.zeros(8, "u1"), np.ones(8, "u1"))
    comparison.skip(6)
    found = comparison.result()
    assert (found.elements, found.tail, found.tail_differs) == (3, 2, False)
