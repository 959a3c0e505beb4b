"""Allocations over time, from the births and deaths of regions. Contents are not looked at.

Memory of the device is what counts: page-locked host memory and other processes' allocations that
were opened here are told of, but are in no sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core.allocating_calls import site_column
from ttanalyze.errors import Error
from ttanalyze.format import tables
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.util.progress import Progress, counted

HOST = ("host", "host-registered")
ELSEWHERE = (*HOST, "ipc")  # kinds that take no memory of the device by themselves
UNPLACED = ("array",)  # whose base is a handle, not an address


@dataclass(frozen=True)
class Moment:
    """What was allocated right after a call.

    seq, time_ns: of the call, 0 before the first one. epoch: the first one cut from then on, None
    after the last. call, site: the call and the thread that made it, where it allocated or freed.
    """

    seq: int
    time_ns: int
    epoch: int | None
    bytes: int
    allocations: int
    call: str | None
    site: str | None


@dataclass(frozen=True)
class ProcessMemory:
    """process: its number. allocations, freed, allocated_bytes: over the whole run.

    peak, end: when the most memory was allocated for the first time, and the end; host_peak: the
    same of page-locked host memory. at: the moment that was asked for. The tables:

    timeline: see timeline(). alive: regions at that moment, see alive_at(). sites: see
    allocation_sites(). leaks: sites of what was never freed, variables of modules apart: site,
    kind, allocations, bytes. ranges: see address_ranges(), at that moment. tensors: what parts of
    regions the program had named by the moment's epoch, or by the end: tensor, type, bytes, region,
    offset, the largest first.
    """

    process: int
    allocations: int
    freed: int
    allocated_bytes: int
    peak: Moment
    end: Moment
    host_peak: Moment | None
    at: Moment
    timeline: pd.DataFrame
    alive: pd.DataFrame
    sites: pd.DataFrame
    leaks: pd.DataFrame
    ranges: pd.DataFrame
    tensors: pd.DataFrame


def memory(
    run: Run, at: str = "peak", process: int | None = None, progress: Progress = None
) -> list[ProcessMemory]:
    """Of each process, or of one. at: peak, end, epoch:N or seq:N, a moment to look at closely.

    progress: called with the events looked at and those in all. Raises Error where there is no
    such moment.
    """
    chosen = run.processes if process is None else [run.process(process)]
    advance = counted(progress, sum(p.count_events() for p in chosen) if progress else 0)

    return [_of_process(p, at, advance) for p in chosen]


def _of_process(process: Process, at: str, advance: Callable[[int], None]) -> ProcessMemory:
    regions = _regions(process, advance)
    on_device = regions[~regions["kind"].isin(ELSEWHERE)]
    on_host = regions[regions["kind"].isin(HOST)]
    steps = _steps(on_device)
    peak = _moment(process, regions, steps, _peak(steps))
    end = _moment(process, regions, steps, len(steps) - 1)
    host_steps = _steps(on_host)
    host_peak = _moment(process, regions, host_steps, _peak(host_steps)) if len(on_host) else None
    chosen = {"peak": peak, "end": end}.get(at) or _moment_at(process, regions, steps, at)
    alive = _alive(on_device, chosen.seq)
    return ProcessMemory(
        process=process.index,
        allocations=len(on_device),
        freed=int(on_device["freed"].sum()),
        allocated_bytes=int(on_device["bytes"].sum()),
        peak=peak,
        end=end,
        host_peak=host_peak,
        at=chosen,
        timeline=steps,
        alive=_largest(alive),
        sites=_sites(regions),
        leaks=_leaks(regions),
        ranges=_ranges(alive),
        tensors=_tensors(process, chosen.epoch),
    )


# ---- tables ----

ALIVE = ("region", "kind", "label", "bytes", "base", "device", "context", "site", "seq", "time_ns")


def timeline(process: Process) -> pd.DataFrame:
    """seq, time_ns (of a call), region, change (bytes that it allocated, negative where it freed
    them), bytes, allocations (of the device then). A row per allocation and per free, in order.
    """
    regions = _regions(process)
    return _steps(regions[~regions["kind"].isin(ELSEWHERE)])


def alive_at(process: Process, seq: int) -> pd.DataFrame:
    """Regions on the device right after a call: region, kind, label, bytes, base, device, context,
    site, seq, time_ns (of the allocation). The largest first.
    """
    regions = _regions(process)
    alive = _alive(regions[~regions["kind"].isin(ELSEWHERE)], seq)
    return _largest(alive)


def allocation_sites(process: Process) -> pd.DataFrame:
    """By line that allocated, or call and thread: site, kind, allocations, bytes, largest, freed,
    alive (at the end), alive_bytes. The most bytes first.
    """
    return _sites(_regions(process))


def address_ranges(process: Process, seq: int) -> pd.DataFrame:
    """Where memory of each kind lay right after a call: kind, device, regions, bytes, span (from
    the lowest address to the highest), ranges (stretches without a gap), largest_range, gap_bytes,
    largest_gap, used (bytes of span). Arrays have no address.
    """
    regions = _regions(process)
    return _ranges(_alive(regions[~regions["kind"].isin(ELSEWHERE)], seq))


def _regions(process: Process, advance: Callable[[int], None] | None = None) -> pd.DataFrame:
    """tables.regions, with bytes as int64, site, freed, death_ns."""
    frame = tables.regions([process])
    sizes = frame["size"].to_numpy()
    if float(sizes.astype("f8").sum()) >= 2.0**63:
        raise Error(f"{process.path / 'regions.bin'}: the sizes of its regions are too large")
    frame["bytes"] = sizes.astype("i8")
    frame["freed"] = frame["death_seq"].notna()
    frame["death_ns"] = process.regions.death_ns
    frame["site"] = site_column([process], frame["call"], advance)
    return frame


def _steps(regions: pd.DataFrame) -> pd.DataFrame:
    """See timeline()."""
    freed = regions["freed"].to_numpy()
    rows = np.concatenate([np.flatnonzero(freed), np.arange(len(regions))])
    deaths = regions[freed]
    sizes = regions["bytes"].to_numpy()
    ends = deaths["death_seq"].to_numpy("i8")
    seqs = np.concatenate([ends, regions["seq"].to_numpy().astype("i8")])
    order = np.argsort(seqs, kind="stable")  # of one call's, frees first
    born = np.arange(len(rows)) >= len(deaths)
    change = np.where(born, sizes[rows], -sizes[rows])[order]
    times = np.concatenate([deaths["death_ns"].to_numpy(), regions["time_ns"].to_numpy()])
    columns = {
        "seq": seqs[order],
        "time_ns": times[order].astype("i8"),
        "region": regions["region"].to_numpy()[rows][order],
        "change": change,
        "bytes": np.cumsum(change),
        "allocations": np.cumsum(np.where(born[order], 1, -1)),
    }
    return pd.DataFrame(columns)


def _alive(regions: pd.DataFrame, seq: int) -> pd.DataFrame:
    ends = regions["death_seq"].to_numpy("f8", na_value=np.inf)
    return regions[(regions["seq"].to_numpy() <= seq) & (ends > seq)]


def _largest(alive: pd.DataFrame) -> pd.DataFrame:
    in_order: pd.DataFrame = alive.sort_values("bytes", ascending=False, kind="stable")
    return in_order[list(ALIVE)].reset_index(drop=True)


def _sites(regions: pd.DataFrame) -> pd.DataFrame:
    left = ~regions["freed"]
    groups = regions.assign(
        alive=left.astype("i8"), alive_bytes=regions["bytes"].where(left, 0)
    ).groupby(["site", "kind"], observed=True, sort=False)
    sites: pd.DataFrame = groups.agg(
        allocations=("bytes", "size"),
        bytes=("bytes", "sum"),
        largest=("bytes", "max"),
        freed=("freed", "sum"),
        alive=("alive", "sum"),
        alive_bytes=("alive_bytes", "sum"),
    ).reset_index()
    return sites.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def _tensors(process: Process, epoch: int | None) -> pd.DataFrame:
    named = tables.tensors(process, epoch=epoch)
    largest: pd.DataFrame = named.sort_values(
        "bytes", ascending=False, kind="stable", ignore_index=True
    )
    return largest[["tensor", "type", "bytes", "region", "offset"]]


def _leaks(regions: pd.DataFrame) -> pd.DataFrame:
    left = regions[~regions["freed"] & (regions["kind"] != "global")]
    return _sites(left)[["site", "kind", "allocations", "bytes", "largest"]]


def _ranges(alive: pd.DataFrame) -> pd.DataFrame:
    made: list[dict[str, Any]] = []
    placed = alive[~alive["kind"].isin(UNPLACED) & (alive["bytes"] > 0)]
    for (kind, device), some in placed.groupby(["kind", "device"], observed=True):
        bases = some["base"].to_numpy()
        order = np.argsort(bases, kind="stable")
        starts = bases[order]
        ends = np.maximum.accumulate(starts + some["bytes"].to_numpy().astype("u8")[order])
        begins = np.append(True, starts[1:] > ends[:-1])
        gaps = (starts[1:] - ends[:-1])[begins[1:]]
        lasts = np.append(begins[1:], True)
        lengths = ends[lasts] - starts[begins]
        span, taken = int(ends[-1] - starts[0]), int(lengths.sum())
        made.append(
            {
                "kind": kind,
                "device": int(device),
                "regions": len(some),
                "bytes": int(some["bytes"].sum()),
                "span": span,
                "ranges": len(lengths),
                "largest_range": int(lengths.max()),
                "gap_bytes": int(gaps.sum()),
                "largest_gap": int(gaps.max()) if len(gaps) else 0,
                "used": taken / span,
            }
        )
    return pd.DataFrame(made, columns=list(RANGES))


RANGES = (
    *("kind", "device", "regions", "bytes", "span", "ranges", "largest_range", "gap_bytes"),
    *("largest_gap", "used"),
)


# ---- moments ----


def _peak(steps: pd.DataFrame) -> int:
    """The step after which most was allocated; -1 where there is none."""
    return int(steps["bytes"].to_numpy().argmax()) if len(steps) else -1


def _moment(process: Process, regions: pd.DataFrame, steps: pd.DataFrame, step: int) -> Moment:
    """After a step, -1 before the first; when all that one call did is done."""
    if step < 0 or not len(steps):
        return Moment(0, 0, _epoch_from(process, 0), 0, 0, None, None)
    seqs = steps["seq"].to_numpy()
    last = steps.iloc[int(np.searchsorted(seqs, seqs[step], "right")) - 1]
    seq = int(last["seq"])
    region = regions[regions["region"] == int(last["region"])].iloc[0]
    freed = int(last["change"]) < 0 and int(region["seq"]) != seq
    call = region["death_call" if freed else "call"]
    site = None if freed else str(region["site"])
    known = isinstance(call, str)
    return Moment(
        seq,
        int(last["time_ns"]),
        _epoch_from(process, seq),
        int(last["bytes"]),
        int(last["allocations"]),
        call if known else None,
        site if known else None,
    )


def _moment_at(process: Process, regions: pd.DataFrame, steps: pd.DataFrame, at: str) -> Moment:
    """epoch:N or seq:N."""
    what, _, number = at.partition(":")
    if what not in ("epoch", "seq") or not (number.isdecimal() and number.isascii()):
        raise Error(f"--at {at}: expected peak, end, epoch:N or seq:N")
    seq = min(int(number), (1 << 63) - 1)
    if what == "epoch":
        if seq >= len(process.epochs):
            have = f"epochs 0 to {len(process.epochs) - 1}" if len(process.epochs) else "no epochs"
            raise Error(f"--at {at}: process {process.index} has {have}")
        seq = int(process.epochs["seq"][seq])
    step = int(np.searchsorted(steps["seq"].to_numpy(), seq, "right")) - 1
    before = _moment(process, regions, steps, step)
    after = replace(before, seq=seq, epoch=_epoch_from(process, seq))
    return after if before.seq == seq else replace(after, call=None, site=None)


def _epoch_from(process: Process, seq: int) -> int | None:
    """The first epoch that was cut at a call or after it."""
    after = process.epochs["number"][process.epochs["seq"] >= seq]
    return int(after.min()) if len(after) else None


# ---- over time ----


def levels(steps: pd.DataFrame, count: int) -> tuple[Array, Array, str]:
    """The most that was allocated in each of `count` equal parts of a timeline.

    Gives the parts' borders, count + 1, the bytes, and what the borders are: "time_ns", or "seq"
    where no times were recorded.
    """
    seqs = steps["seq"].to_numpy("i8")
    times = np.maximum.accumulate(steps["time_ns"].to_numpy("i8")) if len(steps) else seqs
    axis = "time_ns" if len(times) and times[-1] > times[0] else "seq"
    places = times if axis == "time_ns" else seqs
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, 0)
    borders = np.linspace(first, max(last, first + 1), count + 1)
    sizes = np.concatenate([np.zeros(1, "i8"), steps["bytes"].to_numpy()])
    at = np.searchsorted(places, borders[:-1])  # steps before each part
    ends = np.append(at[1:], len(places))
    peaks = [int(sizes[a : b + 1].max()) for a, b in zip(at.tolist(), ends.tolist(), strict=True)]
    return borders, np.array(peaks, "i8"), axis
