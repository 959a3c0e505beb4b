"""Parameters of launches, and of kernels inside graphs, that are not the same in two runs."""

from __future__ import annotations

import numpy as np

from ttanalyze.code.demangle import readable
from ttanalyze.format import graphs
from ttanalyze.format.process import Process

EARLIER = 64  # launches of a kernel whose parameters are compared


def text_of(offset: int, a: bytes, b: bytes) -> str:
    """Returns a text such as "bytes 12 to 15 are 64 00 00 00 in one run, 65 00 00 00 in another".

    Args:
        offset: The offset of the first byte that differs.
        a: The bytes from there on in one run.
        b: The same in the other run.
    """
    end = 1 + max((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), default=0)
    end = min(-(-end // 4) * 4, len(a))
    one, other = a[:end].hex(" "), b[:end].hex(" ")
    return f"bytes {offset} to {offset + end - 1} are {one} in one run, {other} in another"


def harmless(a: Process, b: Process, seq_a: int, seq_b: int) -> bool:
    """Returns whether the parameter bytes that differ did so in earlier launches of the kernel.

    Memory was the same after these launches. So the bytes are padding, or an unused address.
    """
    earlier = _launches_of(a, seq_a), _launches_of(b, seq_b)
    pairs = list(zip(*earlier, strict=False))
    if len(earlier[0]) != len(earlier[1]) or len(pairs) < 2:
        return False
    *before, now = [_differing(_params(a, one), _params(b, other)) for one, other in pairs]
    return now <= set().union(*before)


def _launches_of(process: Process, seq: int) -> list[int]:
    """Launches of one kernel up to a call, the last ones of them."""
    columns = process.event_columns("seq", "kind", "id")
    row = int(np.searchsorted(columns["seq"], seq))
    same = (columns["kind"] == columns["kind"][row]) & (columns["id"] == columns["id"][row])
    seqs: list[int] = columns["seq"][: row + 1][same[: row + 1]].tolist()
    return seqs[-EARLIER:]


def _params(process: Process, seq: int) -> bytes:
    return process.params(process.events_between(seq - 1, seq)[0])


def _differing(a: bytes, b: bytes) -> set[int]:
    """The offsets of bytes that differ."""
    return {at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y}


def of_graph(a: Process, b: Process, seq_a: int, seq_b: int) -> str | None:
    """Returns what the nodes of two launches of graphs do not have in common, None if nothing."""
    sides = []
    for process, seq in ((a, seq_a), (b, seq_b)):
        graph = int(process.events_between(seq - 1, seq)[0]["id"])
        if graph >= len(process.graphs) or not process.graphs.known(graph, seq):
            return None
        sides.append(process.graphs.nodes(graph, seq))
    if len(sides[0]) != len(sides[1]):
        return f"is of a graph with {len(sides[0])} nodes in one run, {len(sides[1])} in another"
    for one, other in zip(*sides, strict=True):
        what = _node_text(a, b, one, other)
        if what is not None:
            return what
    return None


def _node_text(a: Process, b: Process, one: np.void, other: np.void) -> str | None:
    """What two nodes do not have in common."""
    number = int(one["node"])
    if one["kind"] == graphs.KERNEL == other["kind"]:
        name = readable(a.kernel(int(one["function"])) or "a kernel")
        x, y = a.graphs.data(one), b.graphs.data(other)
        at = min(_differing(x, y), default=None)
        if at is not None:
            return f"has other parameters in node {number} ({name}): {text_of(at, x[at:], y[at:])}"
    if one["kind"] == graphs.KIND["set"] == other["kind"] and one["src"] != other["src"]:
        return f"writes another value in node {number}"
    return None
