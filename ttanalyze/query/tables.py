"""The tables that can be asked: a run's, `allocs`, and columns that are worked out when asked.

Only what is asked for is read. Events and digests, of which there may be many millions, come in
pieces; the others as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze import demangle
from ttanalyze.model import frames, layout
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process
from ttanalyze.model.run import Run

Progress = Callable[[int, int], None] | None
PIECE = 1 << 18  # rows
NAMES = {"demangled", "short"}


@dataclass(frozen=True)
class Table:
    """recorded: the columns that are given unless others are asked for. worked_out: those that
    take some work. shown: what fits on a screen.

    pieces: of a run some columns, as DataFrames, with rows in the table's order if that is wanted.
    """

    recorded: tuple[str, ...]
    worked_out: tuple[str, ...]
    shown: tuple[str, ...]
    pieces: Callable[[Run, Sequence[str], bool, Progress], Iterator[pd.DataFrame]]

    @property
    def columns(self) -> tuple[str, ...]:
        """All that can be asked for."""
        return self.recorded + self.worked_out


def _only(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    some: pd.DataFrame = frame[list(columns)]
    return some


# ---- events ----


@dataclass
class _Names:
    """Kernels' names as the source has them: in full, and short."""

    run: Run

    @functools.cached_property
    def _full(self) -> dict[str, str]:
        names = [p.strings.get(n) for p in self.run.processes for n in p.functions["name"].tolist()]
        texts = list(dict.fromkeys(name for name in names if name is not None))
        return dict(zip(texts, demangle.demangle(texts), strict=True))

    def full(self, process: Process, function: int) -> str | None:
        name = process.kernel(function)
        return None if name is None else self._full.get(name, name)

    def short(self, process: Process, function: int) -> str | None:
        name = self.full(process, function)
        return None if name is None else demangle.short(name)


class _Events:
    """The columns of events that are not in its records alone."""

    def __init__(self, run: Run, columns: Sequence[str]) -> None:
        self.columns = columns
        self.recorded = [c for c in columns if c in frames.EVENT_FIELDS] or ["process"]
        fields = [f for c in self.recorded for f in frames.EVENT_FIELDS[c]]
        self.fields = dict.fromkeys(
            ["seq", *fields, *(["kind", "id"] if NAMES & {*columns} else [])]
        )
        self.frames = frames.EventFrames()
        names = _Names(run)
        self.names = {"demangled": frames.Texts(names.full), "short": frames.Texts(names.short)}
        self.host_ns: Any = None

    def frame(self, process: Process, records: Array, row: int) -> pd.DataFrame:
        """row: of records[0] among all of the process, by seq."""
        members = {field: records[field].copy() for field in self.fields}
        made = self.frames.frame([process], [members], self.recorded)
        for column in self.columns:
            if column in self.names:
                launch = members["kind"] == layout.EVENT_KINDS.index("launch")
                functions = np.where(launch, members["id"], layout.NO_ID)
                made[column] = self.names[column].column([process], [functions])
            elif column == "epoch":
                made[column] = _epoch_of(process, members["seq"])
            elif column == "host_ns":
                if self.host_ns is None or row == 0:
                    self.host_ns = _host_ns(process)
                made[column] = self.host_ns[row : row + len(records)]
        return _only(made, self.columns)


def _events(
    run: Run, columns: Sequence[str], ordered: bool, progress: Progress
) -> Iterator[pd.DataFrame]:
    events = _Events(run, columns)
    total, done = sum(p.count_events() for p in run.processes) if progress else 0, 0
    for process in run.processes:
        pieces = (
            process.events_by_seq(PIECE)
            if ordered or "host_ns" in columns
            else process.event_pieces(PIECE)
        )
        row = 0
        for records in pieces:
            yield events.frame(process, records, row)
            row += len(records)
            done += len(records)
            if progress:
                progress(done, total)


def _epoch_of(process: Process, seqs: Array) -> Any:
    """The first epoch that was cut at these calls or after them; missing where none was."""
    cuts = np.sort(process.epochs["seq"])
    numbers = process.epochs["number"][np.argsort(process.epochs["seq"], kind="stable")]
    at = np.searchsorted(cuts, seqs)
    none = at == len(cuts)
    return pd.arrays.IntegerArray(np.append(numbers, 0)[at].astype("i8"), none)


def _host_ns(process: Process) -> Any:
    """For each event, by seq: the time until the next call of its thread; missing of its last."""
    events = process.event_columns("thread", "time_ns")
    order = np.argsort(events["thread"], kind="stable")
    threads, times = events["thread"][order], events["time_ns"][order].astype("i8")
    last = np.append(threads[1:] != threads[:-1], True)[: len(threads)]
    gaps = np.empty(len(times), "i8")
    missing = np.empty(len(times), bool)
    gaps[order] = np.where(last, 0, np.append(np.diff(times), 0)[: len(times)])
    missing[order] = last
    return pd.arrays.IntegerArray(gaps, missing)


# ---- the others ----


def _whole(
    make: Callable[[Sequence[Process]], pd.DataFrame],
    **more: Callable[[Run, pd.DataFrame], Any],
) -> Callable[[Run, Sequence[str], bool, Progress], Iterator[pd.DataFrame]]:
    """A table in one piece; more: columns that are made of it and of the run."""

    def pieces(
        run: Run, columns: Sequence[str], ordered: bool, progress: Progress
    ) -> Iterator[pd.DataFrame]:
        frame = make(run.processes)
        for column in columns:
            if column in more:
                frame[column] = more[column](run, frame)
        yield _only(frame, columns)

    return pieces


def _digest_spans(process: Process) -> Iterator[tuple[int, int]]:
    """Epochs [first, last), one span after the other, of some PIECE digests each."""
    ends = np.cumsum(process.epochs["digests_count"])
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + PIECE, "right")))
        yield first, last
        first = last


def _digests(
    run: Run, columns: Sequence[str], ordered: bool, progress: Progress
) -> Iterator[pd.DataFrame]:
    total, done = sum(len(p.epochs) for p in run.processes), 0
    for process in run.processes:
        for first, last in _digest_spans(process):
            yield _only(frames.digests([process], first, last), columns)
            done += last - first
            if progress:
                progress(done, total)


def _changes(run: Run, regions: pd.DataFrame) -> Array:
    """How often each region was found changed: epochs with another digest than it had before."""
    counts = [np.empty(0, "i8"), *(_changes_of(p) for p in run.processes)]
    return np.concatenate(counts)


def _changes_of(process: Process) -> Array:
    regions = process.regions
    known, seen = np.zeros(len(regions), "u8"), np.zeros(len(regions), bool)
    count = np.zeros(len(regions), "i8")
    for first, last in _digest_spans(process):
        records = process.digests(first, last)
        rows = regions.rows(records["region"])
        order = np.argsort(rows, kind="stable")
        rows, digests = rows[order], records["digest"][order]
        begins = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
        ends = np.append(begins[1:], True)[: len(rows)]
        before = np.append(np.uint64(0), digests[:-1])[: len(rows)]
        before[begins] = known[rows[begins]]
        np.add.at(count, rows, (digests != before) & (~begins | seen[rows]))
        known[rows[ends]], seen[rows] = digests[ends], True
    return count


def _allocs(processes: Sequence[Process]) -> pd.DataFrame:
    """run.regions with the names of allocations: how large, by which call, freed when."""
    regions = frames.regions(processes)
    names = {"size": "bytes", "death_call": "free_call", "death_seq": "free_seq"}
    allocs: pd.DataFrame = regions.rename(columns=names)
    ends = np.concatenate([np.empty(0, "u8"), *(p.regions.death_ns for p in processes)])
    alive = allocs["free_seq"].isna().to_numpy()
    lived = ends.astype("i8") - allocs["time_ns"].to_numpy().astype("i8")
    allocs["freed"] = ~alive
    allocs["free_ns"] = pd.arrays.IntegerArray(ends.astype("i8"), alive)
    allocs["live_ns"] = pd.arrays.IntegerArray(lived, alive.copy())
    return allocs


def allocating_threads(process: Process) -> Any:
    """The thread of the call that made each region, by region; missing where it wasn't recorded."""
    regions = process.regions
    by_seq = np.argsort(regions.birth["seq"], kind="stable")
    births = regions.birth["seq"][by_seq]
    threads, known = np.zeros(len(births), "i8"), np.zeros(len(births), bool)
    for records in process.event_pieces() if len(births) else ():
        at = np.minimum(np.searchsorted(births, records["seq"]), len(births) - 1)
        mine = np.flatnonzero(births[at] == records["seq"])
        # Several regions may be of one call, as the variables of a module are.
        for row, thread in zip(at[mine].tolist(), records["thread"][mine].tolist(), strict=True):
            end = int(np.searchsorted(births, births[row], "right"))
            threads[by_seq[row:end]], known[by_seq[row:end]] = thread, True
    return pd.arrays.IntegerArray(threads, ~known)


def _threads(run: Run, frame: pd.DataFrame) -> Any:
    parts = [pd.Series(allocating_threads(p)) for p in run.processes]
    return pd.concat(parts).array if parts else pd.array([], "Int64")


def _sites(run: Run, allocs: pd.DataFrame) -> Any:
    return site_texts(allocs["call"], _threads(run, allocs))


def site_texts(calls: Any, threads: Any) -> Any:
    """The call and the thread that allocated, as one text: a categorical. calls: one too."""
    numbers = threads.to_numpy("i8", na_value=-1)
    pairs, which = np.unique(
        np.stack([calls.cat.codes.to_numpy("i8"), numbers]), axis=1, return_inverse=True
    )
    texts: dict[str, int] = {}
    codes = np.empty(pairs.shape[1], "i4")
    for i, (call, thread) in enumerate(pairs.T.tolist()):
        name = "unknown call" if call < 0 else str(calls.cat.categories[call])
        site = name if thread < 0 else f"{name}, thread {thread}"
        codes[i] = texts.setdefault(site, len(texts))
    return frames.categories(codes[which.ravel()], list(texts))


def _kernel_names(short: bool) -> Callable[[Run, pd.DataFrame], Any]:
    def column(run: Run, functions: pd.DataFrame) -> Any:
        names = functions["name"].astype("object")
        full = dict(zip(names, demangle.demangle(n if n == n else "" for n in names), strict=True))
        made = {name: demangle.short(text) if short else text for name, text in full.items()}
        return pd.Categorical(names.map(made))

    return column


def _table(
    recorded: str,
    worked_out: str,
    shown: str,
    pieces: Callable[[Run, Sequence[str], bool, Progress], Iterator[pd.DataFrame]],
) -> Table:
    return Table(tuple(recorded.split()), tuple(worked_out.split()), tuple(shown.split()), pieces)


REGION = "process region kind label"
OWNER = "base captured unstable device context stream module call"
TABLES = {
    "events": _table(
        " ".join(frames.EVENT_FIELDS),
        "demangled short epoch host_ns",
        "seq kind call short thread context stream bytes grid_x grid_y grid_z block_x",
        _events,
    ),
    "epochs": _table(
        "process epoch trigger label full touched loose refused dropped gap context device seq "
        "time_ns done_ns regions changed_regions changed_blocks bytes_read bytes_changed "
        "bytes_stored segment",
        "",
        "epoch trigger label full refused context seq regions changed_regions changed_blocks "
        "bytes_changed bytes_stored",
        _whole(frames.epochs),
    ),
    "regions": _table(
        f"{REGION} size {OWNER} seq time_ns born died death_call death_seq",
        "thread changes",
        "region kind label size base captured context call seq born died",
        _whole(frames.regions, thread=_threads, changes=_changes),
    ),
    "allocs": _table(
        f"{REGION} bytes {OWNER} seq time_ns born died freed free_call free_seq free_ns live_ns",
        "thread site changes",
        "region kind label bytes call seq freed free_call free_seq live_ns",
        _whole(_allocs, thread=_threads, site=_sites, changes=_changes),
    ),
    "functions": _table(
        "process function name module registers shared local max_threads param_bytes param_count",
        "demangled short",
        "function short registers shared local max_threads param_bytes param_count",
        _whole(frames.functions, demangled=_kernel_names(False), short=_kernel_names(True)),
    ),
    "modules": _table(
        "process module kind image size seq path context globals",
        "",
        "module kind image size seq path context globals",
        _whole(frames.modules),
    ),
    "digests": _table(
        "process epoch region digest changed", "", "epoch region digest changed", _digests
    ),
}
