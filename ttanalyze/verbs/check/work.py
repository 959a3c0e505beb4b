"""A call, or one node of a graph launch, and the memory that it found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.core.graph_epochs import nodes_between
from ttanalyze.core.order import GRAPH_LAUNCH, plain
from ttanalyze.core.reach import READS, Access, Reach, uses_of
from ttanalyze.core.writers import POSSIBLE, node_writers
from ttanalyze.errors import Error
from ttanalyze.format import graphs
from ttanalyze.format.epoch_coverage import INSIDE
from ttanalyze.format.event_kinds import KIND, LAUNCH
from ttanalyze.format.process import Process
from ttanalyze.verbs.check.findings import Call
from ttanalyze.verbs.check.naming import call_of, call_of_node, memory_of, memory_text


@dataclass(frozen=True)
class Work:
    """A call, or one node of a graph launch.

    Attributes:
        process: The process.
        seq: The sequence number of the call.
        node: The number of the node, None for the whole call.
        before: The last epoch before it, None if there is none.
        epoch: The first epoch after it.
    """

    process: Process
    seq: int
    node: int | None
    before: int | None
    epoch: int

    @property
    def graph(self) -> int:
        """The id of the graph that the call launches."""
        return int(self.process.events_between(self.seq - 1, self.seq)[0]["id"])

    @property
    def launches(self) -> bool:
        """Whether this is a launch, or a node that is a kernel."""
        if self.node is None:
            return KIND[self.call().kind] in LAUNCH
        nodes = self.process.graphs.nodes(self.graph, self.seq)
        return bool(nodes["kind"][self.node] == graphs.KERNEL)

    def call(self) -> Call:
        """Returns the call, of a node the one that was captured."""
        if self.node is None:
            return call_of(self.process, self.seq)
        return call_of_node(self.process, self.graph, self.seq, self.node)

    def accesses(self, region: int | None = None) -> list[Access]:
        """Returns what it reaches, in all memory or in one region, as far as that is known."""
        found = _accesses(self.process, self.seq)
        if self.node is not None:
            found = [one for one in found if one.node == self.node]
        row = None if region is None else _row(self.process, region)
        return [one for one in found if row in (None, one.row)]

    def regions(self) -> list[int]:
        """Returns the ids of the regions that it reaches."""
        rows = {access.row for access in self.accesses()}
        return [int(self.process.regions.id[row]) for row in sorted(rows)]

    def found_in(self, region: int) -> int | None:
        """Returns an epoch that has what it found in a region, None if there is none.

        Raises:
            Error: Other nodes of the graph may have written there since the last epoch.
        """
        if self.node is None:
            return self.before
        process, epoch = self.process, self.epoch
        only_read = all(one.mode == READS for one in self.accesses(region))
        if only_read and (process.digests(epoch, epoch + 1)["region"] == region).any():
            return epoch
        seen = process.coverage.before(epoch, region)
        others = {*_writing(process, self.seq, region, seen, epoch)} - {self.node}
        if others:
            where = memory_text(memory_of(process, region))
            raise Error(f"several nodes of a graph write to {where} between two epochs")
        return seen


def work_on(process: Process, seq: int, region: int, before: int | None, epoch: int) -> Work | None:
    """Returns the part of a call that may have written to a region between two epochs.

    Args:
        process: The process.
        seq: The sequence number of the call.
        region: The id of the region.
        before: The earlier epoch, None if there is none.
        epoch: The later epoch.

    Returns:
        The whole call, or a node of a graph launch with epochs inside; None if several nodes may
        have written.
    """
    event = process.events_between(seq - 1, seq)[0]
    epochs = process.epochs
    inside = (epochs["trigger"] == INSIDE) & (epochs["seq"] == seq)
    inside &= epochs["context"] == event["context"]
    if event["kind"] != GRAPH_LAUNCH or not inside.any():
        return Work(process, seq, None, before, epoch)
    nodes = _writing(process, seq, region, before, epoch)
    return Work(process, seq, nodes[0], before, epoch) if len(nodes) == 1 else None


def _writing(process: Process, seq: int, region: int, before: int | None, epoch: int) -> list[int]:
    """The nodes of a graph launch that may have written to a region between two epochs."""
    graph = int(process.events_between(seq - 1, seq)[0]["id"])
    how = node_writers(process, region, graph, seq)
    modes: dict[int, set[int]] = {}
    row = _row(process, region)
    for access in _accesses(process, seq):
        if access.row == row:
            modes.setdefault(access.node, set()).add(access.mode)
    return [
        node
        for node in nodes_between(process, seq, before, epoch)
        if how[node] <= POSSIBLE and modes.get(node) != {READS}
    ]


def _accesses(process: Process, seq: int) -> list[Access]:
    (event,) = plain(process.events_between(seq - 1, seq))
    return Reach(process, uses_of(process)).of(event)


def _row(process: Process, region: int) -> int:
    return int(process.regions.rows(np.array([region]))[0])
