"""Finds the calls that may have written to a region between two points of a run.

A copy or a fill names its destination. A launch is given pointers, which are known if its
parameters were recorded, but it may also use a pointer that lies in memory. A graph launch is as
sure as its surest node.

The result has all calls that may have written, and how sure each is. It leaves out failed calls,
calls that write elsewhere, calls of other contexts and calls that were captured into a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.format import event_kinds, graphs, layout
from ttanalyze.format.contents import region_row
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.selection import place_named
from ttanalyze.util.arguments import checked

__all__ = ["Writers", "writers"]

# By how sure it is that a call wrote, the surest first.
WRITES, POINTER, POSSIBLE, INDIRECT = range(4)
HOW = ("writes there", "is given a pointer to it", "may write there", "is given no pointer to it")
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
HOST_DST = layout.constant("TT_EVENTF_HOST_DST")
SHARED_KINDS = ("managed", "ipc")  # that more than one context may write to


@dataclass(frozen=True)
class Writers:
    """Possible writers of a region.

    Attributes:
        events: The tt_event records of the calls, by sequence number.
        how: For each call how sure the write is: WRITES, POINTER, POSSIBLE or INDIRECT (uint8).

    Example:
        >>> run = tt.open("work")
        >>> found = tt.writers.writers(run.process(0), 0, 0, 12)
        >>> found.events["seq"][found.surest()].tolist(), found.how.tolist()
        ([4, 10, 7], [0, 1, 1])
    """

    events: Array
    how: Array

    def surest(self) -> Array:
        """Returns the indices of the calls, the surest first, and of equally sure calls the latest
        first.
        """
        return np.lexsort((-np.arange(len(self.how)), self.how))


@checked
def writers(process: Process, region: int | str, after_seq: int, until_seq: int) -> Writers:
    """Finds the calls that may have written to a region or a tensor.

    Considers the calls with a sequence number in (after_seq, until_seq] within the lifetime of the
    region.

    Args:
        process: The process.
        region: The id or the label of the region, or the name of a tensor, at its last place.
        after_seq: The sequence number before the first call.
        until_seq: The sequence number of the last call.

    Returns:
        The calls.

    Raises:
        Error: The process has no such region, or several with this label, or the tensor lies in
            several regions.
        FormatError: A file does not follow the format.

    Example:
        >>> found = tt.writers.writers(tt.open("run1").processes[0], "weights", 0, 4)
        >>> found.events["seq"].tolist()
        [2, 4]
    """
    regions = process.regions
    row, birth, base, size = _place(process, region)
    after_seq = max(after_seq, int(birth["seq"]) - 1)  # a graph launch may write what it allocates
    if regions.death_seq[row]:
        until_seq = min(until_seq, int(regions.death_seq[row]) - 1)
    events = process.events_between(after_seq, until_seq)
    events = events[(events["result"] == 0) & (events["flags"] & CAPTURING == 0)]
    how = np.full(len(events), len(HOW), "u1")
    stores = np.isin(events["kind"], event_kinds.STORE)
    stores &= events["flags"] & HOST_DST == 0
    stores[stores] = _within(events["dst"][stores], events["bytes"][stores], base, size)
    stores[stores] = [not waits(process, call) for call in events["call"][stores].tolist()]
    how[stores] = WRITES

    launches = np.flatnonzero(events["kind"] == KIND["launch"])
    how[launches] = _launches(process, events[launches], birth, base, size)
    of_graphs = np.flatnonzero(events["kind"] == KIND["graph-launch"])
    nodes = _Nodes(process, birth, base, size)
    how[of_graphs] = [nodes.how(launch) for launch in events[of_graphs]]
    if layout.REGION_KINDS[int(birth["kind"])] not in SHARED_KINDS:
        elsewhere = events["context"] != birth["context"]
        how[elsewhere & (how >= POSSIBLE)] = len(HOW)
    found = how < len(HOW)
    return Writers(events[found], how[found])


def node_writers(process: Process, region: int | str, graph: int, seq: int) -> Array:
    """Returns for each node of a graph how sure it is that the node writes to a region or a tensor.

    Args:
        process: The process.
        region: The region or tensor, as for `writers`.
        graph: The id of the executable graph.
        seq: The sequence number of its launch.

    Returns:
        WRITES, POINTER, POSSIBLE or INDIRECT, by number of the node, and len(HOW) for those that
        write elsewhere or nothing (uint8).
    """
    return _Nodes(process, *_place(process, region)[1:]).each(graph, seq)


def _place(process: Process, region: int | str) -> tuple[int, Any, int, int]:
    """Returns the row and the birth of a region, and the address and the size of the requested
    memory in it.
    """
    number, offset, size = place_named(process, region)
    row = region_row(process, number)
    birth = process.regions.birth[row]
    return row, birth, int(birth["base"]) + offset, int(birth["size"]) if size is None else size


def _within(dst: Array, length: Array, base: int, size: int) -> Array:
    """Returns which ranges [dst, dst + length) overlap [base, base + size). Of a pitched copy only
    the number of bytes is known.
    """
    low, high = np.uint64(base), np.uint64(base + size)
    length = np.maximum(length, np.uint64(1))
    begins = (dst >= low) & (dst < high)
    reaches = (dst < low) & (low - dst < length)
    return np.asarray(begins | reaches)


def waits(process: Process, call: int) -> bool:
    """Returns whether a driver call only waits for a value in memory.

    Args:
        process: The process.
        call: The index of the call in records.
    """
    return "Wait" in (process.call(call) or "")


def _launches(process: Process, launches: Array, birth: Any, base: int, size: int) -> Array:
    """Returns how sure the write of each launch to [base, base + size) is."""
    out = np.full(len(launches), POSSIBLE, "u1")
    known = launches["params"] != 0
    out[known] = INDIRECT
    out[np.isin(launches["id"], _of_module(process, birth))] = POSSIBLE
    at = np.flatnonzero(known)
    given = _pointers(process, launches[at], base, size)
    out[at[given]] = POINTER
    return out


def _of_module(process: Process, birth: Any) -> Array:
    """Returns the kernels of the module in which a region is a variable."""
    functions = process.functions
    if birth["module"] == layout.NO_ID:
        return np.empty(0, "u4")
    return np.asarray(functions["id"][functions["module"] == birth["module"]])


class _Nodes:
    """How sure the write of graph launches is, from the parameters and destinations of their
    nodes.
    """

    def __init__(self, process: Process, birth: Any, base: int, size: int) -> None:
        self._graphs = process.graphs
        self._base, self._size = base, size
        self._of_module = _of_module(process, birth)
        self._known: dict[tuple[int, int], int] = {}

    def how(self, launch: Any) -> int:
        graph, seq = int(launch["id"]), int(launch["seq"])
        if graph >= len(self._graphs) or not self._graphs.known(graph, seq):
            return POSSIBLE
        key = graph, self._graphs.state(graph, seq)
        if key not in self._known:
            self._known[key] = int(self.each(graph, seq).min(initial=len(HOW)))
        return self._known[key]

    def each(self, graph: int, seq: int) -> Array:
        """Returns how sure the write of each node is; len(HOW) if it does not write there."""
        nodes = self._graphs.nodes(graph, seq)
        how = np.full(len(nodes), len(HOW), "u1")
        maybe = nodes["flags"] & (graphs.FLAGS["device"] | graphs.UNREAD) != 0
        stores = np.isin(nodes["kind"], (graphs.KIND["copy"], graphs.KIND["set"]))
        stores &= nodes["flags"] & graphs.HOST_DST == 0
        stores[stores] = _within(nodes["dst"], nodes["reach"], self._base, self._size)[stores]
        how[stores] = WRITES
        kernels = nodes["kind"] == graphs.KERNEL
        of_module = kernels & (
            (nodes["data_size"] == 0) | np.isin(nodes["function"], self._of_module)
        )
        how[kernels] = INDIRECT
        how[of_module | maybe] = POSSIBLE
        given = kernels | (nodes["kind"] == graphs.KIND["mem-op"])
        for i in np.flatnonzero(given & (nodes["data_size"] != 0)).tolist():
            data = self._graphs.data(nodes[i])
            words = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
            if (words - np.uint64(self._base) < np.uint64(self._size)).any():
                how[i] = POINTER if kernels[i] else WRITES
        unsure = (nodes["flags"] & graphs.CONDITIONAL != 0) & (how < POSSIBLE)
        how[unsure] = POSSIBLE
        how[nodes["flags"] & graphs.DISABLED != 0] = len(HOW)
        return how


def _pointers(process: Process, launches: Array, base: int, size: int) -> Array:
    """Returns which launches have a parameter, or an aligned word of one, in [base, base +
    size).
    """
    params = [given[: len(given) // 8 * 8] for given in map(process.params, launches)]
    words = np.frombuffer(b"".join(params), "<u8")
    owner = np.repeat(np.arange(len(params)), [len(given) // 8 for given in params])
    out = np.zeros(len(launches), bool)
    out[owner[words - np.uint64(base) < np.uint64(size)]] = True
    return out
