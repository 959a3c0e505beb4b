"""Marks differences from the reports of `verify` and `diff` in a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.code import demangle
from ttanalyze.errors import Error, FormatError
from ttanalyze.format.files import expect, expect_list, read_json
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.rows import MARK, NUMBERS, Part, Rows, Writer
from ttanalyze.verbs.trace.tracks import times_of


@dataclass(frozen=True)
class Mark:
    """A mark at an epoch or at a call of a process."""

    process: int
    name: str
    category: str
    args: dict[str, Any]
    epoch: int | None = None
    seq: int | None = None


def read_marks(path: Path, run: Run) -> list[Mark]:
    """Returns the marks of a report: the JSON of `verify --out` or `diff --out`.

    Raises FormatError for any other file, and Error if a diff is not of this run.
    """
    report = read_json(path)
    if isinstance(report.get("differences"), list):
        return list(_verified(path, report))
    if isinstance(report.get("processes"), list) and "a" in report and "b" in report:
        return list(_compared(path, report, _side(path, report, run)))
    reason = "not a report of verify --out or diff --out"
    raise FormatError(path, 0, reason)


def _verified(path: Path, report: dict[str, Any]) -> Iterator[Mark]:
    expect_list(path, "", report, "differences", dict)
    for i, found in enumerate(report["differences"]):
        where = f"differences[{i}]."
        numbers = dict.fromkeys(("epoch", "until", "region", "first_byte"), (int, None))
        expect(path, where, found, kind=str, message=str, process=int, **numbers)
        if found.get("epoch") is not None:
            said = ("region", "epoch", "until", "first_byte", "differing_bytes", "kind")
            args = _plain({name: found.get(name) for name in said})
            message = found.get("message", "differs")
            yield Mark(found.get("process", 0), message, "mismatch", args, found["epoch"])


def _side(path: Path, report: dict[str, Any], run: Run) -> str:
    """Returns which of the two runs this one is: "a" or "b"."""
    expect(path, "", report, a=str, b=str)
    ours = run.path.resolve()
    sides = {side: Path(report[side]) for side in ("a", "b")}
    for side, given in sides.items():
        with suppress(ValueError, RuntimeError):  # no file has such a name, or links form a circle
            if given.resolve() == ours:
                return side
    named = [side for side, given in sides.items() if given.name == ours.name]
    if len(named) == 1:
        return named[0]
    raise Error(f"{path}: compares {report['a']} with {report['b']}, not {run.path}")


def _compared(path: Path, report: dict[str, Any], side: str) -> Iterator[Mark]:
    expect_list(path, "", report, "processes", dict)
    for i, pair in enumerate(report["processes"]):
        where = f"processes[{i}]."
        expect(path, where, pair, launches=(dict, None), **{f"process_{side}": int})
        expect_list(path, where, pair, "divergences", dict)
        number = pair.get(f"process_{side}", 0)
        for k, found in enumerate(pair.get("divergences", [])):
            yield from _divergence(path, f"{where}divergences[{k}].", found, side, number)
        launches = pair.get("launches") or {}
        expect_list(path, f"{where}launches.", launches, "stretches", dict)
        for k, stretch in enumerate(launches.get("stretches", [])):
            at = f"{where}launches.stretches[{k}]."
            expect(path, at, stretch, kind=str, **{f"seq_{side}": (int, None)})
            expect(path, at, stretch, **{f"count_{side}": int})
            if stretch.get(f"seq_{side}") is not None:
                args = _plain({"launches": stretch.get(f"count_{side}")})
                alone = stretch.get("kind") == "alone"
                name = "launches that the other run has not" if alone else "launches that differ"
                seq = stretch[f"seq_{side}"]
                yield Mark(number, name, "launches", args, seq=seq)


def _divergence(
    path: Path, where: str, found: dict[str, Any], side: str, process: int
) -> Iterator[Mark]:
    expect(path, where, found, label=(str, None), bytes=(dict, None), size=int, block_count=int)
    numbers = {f"epoch_{side}": int, f"region_{side}": int, f"until_{side}": (int, None)}
    expect(path, where, found, **numbers)
    expect_list(path, where, found, "suspects", dict)
    region, label = found.get(f"region_{side}"), found.get("label")
    named = f"region {region}" if label is None else f"region {region} ({label})"
    contents = found.get("bytes") or {}
    args = {name: found.get(f"{name}_{side}") for name in ("region", "epoch", "until")}
    args |= {"size": found.get("size"), "blocks": found.get("block_count")}
    args |= {"first_byte": contents.get("first"), "bytes": contents.get("count")}
    name = f"{named} differs"
    yield Mark(process, name, "divergence", _plain(args), found.get(f"epoch_{side}", 0))
    for k, suspect in enumerate(found.get("suspects", [])):
        at = f"{where}suspects[{k}]."
        texts = dict.fromkeys(("kind", "how"), str)
        expect(path, at, suspect, kernel=(str, None), **texts, **{f"seq_{side}": (int, None)})
        seq = suspect.get(f"seq_{side}")
        if seq is not None:
            mangled = suspect.get("kernel")
            what = demangle.short(demangle.demangle([mangled])[0]) if mangled else None
            args = {"region": region, "call": seq, "how": suspect.get("how")}
            said = f"{what or suspect.get('kind', 'a call')}: may have written {named}"
            yield Mark(process, said, "suspect", _plain(args), seq=seq)


def _plain(args: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that are known and can be shown."""
    good = {n: v for n, v in args.items() if isinstance(v, (int, str)) and not isinstance(v, bool)}
    return {n: v for n, v in good.items() if isinstance(v, str) or 0 <= v < 1 << 64}


def write_marks(
    process: Process,
    lanes: Lanes,
    writer: Writer,
    marks: Sequence[Mark],
    epochs: tuple[int, int],
    bounds: tuple[int, int],
) -> int:
    """Writes the marks of a process at epochs [first, last) and at calls with seq in (after,
    until]. Returns their number.

    A mark of an epoch that the run lacks is at its last one.
    """
    first, last = epochs
    process_marks = [mark for mark in marks if mark.process == process.index]
    placed: list[tuple[int, Mark]] = []
    known = len(process.epochs)
    for mark in process_marks:
        if mark.epoch is not None and known:
            at = min(max(mark.epoch, 0), known - 1)
            if first <= at < last:
                placed.append((int(process.captures.cuts[at]), mark))
    after, until = bounds
    calls = [m for m in process_marks if m.seq is not None and after < m.seq <= until]
    times = times_of(process, np.array([m.seq for m in calls], "u8"))
    placed += [(time, m) for time, m in zip(times.tolist(), calls, strict=True) if time]
    placed.sort(key=lambda pair: pair[0])
    lane = lanes.marks() if placed else None
    if lane is not None:
        parts = [Part(lane, m.name, m.category, m.args, kind=MARK) for _, m in placed]
        at_ns = np.array([time for time, _ in placed], "i8")
        zeros = np.zeros(len(placed), "i8")
        rows = Rows(((at_ns, at_ns), (at_ns, at_ns)), zeros, [zeros] * len(NUMBERS))
        writer.rows([writer.template([part]) for part in parts], rows)
    return len(placed)
