"""Kernel launches as records for JSON, for scripts that read kernel-event files.

The `type` of a record is one of these:

- `kernel_launch`: a kernel ran.
- `graph_launch`: a graph was launched. The launches of its kernels follow, with graph and node.
- `kernel_node`: a kernel was captured into a graph, or is in the body of a conditional node. It has
  no kernel_launch_id.
- `callstack_def`: a call stack, before the first record that refers to it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pandas as pd
import xxhash

from ttanalyze.code import demangle
from ttanalyze.core import graph_kernels, stacks
from ttanalyze.core.event_columns import epoch_of
from ttanalyze.core.graph_kernels import CAPTURED, LAUNCH, Rows
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.kernel_checksums import Checksums
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import tables as show
from ttanalyze.util.progress import Progress, tell

__all__ = ["events"]

STACKS = ("dedup", "full", "nostack")
FORMATS = ("ndjson", "json", "csv", "table")
PIECE = 1 << 13  # launches
OUTPUT = 1 << 20  # bytes that are given on at once
TYPES = ("kernel_launch", "kernel_node", "graph_launch")
OF_KERNELS = (
    *("kernel_launch_id", "kernel_name", "kernel_name_mangled", "kernel_checksum"),
    *("grid", "block", "cluster", "nregs", "shmem", "params", "node"),
)
NOT_OF = {"graph_launch": OF_KERNELS, "kernel_node": OF_KERNELS[:1]}
SIZES = ("grid", "block", "cluster")
TIMES = ("gpu_begin_ns", "gpu_end_ns")
NUMBERS = (  # that may be missing
    *("kernel_launch_id", "nregs", "shmem", "device", "epoch"),
    *("graph", "node", *TIMES),
)
SHOWN = ("kernel_launch_id", "kernel", *SIZES[:2], "nregs", "shmem", "stream_id", "caller")

Columns = dict[str, list[Any]]


def events(
    run: Run, kernel: str | None = None, with_stacks: str | None = None, progress: Progress = None
) -> Iterator[dict[str, Any]]:
    """Yields the records of a run, process by process in the order of calls.

    Args:
        run: The run.
        kernel: A regular expression for the kernel name, mangled or demangled. Default: all
            launches.
        with_stacks: "dedup" (stacks by id), "full" (in each launch) or "nostack". Default: as
            recorded.
        progress: Called with the finished and the total number of launches.

    Raises:
        Error: An argument is wrong. It is raised before the first record.

    Example:
        >>> events = tt.events.events(tt.open("run1"), kernel="scale")
        >>> [event["kernel_launch_id"] for event in events]
        [0, 1]
    """
    return _records(_pieces(run, kernel, with_stacks, progress))


def _records(pieces: Iterator[_Piece]) -> Iterator[dict[str, Any]]:
    for piece in pieces:
        yield from piece.definitions
        names = list(piece.columns)
        for row in zip(*piece.columns.values(), strict=True):
            record = dict(zip(names, row, strict=True))
            for name in NOT_OF.get(record["type"], ()):
                record.pop(name, None)
            if "cpu_callstack" in record and record["cpu_callstack"] is None:
                del record["cpu_callstack"], record["cpu_callstack_source"]
            yield record


def written(
    run: Run,
    form: str,
    kernel: str | None = None,
    with_stacks: str | None = None,
    width: int = 0,
    progress: Progress = None,
) -> Iterator[bytes]:
    """Returns the records as text in pieces.

    Args:
        run: The run.
        form: "ndjson", "json" (a list), "csv" or "table" (the first rows, for a screen).
        kernel: A regular expression for the kernel name, mangled or demangled. Default: all
            launches.
        with_stacks: "dedup" (stacks by id), "full" (in each launch) or "nostack". Default: as
            recorded.
        width: The width of the screen in characters, 0 for no limit.
        progress: Called with the finished and the total number of launches.

    Raises:
        Error: An argument is wrong. It is raised at once.
    """
    if form not in FORMATS:
        raise Error(f"--format {form}: must be one of {', '.join(FORMATS)}")
    pieces = _pieces(run, kernel, with_stacks, progress)
    if form == "ndjson":
        return _ndjson(_records(pieces))
    if form == "json":
        return _json(_records(pieces))
    tables = map(_table, pieces)
    if form == "csv":
        return (part.encode() for part in show.written(tables, "csv"))
    return iter([f"{show.table_text(map(_screen, tables), show.SHOWN, width)}\n".encode()])


def _ndjson(made: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    return _joined(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in made)


def _json(made: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    items = (b",\n" + orjson.dumps(record) for record in made)
    first = next(items, b"")[2:]
    parts = itertools.chain([b"[\n", first], items, [b"\n]\n"]) if first else [b"[]\n"]
    return _joined(parts)


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Joins small parts into larger ones."""
    some = bytearray()
    for part in parts:
        some += part
        if len(some) > OUTPUT:
            yield bytes(some)
            some.clear()
    yield bytes(some)


def _table(piece: _Piece) -> pd.DataFrame:
    """Returns one row per launch: sizes in columns of their own, stacks as text, and the caller."""
    columns: dict[str, Any] = {}
    for name, values in piece.columns.items():
        if name in SIZES:
            for i, axis in enumerate("xyz"):
                sizes = [None if value is None else value[i] for value in values]
                columns[f"{name}_{axis}"] = pd.array(sizes, "Int64")
        elif name in NUMBERS:
            columns[name] = pd.array(values, "Int64")
        elif name == "cpu_callstack":
            columns[name] = [None if value is None else "; ".join(value) for value in values]
        else:
            columns[name] = values
    if piece.callers is not None:
        columns["caller"] = piece.callers
    return pd.DataFrame(columns)


def _screen(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the columns that fit on a screen."""
    names = table["kernel_name"].tolist()
    columns = {
        "kernel": [
            demangle.short(name) if isinstance(name, str) else kind
            for name, kind in zip(names, table["type"], strict=True)
        ]
    }
    for size in SIZES[:2]:
        axes = [table[f"{size}_{axis}"].to_numpy("i8", na_value=-1).tolist() for axis in "xyz"]
        columns[size] = [
            None if row[0] < 0 else ",".join(map(str, row)) for row in zip(*axes, strict=True)
        ]
    whole = table.assign(**columns)
    return whole[[name for name in SHOWN if name in whole]]


# ---- what is in them ----


@dataclass(frozen=True)
class _Piece:
    """Some launches of a process.

    columns: members of their records. definitions: of stacks that appear first here. callers: the
    calling frame of each, unless stacks are left out.
    """

    columns: Columns
    definitions: list[dict[str, Any]]
    callers: list[str | None] | None


def _pieces(
    run: Run, kernel: str | None, with_stacks: str | None, progress: Progress
) -> Iterator[_Piece]:
    if with_stacks is None:
        options = [process.info.get("options", {}) for process in run.processes]
        asked = any(one.get("TT_KERNEL_EVENTS") == "full" for one in options)
        with_stacks = "full" if asked else "dedup"
    if with_stacks not in STACKS:
        raise Error(f"--kernel-events {with_stacks}: must be one of {', '.join(STACKS)}")
    try:
        wanted = None if kernel is None else re.compile(kernel)
    except re.error as e:
        raise Error(f"--kernel {kernel}: not a regular expression: {e}") from None
    return _all_pieces(run, wanted, _Stacks(with_stacks), progress)


def _all_pieces(
    run: Run, wanted: re.Pattern[str] | None, known: _Stacks, progress: Progress
) -> Iterator[_Piece]:
    total = sum(p.count_events() for p in run.processes) if progress else 0
    done = number = 0
    nothing = True
    for process in run.processes:
        kernels = _Kernels(process, wanted)
        found = graph_kernels.Launches(process)
        for events in process.events_by_seq(PIECE):
            done += len(events)
            for rows in found.among(events):
                launches = rows.events["kind"] == LAUNCH
                ids = number + np.cumsum(launches & ~_unsure(rows)) - 1
                number = int(ids[-1]) + 1 if len(ids) else number
                chosen = kernels.chosen(rows.events["id"]) & launches
                if wanted is None:
                    chosen |= ~launches
                if chosen.any():
                    nothing = False
                    yield _piece(kernels, rows.take(chosen), ids[chosen], known)
            tell(progress, done, total)
    if nothing:  # which has columns still
        yield _piece(_Kernels(None, wanted), graph_kernels.NONE, np.empty(0, "i8"), known)


def _unsure(rows: Rows) -> Array:
    """Returns which launches did not run at the call, or as often as the device decided."""
    return np.asarray(rows.maybe | (rows.events["flags"] & CAPTURED != 0))


def _piece(kernels: _Kernels, rows: Rows, ids: Array, known: _Stacks) -> _Piece:
    process, events = kernels.process, rows.events
    kind = np.where(events["kind"] == LAUNCH, _unsure(rows), 2).tolist()
    at = kernels.rows(events["id"])
    static = kernels.shared[at]
    shmem = [
        None if size is None else size + more
        for size, more in zip(static.tolist(), events["shared"].tolist(), strict=True)
    ]
    names = kernels.names_of(events["id"], at)
    columns: Columns = {
        "type": [TYPES[k] for k in kind],
        "kernel_launch_id": ids.tolist(),
        "kernel_name": [pair[1] for pair in names],
        "kernel_checksum": kernels.checksums[at].tolist(),
        "grid": events["grid"].tolist(),
        "block": events["block"].tolist(),
        "nregs": kernels.registers[at].tolist(),
        "shmem": shmem,
        "stream_id": events["stream"].tolist(),
    }
    defined, callers = known.columns(process, events["stack"], columns)
    cluster = events["cluster"]
    columns |= {
        "kernel_name_mangled": [pair[0] for pair in names],
        "cluster": [c if any(c) else None for c in cluster.tolist()],
        "process": [process.index if process else 0] * len(events),
        **{name: events[name].tolist() for name in ("seq", "time_ns", "context")},
        "device": [kernels.devices.get(c) for c in events["context"].tolist()],
        **{name: events[name].tolist() for name in ("thread", "flags", "result")},
        "epoch": kernels.epochs(events["seq"]),
        **dict(zip(TIMES, kernels.times(rows), strict=True)),
        "params": [params and params.hex() for params in kernels.params(rows)],
        "graph": [None if graph == layout.NO_ID else graph for graph in rows.graph.tolist()],
        "node": [None if node < 0 else node for node in rows.node.tolist()],
    }
    for i in np.flatnonzero(np.array(kind)).tolist():  # in tables, these have such columns too
        for name in NOT_OF[columns["type"][i]]:
            columns[name][i] = None
    return _Piece(columns, defined, callers)


class _Kernels:
    """The kernels of a process: arrays by row of its functions, with one more row for unknown ones.

    process: None for no kernels.
    """

    def __init__(self, process: Process | None, wanted: re.Pattern[str] | None) -> None:
        self.process = process
        functions = process.functions if process else np.empty(0, layout.FUNCTION)
        self._ids = functions["id"]
        self._wanted = wanted
        mangled = [process.strings.get(n) or "?" for n in functions["name"]] if process else []
        self._names = list(zip(mangled, demangle.demangle(mangled), strict=True))
        sums = Checksums()
        made = [sums.get(process, f) for f in self._ids.tolist()] if process else []
        self.checksums = np.array([*made, None], object)
        self.registers = np.array([*functions["registers"].tolist(), None], object)
        self.shared = np.array([*functions["shared"].tolist(), None], object)
        matches = [wanted is None or any(map(wanted.search, names)) for names in self._names]
        self._matches = np.array([*matches, wanted is None])
        self.devices = _devices(process) if process else {}

    def rows(self, functions: Array) -> Array:
        at = np.searchsorted(self._ids, functions)
        known = at < len(self._ids)
        known[known] = self._ids[at[known]] == functions[known]
        return np.where(known, at, len(self._ids))

    def chosen(self, functions: Array) -> Array:
        """Returns which functions match the regular expression."""
        return np.asarray(self._matches[self.rows(functions)])

    def names_of(self, functions: Array, rows: Array) -> list[tuple[str, str]]:
        """Returns mangled and demangled names. In a running process a launch may precede the record
        of its kernel.
        """
        unknown = len(self._names)
        return [
            self._names[row] if row < unknown else (f"function {function}",) * 2
            for function, row in zip(functions.tolist(), rows.tolist(), strict=True)
        ]

    def epochs(self, seqs: Array) -> list[int | None]:
        """Returns the first epoch after each launch, None if there is none."""
        if self.process is None:
            return []
        return epoch_of(self.process, seqs).to_numpy("O", na_value=None).tolist()

    def times(self, rows: Rows) -> list[list[int | None]]:
        """Returns TIMES of each launch and each kernel of a graph, None if unknown."""
        if self.process is None:
            return [[], []]
        seqs, out = rows.events["seq"], []
        begins, ends, known = self.process.activities.spans(seqs)
        known &= rows.node < 0
        inside = np.flatnonzero((rows.node >= 0) & self.process.node_times.there)
        for some in np.split(inside, np.flatnonzero(np.diff(seqs[inside])) + 1):
            if len(some):
                graph, seq = int(rows.graph[some[0]]), int(seqs[some[0]])
                of_nodes = self.process.node_times.of(graph, seq)
                at = of_nodes.rows(rows.node[some])
                known[some] = at >= 0
                begins[some[at >= 0]] = of_nodes.begins[at[at >= 0]]
                ends[some[at >= 0]] = of_nodes.ends[at[at >= 0]]
        for times in (begins, ends):
            values = times.astype(object)
            values[~known] = None
            out.append(values.tolist())
        return out

    def params(self, rows: Rows) -> list[bytes | None]:
        """Returns the parameters of each launch, None if they were not recorded."""
        return rows.params(self.process) if self.process else []


def _devices(process: Process) -> dict[int, int]:
    """Returns the device of each context, if it is known."""
    tables = (process.epochs, process.regions.birth)
    return {
        context: device
        for table in tables
        for context, device in zip(table["context"].tolist(), table["device"].tolist(), strict=True)
    }


class _Stacks:
    """Call stacks of all processes, by content."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._seen: set[str] = set()
        self._describe = functools.lru_cache(1 << 12)(_describe)

    def columns(
        self, process: Process | None, numbers: Array, columns: Columns
    ) -> tuple[list[dict[str, Any]], list[str | None] | None]:
        """Adds the members of stacks. Returns definitions that must come before, and the
        callers.
        """
        if self._how == "nostack":
            return [], None
        different, which = np.unique(numbers, return_inverse=True)
        found = [self._describe(process, number) for number in different.tolist()]
        of = [found[i] for i in which.tolist()]
        defined = []
        if self._how == "full":
            columns["cpu_callstack"] = [stack and stack.lines for stack in of]
            columns["cpu_callstack_source"] = [stack and stack.source for stack in of]
        else:
            columns["callstack_id"] = [stack and stack.id for stack in of]
            for stack in found:
                if stack is not None and stack.id not in self._seen:
                    self._seen.add(stack.id)
                    defined.append(stack.definition())
        return defined, [stack and stack.caller for stack in of]


@dataclass(frozen=True)
class _Stack:
    """A call stack. lines: as in stacks.lines. id: a digest of them."""

    id: str
    lines: list[str]
    source: str
    caller: str

    def definition(self) -> dict[str, Any]:
        stack = {"frames": self.lines, "source": self.source}
        return {"type": "callstack_def", "callstack_id": self.id, **stack}


def _describe(process: Process | None, number: int) -> _Stack | None:
    frames = process.stack(number) if process and number else []
    if process is None or not frames:
        return None
    lines = stacks.lines(frames)
    digest = xxhash.xxh3_64_intdigest("\0".join(lines).encode())
    return _Stack(f"{digest:016x}", lines, stacks.source(process, number), stacks.caller(frames))
