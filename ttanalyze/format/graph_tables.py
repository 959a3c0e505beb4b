"""The tables of graphs: graphs, nodes and edges as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.format import graphs as model
from ttanalyze.format import layout
from ttanalyze.format.columns import nullable
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output.times import as_timedeltas
from ttanalyze.util.progress import Progress, counted

GRAPH_LAUNCH = KIND["graph-launch"]
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
SIZES = ("grid", "block", "cluster")
COUNTED = ("kernel", "copy", "set")  # kinds of nodes with a column of their own


def graphs(processes: Sequence[Process], progress: Progress = None) -> pd.DataFrame:
    """One row per executable graph.

    Args:
        processes: The processes.
        progress: Called with the finished and the total number of events.

    Columns:
        graph: number, in order of instantiation: the `id` of `graph-launch`, `graph-instantiate`,
            `graph-update` and `graph-destroy` in `events`
        context, seq: where it was made, and by which call
        ended: the call that destroyed it; missing while it exists
        nodes, kernels, copies, sets, edges: numbers at its end, with child graphs; missing if
            unknown
        changes: number of calls that changed it
        launches: number of successful launches
        device: whether kernels may launch it; such launches are not recorded
    """
    advance = counted(progress, sum(p.count_events() for p in processes) if progress else 0)

    rows = [row for process in processes for row in _rows(process, advance)]
    names = (
        *("process", "graph", "context", "seq", "ended", "nodes", "kernels", "copies", "sets"),
        *("edges", "changes", "launches", "device"),
    )
    columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    made: dict[str, Any] = {}
    for name in names:
        values = list(columns.get(name, ()))
        made[name] = np.array(values, bool) if name == "device" else pd.array(values, "Int64")
    return pd.DataFrame(made)


def _rows(process: Process, advance: Callable[[int], None]) -> list[tuple[Any, ...]]:
    found = process.graphs
    launches = _launches(process, len(found), advance)
    out = []
    for number, record in enumerate(found.made):
        counts: list[int | None] = [None] * 5
        if found.known(number):
            kinds = found.nodes(number)["kind"]
            by_kind = [int((kinds == model.KIND[kind]).sum()) for kind in COUNTED]
            counts = [len(kinds), *by_kind, len(found.edges(number))]
        ended = int(found.ended[number]) or None
        row = (process.index, number, int(record["context"]), int(record["seq"]), ended, *counts)
        device = bool(record["flags"] & model.FLAGS["device"])
        out.append((*row, len(found.changes(number)) - 1, int(launches[number]), device))
    return out


def _launches(process: Process, count: int, advance: Callable[[int], None]) -> Array:
    """How often each graph was launched."""
    out = np.zeros(count, "i8")
    if not count:
        return out
    for events in process.event_pieces():
        ran = (events["kind"] == GRAPH_LAUNCH) & (events["result"] == 0)
        ran &= (events["flags"] & CAPTURING == 0) & (events["id"] < count)
        out += np.bincount(events["id"][ran], minlength=count)
        advance(len(events))
    return out


def nodes(
    process: Process, number: int, seq: int | None = None, times: bool = False
) -> pd.DataFrame:
    """One row per node of a graph as the call `seq` finds it, or at the graph's end.

    Each node comes after the nodes that it depends on.

    With times, `gpu_time` is one column more: the mean of the launches, as timedelta64[ns].

    Args:
        process: The process.
        number: The number of the graph.
        seq: The state at the call with this sequence number. Default: the last state.
        times: Whether to add `gpu_time`.

    Columns:
        node: number
        kind: `kernel` `copy` `set` `host` `graph` `empty` `event-wait` `event-record` `signal`
            `wait` `alloc` `free` `mem-op` `conditional` `other`
        parent, branch: the node that contains it, and which body of a conditional node
        kernel: mangled name
        short: readable name
        context: where it runs
        grid_x … cluster_z: of kernels: blocks of the grid, threads of a block, blocks of a cluster
        shared: bytes of dynamic shared memory of a block
        dst, src, bytes: of copies, sets and memory; see docs/format.md#graphsbin
        params: parameters of a kernel, as bytes
        regions: ids of the regions that it names
        enabled: False: disabled
        cooperative: whether it is a cooperative launch
        conditional: whether a conditional node decides how often it runs
        device: whether kernels may change it
        known: False: the driver does not describe it
    """
    found = process.graphs
    records = found.nodes(number, seq)[found.order(number, seq)]
    flags = {name: records["flags"] & bit != 0 for name, bit in model.FLAGS.items()}
    kernels = [process.kernel(f) for f in records["function"].tolist()]
    texts = {k: demangle.short(full) for k, full in _demangled(kernels)}
    reached = NodeRegions(process, _moment(process, number, seq))
    columns: dict[str, Any] = {
        "node": records["node"].astype("i8"),
        "kind": [model.KINDS[kind] for kind in records["kind"].tolist()],
        "parent": nullable(records["parent"], layout.NO_ID),
        "branch": records["branch"],
        "kernel": kernels,
        "short": [None if kernel is None else texts[kernel] for kernel in kernels],
        "context": nullable(records["context"], layout.NO_ID),
        **{f"{size}_{axis}": records[size][:, i] for size in SIZES for i, axis in enumerate("xyz")},
        **{name: records[name] for name in ("shared", "dst", "src", "bytes")},
        "params": [
            found.data(record) if record["kind"] == model.KERNEL and record["data_size"] else None
            for record in records
        ],
        "regions": [reached.by(record) for record in records],
        "enabled": ~flags["disabled"],
        **{name: flags[name] for name in ("cooperative", "conditional", "device")},
        "known": ~flags["unread"],
    }
    if times:
        columns["gpu_time"] = _mean_times(process, number, seq, records["node"])
    return as_timedeltas(pd.DataFrame(columns))


def _mean_times(process: Process, number: int, seq: int | None, numbers: Array) -> Any:
    means = process.node_times.means(number, seq)
    at = means.rows(numbers)
    return pd.arrays.IntegerArray(np.append(means.took, 0)[at], at < 0)


def no_nodes() -> pd.DataFrame:
    """The table without a row, but for those that say whose node it is."""
    names = (
        *("process", "graph", "node", "kind", "parent", "branch", "kernel", "short", "context"),
        *(f"{size}_{axis}" for size in SIZES for axis in "xyz"),
        *("shared", "dst", "src", "bytes", "params", "regions", "enabled", "cooperative"),
        *("conditional", "device", "known"),
    )
    frame: pd.DataFrame = pd.DataFrame({name: [] for name in names})
    frame["gpu_time"] = pd.array([], "Int64")
    return frame


def _demangled(kernels: Sequence[str | None]) -> list[tuple[str, str]]:
    different = list(dict.fromkeys(kernel for kernel in kernels if kernel is not None))
    return list(zip(different, demangle.demangle(different), strict=True))


def _moment(process: Process, number: int, seq: int | None) -> int:
    """When the graph is looked at: in the end, that is when it was there last."""
    return seq or int(process.graphs.ended[number]) or (1 << 63) - 1


def edges(process: Process, number: int, seq: int | None = None) -> pd.DataFrame:
    """One row per edge of a graph, in the same way.

    Args:
        process: The process.
        number: The number of the graph.
        seq: The state at the call with this sequence number. Default: the last state.

    Columns:
        from, to: the nodes; the second comes after the first
        from_port, to_port, type: as the driver has them; type 0 is the default, 1 programmatic
    """
    records = process.graphs.edges(number, seq)
    names = ("from", "to", "from_port", "to_port", "type")
    return pd.DataFrame({name: records[name].astype("i8") for name in names})


class NodeRegions:
    """The regions that nodes name, at one moment."""

    def __init__(self, process: Process, seq: int) -> None:
        regions = process.regions
        born, died = regions.birth["seq"], regions.death_seq
        there = np.flatnonzero((born <= seq) & ((died == 0) | (died >= seq)))
        order = there[np.argsort(regions.birth["base"][there], kind="stable")]
        self._ids = regions.id[order]
        self._bases = regions.birth["base"][order]
        self._ends = self._bases + regions.size[order]
        self._process = process

    def by(self, record: Any) -> list[int]:
        """Returns the ids of regions that a node reads, writes or passes to a kernel."""
        kind = model.KINDS[record["kind"]]
        if kind in ("kernel", "mem-op"):
            params = self._process.graphs.data(record)
            words = np.frombuffer(params[: len(params) // 8 * 8], "<u8")
        elif kind == "copy":
            words = np.array([record["dst"], record["src"]], "u8")
        elif kind == "set":
            words = np.array([record["dst"]], "u8")
        else:
            return []
        at = np.searchsorted(self._bases, words, "right") - 1
        inside = at >= 0
        inside[inside] = words[inside] < self._ends[at[inside]]
        return list(dict.fromkeys(self._ids[at[inside]].tolist()))
