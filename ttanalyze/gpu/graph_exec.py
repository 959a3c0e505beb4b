"""GraphExec: executable graphs."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu import nodes as reading
from ttanalyze.gpu.device import Context, stream_handle
from ttanalyze.gpu.driver import UPDATE_FAILURE, EndedError
from ttanalyze.gpu.launches import Launches
from ttanalyze.gpu.nodes import GraphNode
from ttanalyze.gpu.unbound import Unbound
from ttanalyze.gpu.work import Copy, Work
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.gpu.graph import Graph

# CU_GRAPH_EXEC_UPDATE_ERROR_…
UPDATES = {
    2: "the graphs differ in shape (nodes or edges)",
    3: "a node is of another kind",
    4: "a kernel is another one, in another context or with other attributes",
    5: "parameters of a node can't be changed that way",
    6: "something in a node can't be updated",
    7: "a kernel's function can't be changed that way",
    8: "attributes of a node can't be updated",
}


class GraphExec:
    """An executable graph. Its nodes have the numbers of `Graph.nodes`.

    Args:
        graph: The graph.

    Raises:
        DriverError: The driver refuses the graph.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> graph, memory = tt.graph.Graph.new(device), tt.graph.DeviceBuffer(4, device)
        >>> node = graph.add_memset_node(4, 7, memory)
        >>> executable = graph.instantiate()
        >>> executable.update(node, value=9)
        >>> executable.launch()
        >>> memory.read("u1")
        array([9, 9, 9, 9], dtype=uint8)
    """

    def __init__(self, graph: Graph) -> None:
        self.device = graph.device
        self._nodes = graph.read()
        self._template: Graph | None = graph  # by the handles of whose nodes ours are known
        self._keeps = graph.keeps
        self._works = _works(self._nodes)  # with what each needs to live
        self._on_host = any(map(_on_host, self._works.values()))
        self._launches = Launches(graph.device.context)
        with graph.device.use() as driver:
            call = "cuGraphInstantiateWithFlags"
            self._handle = driver.get(call, "CUgraphExec", graph.handle, 0, doing="instantiating")
        context, ours = graph.device.context, (self._handle, self._keeps, self._works)
        self._destroy = weakref.finalize(self, _end, os.getpid(), context, self._launches, *ours)

    def __repr__(self) -> str:
        if not self._destroy.alive:
            return "<GraphExec, closed>"
        return f"<GraphExec of {text.count(len(self._nodes), 'node')}>"

    @property
    def handle(self) -> Any:
        """The CUgraphExec. Raises EndedError if the graph was closed."""
        if not self._destroy.alive:
            raise EndedError("the executable graph was closed")
        return self._handle

    def graph(self) -> Graph:
        """Returns the graph that this was made of. Raises EndedError if either was closed."""
        assert self.handle and self._template is not None
        if not self._template.alive:
            raise EndedError("the graph that this was made of was closed: its nodes can't change")
        return self._template

    def node_count(self) -> int:
        """Returns the number of nodes, with those of child graphs."""
        return len(self._nodes)

    def execution_order(self) -> list[int]:
        """Returns the numbers of the nodes, each behind those that it runs after.

        Raises:
            EndedError: The graph that this was made of was closed.
        """
        return self.graph().topological_sort()

    def launch(self, stream: Any = None) -> None:
        """Launches the graph and returns at once.

        Args:
            stream: A Stream, a CUstream as an int, or a stream of PyTorch, CuPy or Numba. Default:
                a stream of the device.

        Raises:
            DriverError: The driver refuses the launch.
        """
        to = stream_handle(self.device.stream if stream is None else stream)
        with self.device.use() as driver:
            driver.call("cuGraphLaunch", self.handle, ffi.cast("CUstream", to))
        if self._on_host:
            self._launches.note(to)

    def update(self, node: int | Graph, **changes: Any) -> None:
        """Changes one node, or all nodes, for later launches.

        The changes of a kernel are function (a name or a Function), grid, block, shared_mem and
        args. Those of a copy are size, dst and src. Those of a set are size, value, dst and item.
        What is not given stays unchanged.

        Args:
            node: The number of a node, or a Graph of the same shape whose nodes are taken.
            changes: The new values.

        Raises:
            Error: The graph has no such node, a change does not fit, or the node is a copy of
                several rows.
            DriverError: The driver refuses the change, such as another shape.
        """
        if not isinstance(node, (int, float, np.number)):
            if changes:
                raise Error(f"a whole graph takes no {', '.join(changes)}")
            self._update(node)
            return
        found = self._node(node)
        before = self._works[found.number]
        if before is None:
            raise Error(f"node {node} is {_a(found.kind)} that can't be changed here")
        work = reading.changed(self.device, found, before, changes)
        assert not isinstance(work, Unbound)
        work.put(self.device, self.handle, found.handle)
        self._works[found.number] = work
        self._on_host |= _on_host(work)
        if _on_host(before):
            self._launches.keep(before)

    def _node(self, number: int) -> GraphNode:
        """Returns a node with a handle of the graph that this was made of, which the driver
        asks for.
        """
        assert self.graph()
        return reading.find_node(self._nodes, number)

    def _update(self, graph: Graph) -> None:
        nodes = graph.read()
        info = ffi.new("CUgraphExecUpdateResultInfo *")
        with self.device.use() as driver:
            call = "cuGraphExecUpdate_v2"
            result = driver.result(call, self.handle, graph.handle, info)
            if result == UPDATE_FAILURE:
                why = UPDATES.get(int(info.result), f"reason {int(info.result)}")
                raise driver.error(call, result, f"updating the graph: {why}")
            if result:
                raise driver.error(call, result, "updating the graph")
        self._launches.keep((list(self._keeps), dict(self._works)))
        self._keeps[:] = graph.keeps
        self._works.update(_works(nodes))
        self._on_host = any(map(_on_host, self._works.values()))

    def enable(self, node: int, enabled: bool = True) -> None:
        """Turns a kernel, a copy or a set on or off for later launches.

        Args:
            node: The number of the node.
            enabled: Whether it runs.

        Raises:
            DriverError: The driver refuses the change.
        """
        found = self._node(node)
        with self.device.use() as driver:
            call = "cuGraphNodeSetEnabled"
            doing = f"switching node {node}"
            driver.call(call, self.handle, found.handle, int(enabled), doing=doing)

    def close(self) -> None:
        """Destroys the executable graph when it no longer runs. Garbage collection does the
        same.
        """
        self._destroy()
        self._template = None

    def __enter__(self) -> GraphExec:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(
    process: int,
    context: Context,
    launches: Launches,
    handle: Any,
    keeps: list[Any],
    works: dict[int, Work | None],
) -> None:
    with contextlib.suppress(Error):
        if process == os.getpid():
            launches.keep((list(keeps), dict(works)))
            with context.use() as driver:
                driver.result("cuGraphExecDestroy", handle)
    keeps.clear()
    works.clear()


def _works(nodes: Sequence[GraphNode]) -> dict[int, Work | None]:
    return {n.number: None if isinstance(n.work, Unbound) else n.work for n in nodes}


def _on_host(work: Work | None) -> bool:
    return isinstance(work, Copy) and (work.host_dst or work.host_src)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
