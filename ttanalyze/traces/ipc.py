"""Instructions per cycle: counts of a traced run, and cycles of one that is not traced.

Cycles come from a Chrome trace of Proton, Triton's profiler, whose scopes are the regions between
reads of the clock; or from a run with GPU times, for NVTX ranges. A traced kernel is slower, so
its own times say little.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.traces.histogram import Histogram, Pairs
from ttanalyze.traces.native import AnyTrace

COLUMNS = (
    *("kernel", "launch", "core", "cta", "local_warp", "warp", "region", "name"),
    *("cycles", "timestamp", "instructions", "ipc"),
)
TEXTS = {"name"}
FLOATS = {"cycles", "timestamp", "ipc"}
PLACE = re.compile(r"Core ?(\d+).*?CTA ?(\d+)")
WARP = re.compile(r"warp ?(\d+)")
NANOSECONDS = 1000  # of a microsecond: Proton writes a cycle as a nanosecond
LANES = 32


@dataclass(frozen=True)
class Scope:
    """A scope that a warp passed through. cycles: its duration. begin: when, in cycles."""

    core: int
    cta: int
    warp: int
    name: str
    begin: float
    cycles: float


def scopes(path: str | os.PathLike[str]) -> list[Scope]:
    """Returns the scopes of warps in a Chrome trace of Proton. Raises Error."""
    try:
        told = orjson.loads(Path(path).read_bytes())
    except OSError as e:
        raise Error(f"{path}: {e.strerror}") from None
    except orjson.JSONDecodeError as e:
        raise FormatError(path, f"line {e.lineno}", f"no JSON: {e.msg}") from None
    events = told.get("traceEvents") if isinstance(told, dict) else told
    if not isinstance(events, list) or not all(isinstance(one, dict) for one in events):
        raise Error(f"{path}: no Chrome trace: expected an object with a list traceEvents")
    found = []
    for event in events:
        place, warp = PLACE.search(str(event.get("pid"))), WARP.search(str(event.get("tid")))
        if event.get("ph", "X") != "X" or place is None or "dur" not in event:
            continue
        times = event.get("ts", 0), event["dur"]
        if not all(isinstance(time, (int, float)) for time in times):
            raise Error(f"{path}: traceEvents: ts and dur of {event.get('name')}: expected numbers")
        begin, cycles = (float(time) * NANOSECONDS for time in times)
        local = int(warp[1]) if warp else 0
        found.append(
            Scope(int(place[1]), int(place[2]), local, str(event.get("name")), begin, cycles)
        )
    if not found:
        raise Error(f"{path}: no scopes of warps: expected events of Proton, with CoreN CTAN")
    return found


def of_scopes(
    trace: AnyTrace, pairs: Pairs, found: Sequence[Scope], notes: list[str]
) -> Iterator[dict[str, Any]]:
    """Yields a row per warp and scope, with the instructions of the region of the same number.

    The scopes of a warp are in the order of their begins, as are its regions.

    Raises:
        Error: The trace has several launches, or does not say how large its blocks are.
    """
    counts = Counter[tuple[int, int]]()
    launch: tuple[Any, Any] | None = None
    histogram = Histogram(trace, pairs)
    for row in histogram.rows():
        here = row["kernel"], row["launch"]
        if launch not in (None, here):
            raise Error(f"{trace.lines.path}: --times: it has several launches: trace one of them")
        launch = here
        counts[row["warp"], row["region"]] += row["count"]
    notes += [histogram.note] if histogram.note else []
    if launch is None:
        raise Error(f"{trace.lines.path}: no reads of the clock, which begin and end regions")
    block = histogram.kernel.record.get("block") if histogram.kernel else None
    if not block:
        raise Error(f"{trace.lines.path}: --times: it does not say how large blocks are")
    per_block = -(-math.prod(block) // LANES)
    by_warp = defaultdict[int, list[Scope]](list)
    for one in sorted(found, key=lambda one: (one.begin, -one.cycles)):
        by_warp[one.cta * per_block + one.warp].append(one)
    regions = Counter(warp for warp, _ in counts)
    odd = [w for w in sorted({*by_warp, *regions}) if len(by_warp.get(w, ())) != regions[w]]
    if odd:
        some = f"warp {odd[0]}: {len(by_warp.get(odd[0], ()))} scopes, {regions[odd[0]]} regions"
        notes.append(f"scopes and regions of {len(odd)} warps differ in number ({some})")
    for warp, passed in sorted(by_warp.items()):
        for region, one in enumerate(passed):
            count = counts.get((warp, region))
            yield {
                **dict(zip(("kernel", "launch"), launch, strict=True)),
                "core": one.core,
                "cta": one.cta,
                "local_warp": one.warp,
                "warp": warp,
                "region": region,
                "name": one.name,
                "cycles": one.cycles,
                "timestamp": one.begin,
                "instructions": count,
                "ipc": count / one.cycles if count and one.cycles else None,
            }


def of_ranges(run: Run, times: Run, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yields a row per NVTX range in which launches were counted.

    Args:
        run: The run with counts of instructions.
        times: A run of the same program with GPU times, not traced.
        notes: Gets what is uncertain.

    Raises:
        Error: There are no counts, or no GPU times.
    """
    counts, cycles = Counter[str](), Counter[str]()
    for process in run.processes:
        warps = Counter[int]()
        for records in process.trace_records(kinds=["count"]):
            launches, told = records.heads["launch"], records.counts()[:, 0]
            for launch in np.unique(launches).tolist():
                seq = int(process.traced["seq"][launch])
                warps[seq] += int(told[launches == launch].sum())
        _add(counts, process, warps)
    if not counts:
        raise Error(f"{run.path}: no counts in NVTX ranges: trace with --kind count")
    for process in times.processes:
        rates = {
            int(one["ordinal"]): one.get("clock_khz", 0) * one.get("multiprocessors", 0) / 1e6
            for one in process.info.get("devices", [])
        }
        spent = Counter[int]()
        for timed in process.activities.by_seq():
            some = timed[timed["kind"] == KIND["launch"]]
            took = (some["end_ns"] - some["begin_ns"]).tolist()
            columns = some["seq"].tolist(), some["device"].tolist(), took
            for seq, device, time in zip(*columns, strict=True):
                spent[seq] += time * rates.get(device, max(rates.values(), default=0))
        _add(cycles, process, spent)
    if not sum(cycles.values()):
        raise Error(f"{times.path}: no GPU times in NVTX ranges: record with --timeline events")
    for name in sorted({*counts, *cycles}):
        row = dict.fromkeys(COLUMNS) | {"name": name, "cycles": cycles.get(name)}
        row["instructions"] = counts.get(name)
        if counts.get(name) and cycles.get(name):
            row["ipc"] = counts[name] / cycles[name]
        yield row
    notes.append("cycles: those of all multiprocessors, at the highest clock rate of the device")


def _add(sums: Counter[str], process: Process, by_seq: Counter[int]) -> None:
    """Adds the values of calls to the ranges around them."""
    seqs = np.array(sorted(by_seq), "u8")
    said, paths = process.annotations, dict[int, list[str]]()
    for events in process.event_pieces():
        some = events[np.isin(events["seq"], seqs)]
        at = said.paths_at(some["thread"], some["seq"]).tolist()
        for seq, path in zip(some["seq"].tolist(), at, strict=True):
            if path == layout.NO_ID:
                continue
            if path not in paths:
                names = said.messages(path)[::-1]
                paths[path] = ["/".join(names[: i + 1]) for i in range(len(names))]
            for name in paths[path]:
                sums[name] += by_seq[seq]
