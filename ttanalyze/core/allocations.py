"""Memory use over time, from the births and deaths of regions. Reads no contents.

Sums count device memory. Page-locked host memory and opened allocations of other processes are
reported separately.
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
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress, counted

HOST = ("host", "host-registered")
ELSEWHERE = (*HOST, "ipc", "zone")  # kinds that are no memory of the program on the device
UNPLACED = ("array",)  # whose base is a handle, not an address


@dataclass(frozen=True)
class Moment:
    """The allocated memory right after a call.

    Attributes:
        seq: The sequence number of the call, 0 before the first one.
        time_ns: The time of the call in nanoseconds, 0 before the first one.
        epoch: The first epoch from then on, None after the last.
        bytes: The allocated bytes.
        allocations: The number of allocations.
        call: The driver call, if it allocated or freed memory.
        site: The caller of this call.
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
    """The memory use of one process. Bytes and allocations are those on devices.

    Attributes:
        process: The number of the process.
        allocations, freed: The number of allocations and frees in the whole run.
        allocated_bytes: The sum of all allocations in bytes.
        peak: The moment of the largest use.
        end: The end of the run.
        host_peak: The moment of the largest use of page-locked host memory, None if there is none.
        at: The selected moment.
        timeline: As `timeline` returns it.
        alive: The regions at the selected moment, as `alive_at` returns them.
        sites: As `allocation_sites` returns it.
        leaks: Sites of memory that was never freed, without variables of modules: site, kind,
            allocations, bytes, largest.
        ranges: The addresses at the selected moment, as `address_ranges` returns them.
        tensors: The named parts of regions at the epoch of the selected moment, the largest first:
            tensor, type, bytes, region, offset.
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
    """Analyses the memory use of processes.

    Args:
        run: The run.
        at: The moment to look at closely: "peak", "end", "epoch:N" or "seq:N".
        process: The number of the process. Default: all processes.
        progress: Called with the finished and the total number of events.

    Returns:
        One result per process.

    Raises:
        Error: The run has no such process or moment.
        FormatError: A file does not follow the format.

    Example:
        >>> found = tt.memory(tt.open("run1"))[0]
        >>> found.peak.bytes, found.allocations, found.freed
        (4096, 1, 0)
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


@checked
def timeline(process: Process) -> pd.DataFrame:
    """Returns the device memory over time.

    Args:
        process: The process.

    Returns:
        One row per allocation or free, in order: seq, time_ns (of the call), region, change (bytes,
        negative for a free), bytes and allocations (both in use after it).

    Example:
        >>> run = tt.open("run1")
        >>> tt.memory.timeline(run.processes[0])["bytes"].tolist()
        [4096]
    """
    regions = _regions(process)
    return _steps(regions[~regions["kind"].isin(ELSEWHERE)])


@checked
def alive_at(process: Process, seq: int) -> pd.DataFrame:
    """Returns the device memory that is allocated right after a call.

    Args:
        process: The process.
        seq: The sequence number of the call.

    Returns:
        One row per region, the largest first: region, kind, label, bytes, base, device, context,
        site, seq, time_ns (of the allocation).

    Example:
        >>> run = tt.open("run1")
        >>> tt.memory.alive_at(run.processes[0], 2)[["label", "bytes"]].values.tolist()
        [['weights', 4096]]
    """
    regions = _regions(process)
    alive = _alive(regions[~regions["kind"].isin(ELSEWHERE)], seq)
    return _largest(alive)


@checked
def allocation_sites(process: Process) -> pd.DataFrame:
    """Returns the places in the program that allocate memory.

    Args:
        process: The process.

    Returns:
        One row per source line (or call and thread) and kind, the most bytes first: site, kind,
        allocations, bytes, largest, freed, alive (at the end), alive_bytes.

    Example:
        >>> run = tt.open("run1")
        >>> tt.memory.allocation_sites(run.processes[0])["alive_bytes"].tolist()
        [4096]
    """
    return _sites(_regions(process))


@checked
def address_ranges(process: Process, seq: int) -> pd.DataFrame:
    """Returns how the memory of each kind is spread over addresses right after a call.

    Args:
        process: The process.
        seq: The sequence number of the call.

    Returns:
        One row per kind and device: kind, device, regions, bytes, span (from the lowest to the
        highest address), ranges (without gaps), largest_range, gap_bytes, largest_gap, used (bytes
        / span). Arrays have no address and are left out.

    Example:
        >>> run = tt.open("run1")
        >>> tt.memory.address_ranges(run.processes[0], 2)["used"].tolist()
        [1.0]
    """
    regions = _regions(process)
    return _ranges(_alive(regions[~regions["kind"].isin(ELSEWHERE)], seq))


def _regions(process: Process, advance: Callable[[int], None] | None = None) -> pd.DataFrame:
    """Returns the table `regions` with bytes as int64, site, freed and death_ns."""
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
    """Returns what timeline() returns, of some regions."""
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
    """Returns the step with the largest use, -1 if there is none."""
    return int(steps["bytes"].to_numpy().argmax()) if len(steps) else -1


def _moment(process: Process, regions: pd.DataFrame, steps: pd.DataFrame, step: int) -> Moment:
    """Returns the moment after a step, -1 before the first. All effects of one call are one
    moment.
    """
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
    """Returns the moment "epoch:N" or "seq:N"."""
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
    """Returns the first epoch that was cut at a call or after it."""
    after = process.epochs["number"][process.epochs["seq"] >= seq]
    return int(after.min()) if len(after) else None


# ---- over time ----


def levels(steps: pd.DataFrame, count: int) -> tuple[Array, Array, str]:
    """Returns the largest use in each of `count` equal parts of a timeline.

    Returns count + 1 borders, the bytes, and the unit of the borders: "time_ns", or "seq" without
    times.
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
