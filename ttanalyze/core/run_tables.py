"""The tables for queries: those of a run, `allocs`, and computed columns.

Only requested columns are read. Events, activities and digests, which may have many millions of
rows, come in pieces; other tables come as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.core import allocating_calls, stacks
from ttanalyze.core.digest_changes import region_changes
from ttanalyze.core.event_columns import (
    OF_ANNOTATIONS,
    OF_THE_GPU,
    OF_WAITS,
    WAIT_FIELDS,
    HostTimes,
    annotation_texts,
    delays,
    directions,
    epoch_of,
    gpu_times,
    settings_at,
    waits,
)
from ttanalyze.core.rank_column import RANK, Piece, Pieces, ranked
from ttanalyze.format import (
    collective_table,
    event_kinds,
    graph_tables,
    layout,
    tables,
    trace_tables,
)
from ttanalyze.format.activity_table import ACTIVITY_COLUMNS, ActivityTable
from ttanalyze.format.columns import Texts, categories, string_of
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.history import batches
from ttanalyze.format.kernel_checksums import Checksums, Sources
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.util.progress import Progress, tell

PIECE = 1 << 18  # rows
OF_KERNELS = ("demangled", "short", "checksum", "source")  # texts of events
NODE_TEXTS = ("kind", "kernel", "short", "demangled", "params", "regions")
OF_STACKS = {"caller": stacks.caller, "stack_text": stacks.whole}


@dataclass(frozen=True)
class Table:
    """A table for queries.

    recorded: the columns that a query returns by default. worked_out: computed columns, with their
    meanings. shown: the columns that fit on a screen. order: the columns by which rows are sorted,
    if pieces may come unsorted.

    pieces: takes a run or another source, the columns that will be requested, and whether rows must
    be sorted. It yields at least one piece; each is valid until the next.
    """

    recorded: tuple[str, ...]
    worked_out: Collection[str]
    shown: tuple[str, ...]
    pieces: Pieces
    order: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.recorded, *self.worked_out)


@dataclass
class FramePiece:
    """A piece that is a DataFrame."""

    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, columns: Sequence[str], rows: Array | None = None) -> pd.DataFrame:
        some: pd.DataFrame = self.frame[list(columns)]
        return some if rows is None else some.iloc[rows]


# ---- events ----


class _Names:
    """Demangled names of kernels, in full or short."""

    def __init__(self, run: Run, short: bool) -> None:
        names = [p.strings.get(n) for p in run.processes for n in p.functions["name"].tolist()]
        texts = list(dict.fromkeys(name for name in names if name is not None))
        full = demangle.demangle(texts)
        made = map(demangle.short, full) if short else full
        self._names = dict(zip(texts, made, strict=True))

    def get(self, process: Process, function: int) -> str | None:
        name = process.kernel(function)
        return None if name is None else self.text(name)

    def text(self, mangled: str) -> str:
        return self._names.get(mangled, mangled)


class _Events:
    """State that all pieces of events share."""

    def __init__(self, run: Run, columns: Sequence[str]) -> None:
        self.table = tables.EventTable()
        self.texts: dict[str, Texts] = {}
        for column in columns:
            if column in OF_STACKS:
                self.texts[column] = Texts(stacks.StackTexts(OF_STACKS[column]).get)
            elif column in OF_KERNELS:
                images = {"checksum": Checksums, "source": Sources}.get(column)
                names = images() if images else _Names(run, column == "short")
                self.texts[column] = Texts(names.get)
            elif column in OF_ANNOTATIONS:
                text_of = tables.annotation_path if column == "range" else string_of
                self.texts[column] = Texts(text_of)
            elif column == "controls":
                self.texts[column] = Texts(string_of)


@dataclass
class _EventPiece:
    """A piece of events. host: the host times of the process, if host_ns is requested."""

    common: _Events
    process: Process
    records: Array
    host: HostTimes | None

    def __len__(self) -> int:
        return len(self.records)

    def take(self, columns: Sequence[str], rows: Array | None = None) -> pd.DataFrame:
        recorded = [c for c in columns if c in tables.EVENT_FIELDS]
        fields = {"seq", *(f for c in recorded for f in tables.EVENT_FIELDS[c])}
        fields |= {"kind", "id"} if {*OF_KERNELS, "graph"} & {*columns} else set()
        fields |= {"stack"} if {*OF_STACKS} & {*columns} else set()
        fields |= {"time_ns"} if OF_THE_GPU & {*columns} else set()
        fields |= {"kind", "id", "dst", "thread"} if OF_ANNOTATIONS & {*columns} else set()
        fields |= {"kind", "flags"} if {"delayed", "direction"} & {*columns} else set()
        fields |= {*WAIT_FIELDS} if OF_WAITS & {*columns} else set()
        members = {f: self.records[f] for f in fields}
        members = {f: v.copy() if rows is None else v[rows] for f, v in members.items()}
        made = self.common.table.frame([self.process], [members], recorded or ["process"])
        if OF_THE_GPU & {*columns}:
            made = made.assign(**gpu_times(self.process, members))
        for column in columns:
            if column in OF_STACKS:
                made[column] = self.common.texts[column].column([self.process], [members["stack"]])
            elif column in OF_KERNELS:
                launch = members["kind"] == KIND["launch"]
                functions = np.where(launch, members["id"], layout.NO_ID)
                made[column] = self.common.texts[column].column([self.process], [functions])
            elif column in OF_ANNOTATIONS:
                numbers = annotation_texts(self.process, column, members)
                made[column] = self.common.texts[column].column([self.process], [numbers])
            elif column == "graph":
                of_graphs = np.isin(members["kind"], event_kinds.GRAPH)
                unknown = ~of_graphs | (members["id"] == layout.NO_ID)
                made[column] = pd.arrays.IntegerArray(members["id"].astype("i8"), unknown)
            elif column in OF_WAITS:
                made[column] = waits(self.process, column, members)
            elif column == "delayed":
                made[column] = delays(members["flags"])
            elif column == "direction":
                made[column] = directions(members["kind"], members["flags"])
            elif column == "controls":
                numbers = settings_at(self.process, members["seq"])
                made[column] = self.common.texts[column].column([self.process], [numbers])
            elif column == "epoch":
                made[column] = epoch_of(self.process, members["seq"])
            elif column == "host_ns":
                assert self.host is not None, "it must be requested first"
                made[column] = self.host.until_next(members["seq"])
            elif column == "wait_time":
                begins, ends, known = self.process.activities.spans(members["seq"], waits=True)
                made[column] = pd.arrays.IntegerArray(ends - begins, ~known)
        return made[list(columns)]


def _events(run: Run, columns: Sequence[str], ordered: bool, progress: Progress) -> Iterator[Piece]:
    common = _Events(run, columns)
    total, done = sum(p.count_events() for p in run.processes) if progress else 0, 0
    for process in run.processes:
        host = HostTimes(process) if "host_ns" in columns else None
        pieces = process.events_by_seq(PIECE) if ordered else process.event_pieces(PIECE)
        for records in pieces:
            yield _EventPiece(common, process, records, host)
            done += len(records)
            tell(progress, done, total)
    if not done:
        yield FramePiece(_no_events(common, columns))


def _no_events(common: _Events, columns: Sequence[str]) -> pd.DataFrame:
    recorded = [c for c in columns if c in tables.EVENT_FIELDS]
    made = common.table.frame([], [], recorded or ["process"])
    for column in columns:
        if column not in tables.EVENT_FIELDS:
            texts = common.texts.get(column)
            made[column] = texts.column([], []) if texts else pd.array([], "Int64")
    none = np.empty(0, "u4")
    if "delayed" in columns:
        made["delayed"] = delays(none)
    if "direction" in columns:
        made["direction"] = directions(none, none)
    return made


# ---- activities ----


@dataclass
class _ActivityPiece:
    table: ActivityTable
    process: Process
    records: Array

    def __len__(self) -> int:
        return len(self.records)

    def take(self, columns: Sequence[str], rows: Array | None = None) -> pd.DataFrame:
        records = self.records if rows is None else self.records[rows]
        named = [c for c in columns if c in OF_KERNELS]
        wanted = [c for c in columns if c not in named] + ["kernel"] * bool(named)
        made = self.table.frame([self.process], [records], [*dict.fromkeys(wanted)])
        for column in named:
            made[column] = _as_in_the_source(made["kernel"].array, column == "short")
        return made[list(columns)]


def _as_in_the_source(kernels: Any, short: bool) -> Any:
    """Returns a categorical of mangled names as one of demangled or short names."""
    names = demangle.demangle(kernels.categories)
    texts: dict[str, int] = {}
    made = map(demangle.short, names) if short else names
    codes = [texts.setdefault(text, len(texts)) for text in made]
    return categories(np.array([*codes, -1], "i4")[kernels.codes], list(texts))


def _activities(
    run: Run, columns: Sequence[str], ordered: bool, progress: Progress
) -> Iterator[Piece]:
    common = ActivityTable()
    total, done = sum(len(p.activities) for p in run.processes) if progress else 0, 0
    for process in run.processes:
        for records in process.activities.by_seq(PIECE):
            yield _ActivityPiece(common, process, records)
            done += len(records)
            tell(progress, done, total)
    if not done:
        yield FramePiece(tables.activities(()).assign(demangled=NO_TEXTS, short=NO_TEXTS))


# ---- the others ----


def _whole(
    make: Callable[[Sequence[Process]], pd.DataFrame], **more: Callable[[Run, pd.DataFrame], Any]
) -> Pieces:
    """A table in one piece; more: columns that are made of it and of the run."""

    def pieces(
        run: Run, columns: Sequence[str], ordered: bool, progress: Progress
    ) -> Iterator[Piece]:
        frame = make(run.processes)
        for column in columns:
            if column in more:
                frame[column] = more[column](run, frame)
        yield FramePiece(frame)

    return pieces


def _digests(
    run: Run, columns: Sequence[str], ordered: bool, progress: Progress
) -> Iterator[Piece]:
    total, done = sum(len(p.epochs) for p in run.processes), 0
    for process in run.processes:
        for first, last in batches(process, "digests", 0, len(process.epochs), PIECE):
            yield FramePiece(tables.digests([process], first, last))
            done += last - first
            tell(progress, done, total)
    if not done:
        yield FramePiece(tables.digests(()))


def _graphs(run: Run, columns: Sequence[str], ordered: bool, progress: Progress) -> Iterator[Piece]:
    yield FramePiece(graph_tables.graphs(run.processes, progress))


def _nodes(run: Run, columns: Sequence[str], ordered: bool, progress: Progress) -> Iterator[Piece]:
    """Yields the nodes of each graph in its last state. Lists and bytes become texts."""
    total, parts = sum(len(p.graphs) for p in run.processes), []
    for process in run.processes:
        for number in range(len(process.graphs)):
            nodes = graph_tables.nodes(process, number, times="gpu_time" in columns)
            nodes = as_nanoseconds(nodes)
            parts.append(nodes.assign(process=process.index, graph=number))
            tell(progress, len(parts), total)
    found = pd.concat(parts, ignore_index=True) if parts else graph_tables.no_nodes()
    found["params"] = [p and p.hex() for p in found["params"]]
    found["regions"] = [" ".join(map(str, some)) for some in found["regions"]]
    names = _Names(run, False)
    found["demangled"] = [k and names.text(k) for k in found["kernel"]]
    for column in NODE_TEXTS:
        codes, texts = pd.factorize(found[column])
        found[column] = categories(codes, list(texts))
    yield FramePiece(found)


def _kernel_names(short: bool) -> Callable[[Run, pd.DataFrame], Any]:
    def column(run: Run, functions: pd.DataFrame) -> Any:
        texts = Texts(_Names(run, short).get)
        return texts.column(run.processes, [p.functions["id"] for p in run.processes])

    return column


def _table(
    recorded: str, worked_out: str, shown: str, pieces: Pieces, order: tuple[str, ...] = ()
) -> Table:
    given, fitting = (tuple(names.split()) for names in (recorded, shown))
    lines = re.findall(r"^([\w ]+): (.*(?:\n .*)*)", worked_out, re.M)
    meanings = {name: " ".join(what.split()) for names, what in lines for name in names.split()}
    return Table(given, meanings | OF_ALL, fitting, ranked(pieces), order)


def _columns(make: Callable[[Sequence[Process]], pd.DataFrame]) -> str:
    """Returns the columns that a function makes for a run without processes."""
    return " ".join(map(str, make(())))


OF_ALL = {RANK: "the rank that a launcher gave the process; missing if none did"}
NO_TEXTS = categories(np.empty(0, "i4"), [])
REGION = "process region kind label"
EVENTS = """
demangled short: name of the kernel in its source; the same without template arguments and
    parameters
checksum: checksum of the kernel's code
source: where the kernel begins in its source: `FILE:LINE`, of Triton and `nvcc -lineinfo`
caller: the innermost frame with a known line: `step (train.py:12)`
stack_text: all frames
graph: number of the executable graph that the call makes, changes, launches or destroys
epoch: the first epoch cut at this call or after it
host_ns: time until the next call of the thread, on the host
gpu_begin gpu_end gpu_time: times of the GPU work, with a `--timeline`; for several pieces of work,
    from the first begin to the last end
queue_time: `gpu_begin` less `time_ns`: the time from the call until the GPU began
wait_time: how long the host waited in the call
waited: the epoch with the capture that the call's stream had to wait for
waited_region: the region that both use, for launches with `--deps region` or `--regions touched`
direction: of copies: `host to device`, `device to host`, `device to device`, `host to host` or
    `between devices`; missing for other calls
delayed: what `--launch-delay` delayed: `call`, `stream`, `call and stream`, or missing
annotation domain: of NVTX calls: message and domain; missing for the default domain
range: the open NVTX ranges of the thread after the call, as `train/step 3/forward`
controls: settings of `tt_control` or `--control` at that time; missing if none were made
"""
KERNEL = "demangled short: the kernel, as in `events`\n"
NODES = """
gpu_time: mean of the graph's launches, of the last 4096, with `--timeline cupti` or
    `--graph-stamps`; missing if it is not certain which node was which
"""
THREAD = "thread: the thread that allocated it; missing without recorded calls\n"
SITE = """
site: where it was allocated: `train.py:12 in step`; without stacks, the call and the thread
"""
CHANGES = "changes: number of epochs with a new digest\n"
OWNER = "base captured unstable guarded device context stream module call"
TABLES = {
    "events": _table(
        " ".join(tables.EVENT_FIELDS),
        EVENTS,
        "seq kind call short thread context stream bytes grid_x grid_y grid_z block_x",
        _events,
        ("process", "seq"),
    ),
    "activities": _table(
        " ".join(ACTIVITY_COLUMNS),
        KERNEL,
        "seq kind short context stream bytes begin_ns gpu_time wait_time",
        _activities,
        ("process", "seq", "begin_ns"),
    ),
    "ranges": _table(
        _columns(tables.ranges),
        "",
        "kind path domain thread seq end_seq time",
        _whole(tables.ranges),
    ),
    "collectives": _table(
        _columns(collective_table.collectives),
        "",
        "communicator number operation bytes type reduction seq launch gpu_begin gpu_time",
        _whole(collective_table.collectives),
    ),
    "epochs": _table(
        _columns(tables.epochs),
        "",
        "epoch trigger label full refused context seq regions changed_regions changed_blocks "
        "bytes_changed bytes_stored",
        _whole(tables.epochs),
    ),
    "regions": _table(
        _columns(tables.regions),
        THREAD + CHANGES,
        "region kind label size base captured context call seq born died",
        _whole(tables.regions, thread=allocating_calls.threads, changes=region_changes),
    ),
    "allocs": _table(
        f"{REGION} bytes {OWNER} seq time_ns born died freed free_call free_seq free_ns live_ns",
        THREAD + SITE + CHANGES,
        "region kind label bytes call seq freed free_call free_seq live_ns",
        _whole(
            allocating_calls.allocs,
            thread=allocating_calls.threads,
            site=allocating_calls.sites,
            changes=region_changes,
        ),
    ),
    "functions": _table(
        f"{_columns(tables.functions)} checksum",
        f"{KERNEL}\nsource: where it begins in its source, as in `events`",
        "function short registers shared local max_threads param_bytes param_count",
        _whole(
            tables.functions,
            checksum=lambda run, _: tables.checksums(run.processes),
            source=lambda run, _: tables.sources(run.processes),
            demangled=_kernel_names(False),
            short=_kernel_names(True),
        ),
    ),
    "modules": _table(
        _columns(tables.modules),
        "",
        "module kind image size seq path context globals missing",
        _whole(tables.modules),
    ),
    "graphs": _table(
        "process graph context seq ended nodes kernels copies sets edges changes launches device",
        "",
        "graph nodes kernels copies sets edges launches changes seq ended",
        _graphs,
    ),
    "nodes": _table(
        f"process graph node kind parent branch kernel context {' '.join(tables.AXES)} shared dst "
        "src bytes params regions enabled cooperative conditional device known",
        KERNEL + NODES,
        "graph node kind parent short dst src bytes grid_x block_x regions enabled",
        _nodes,
    ),
    "labels": _table(
        "process region offset bytes tensor type start address epoch seq",
        "",
        "region offset bytes tensor type epoch seq",
        _whole(tables.labels),
    ),
    "traced": _table(
        _columns(trace_tables.traced),
        "",
        "launch seq kernel kinds refused reason grid_x block_x records lost complete",
        _whole(trace_tables.traced),
    ),
    "stacks": _table(
        _columns(tables.stacks),
        "",
        "stack depth kind function file line",
        _whole(tables.stacks),
    ),
    "digests": _table(
        "process epoch region digest changed", "", "epoch region digest changed", _digests
    ),
}
