"""Graphs, and executable ones."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu import nodes as reading
from ttanalyze.gpu.device import Context, Device, stream_handle
from ttanalyze.gpu.driver import UPDATE_FAILURE, EndedError
from ttanalyze.gpu.launches import Launches
from ttanalyze.gpu.module import Function, find
from ttanalyze.gpu.nodes import Node
from ttanalyze.gpu.validate_args import MOST, whole
from ttanalyze.gpu.work import Copy, Kernel, Set, Size, Work
from ttanalyze.output import text

if TYPE_CHECKING:
    import pandas as pd

    from ttanalyze.format import Run
    from ttanalyze.gpu.rebuild.graph import Rebuilt

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


class Graph:
    """Launches, copies and sets, and which come after which. What StreamCapture.end() gives; an
    empty one is made by Graph.new(), to be filled by add_kernel() and so on.
    """

    _rebuild: ClassVar[Callable[[Run, tuple[int, int], int, Device | None, str], Rebuilt]]

    def __init__(
        self, device: Device, handle: Any, keeps: Sequence[Any] = (), owned: bool = True
    ) -> None:
        """handle: a CUgraph, which is destroyed with this if it is owned. keeps: what has to live
        as long as this, and the executable graphs that are made of it.
        """
        self.device = device
        self._handle = handle
        self._keeps: list[Any] = list(keeps)
        self._destroy = device.context.give_back(self, "cuGraphDestroy", handle)
        if not owned:
            self._destroy.detach()
        self._borrowed = not owned

    @classmethod
    def new(cls, device: Device | None = None) -> Graph:
        """An empty graph."""
        of = device or Device.default()
        with of.use() as driver:
            return cls(of, driver.get("cuGraphCreate", "CUgraph", 0))

    @classmethod
    def wrap(cls, handle: int, device: Device | None = None) -> Graph:
        """A graph that another library made and keeps, by its CUgraph, such as PyTorch's
        `torch.cuda.CUDAGraph(keep_graph=True).raw_cuda_graph()`.
        """
        return cls(device or Device.current(), ffi.cast("CUgraph", handle), owned=False)

    @classmethod
    def from_run(
        cls,
        run: Run,
        epochs: tuple[int, int],
        process: int = 0,
        device: Device | None = None,
        order: str = "streams",
    ) -> Rebuilt:
        """The work that was recorded between two epochs; see gpu/rebuild/graph.py."""
        return cls._rebuild(run, epochs, process, device, order)

    def __repr__(self) -> str:
        if not self._alive:
            return "<Graph, closed>"
        return f"<Graph of {text.count(self.node_count, 'node')}>"

    @property
    def _alive(self) -> bool:
        return self._borrowed or self._destroy.alive

    @property
    def handle(self) -> Any:
        """The CUgraph. Raises EndedError where it was closed."""
        if not self._alive:
            raise EndedError("the graph was closed")
        return self._handle

    def close(self) -> None:
        """Gives it back; else that happens when it is not used any more."""
        self._destroy()
        self._borrowed = False
        self._keeps.clear()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what it is ----

    @property
    def node_count(self) -> int:
        """How many nodes there are, those of graphs inside included."""
        return len(reading.read(self.device, self.handle, work=False))

    @property
    def nodes(self) -> pd.DataFrame:
        """A row per node: `node` (its number), `kind`, `kernel`, `grid_x` …, `dst`, `src`, `bytes`,
        `params`, …: the columns of run.graph_nodes().
        """
        return reading.table(reading.read(self.device, self.handle))

    @property
    def edges(self) -> pd.DataFrame:
        """A row per edge: `from`, `to` (which comes after it), `from_port`, `to_port`, `type`."""
        handle = self.handle
        return reading.edges(self.device, handle, reading.read(self.device, handle, work=False))

    def to_dot(self) -> str:
        """A picture of it in the language of Graphviz."""
        from ttanalyze.core.graph_dot import drawing  # and with it pandas

        return drawing([("graph", "graph", self.nodes, self.edges)])

    # ---- building ----

    def add_kernel(
        self,
        function_name: str | Function,
        grid: Size,
        block: Size,
        shared_mem: int = 0,
        args: Sequence[Any] = (),
        *,
        cluster: Size | None = None,
        cooperative: bool = False,
        after: Iterable[int] = (),
    ) -> int:
        """Adds a launch, as StreamCapture.record_kernel records it, behind the nodes with these
        numbers. Gives its number.
        """
        function = find(self.device.context.loaded, function_name)
        work = Kernel.of(function, grid, block, shared_mem, args, cluster, cooperative)
        return self._add(work, after)

    def add_memcpy(
        self, direction: str, size: int, dst: Any = None, src: Any = None, after: Iterable[int] = ()
    ) -> int:
        """Adds a copy, likewise."""
        return self._add(Copy.of(direction, size, dst, src), after)

    def add_memset(
        self, size: int, value: int, dst: Any = None, item: int = 1, after: Iterable[int] = ()
    ) -> int:
        """Adds a set, likewise."""
        return self._add(Set.of(size, value, dst, item), after)

    def _add(self, work: Work, after: Iterable[int]) -> int:
        known = reading.read(self.device, self.handle, work=False)
        behind = [_find(known, number).handle for number in after]
        made = self.append(work, behind)
        key = reading.address(made)
        found = reading.read(self.device, self.handle, work=False)
        return next(n.number for n in found if reading.address(n.handle) == key)

    def append(self, work: Work | None, behind: Sequence[Any]) -> Any:
        """Adds work behind nodes, by their CUgraphNode; None: a node that does nothing. Gives its
        CUgraphNode.
        """
        after = ffi.new("CUgraphNode[]", list(behind)) if behind else ffi.NULL, len(behind)
        if work is None:
            out = ffi.new("CUgraphNode *")
            with self.device.use() as driver:
                driver.call("cuGraphAddEmptyNode", out, self.handle, *after)
            return out[0]
        made = work.add(self.device, self.handle, after)
        self._keeps.append(work)
        return made

    def instantiate(self) -> GraphExec:
        """Makes it executable, as it is now. Raises DriverError where that can't be."""
        return GraphExec(self)

    @property
    def keeps(self) -> list[Any]:
        """What has to live as long as what is made of this."""
        return list(self._keeps)


def _find(nodes: Sequence[Node], number: int) -> Node:
    at = whole(number, "node", -MOST)
    if not 0 <= at < len(nodes):
        there = f"nodes 0 to {len(nodes) - 1}" if nodes else "no nodes"
        raise Error(f"no node {at}: the graph has {there}")
    return nodes[at]


class GraphExec:
    """An executable graph. Nodes have the numbers that they had in Graph.nodes."""

    def __init__(self, graph: Graph) -> None:
        self.device = graph.device
        self._nodes = reading.read(graph.device, graph.handle)
        self._template: Graph | None = graph  # by the handles of whose nodes ours are known
        self._keeps = graph.keeps
        self._works = {n.number: n.work for n in self._nodes}  # with what each needs to live
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
        """The CUgraphExec. Raises EndedError where it was closed."""
        if not self._destroy.alive:
            raise EndedError("the executable graph was closed")
        return self._handle

    def launch(self, stream: Any = None) -> None:
        """Launches it into a stream, by default one of the device's own, and returns at once.
        Raises DriverError where the driver refuses that.
        """
        to = stream_handle(self.device.stream if stream is None else stream)
        with self.device.use() as driver:
            driver.call("cuGraphLaunch", self.handle, ffi.cast("CUstream", to))
        if self._on_host:
            self._launches.note(to)

    def update(self, node: int | Graph, **changes: Any) -> None:
        """Changes what a node does from the next launch on, or, given a Graph of the same shape,
        what all do.

        Of a kernel: function (a name or a Function), grid, block, shared_mem, args; of a copy:
        size, dst, src; of a set: size, value, dst, item. What is not named stays as it was. Raises
        Error for a node that is not there, changes that do not fit and copies of several rows,
        DriverError for what the driver refuses, such as another shape.
        """
        if isinstance(node, Graph):
            if changes:
                raise Error(f"a whole graph takes no {', '.join(changes)}")
            self._update(node)
            return
        found = self._node(node)
        before = self._works[found.number]
        if before is None:
            raise Error(f"node {node} is {_a(found.kind)} that can't be changed here")
        if isinstance(changes.get("function"), str):
            changes["function"] = find(self.device.context.loaded, changes["function"])
        try:
            work = before.changed(**changes)
        except TypeError:
            takes = {
                Kernel: "function, grid, block, shared_mem, args",
                Copy: "size, dst, src",
                Set: "size, value, dst, item",
            }[type(before)]
            given = ", ".join(changes)
            raise Error(
                f"node {node} is {_a(found.kind)}, which takes {takes}: not {given}"
            ) from None
        work.put(self.device, self.handle, found.handle)
        self._works[found.number] = work
        self._on_host |= _on_host(work)
        if _on_host(before):
            self._launches.keep(before)

    def _node(self, number: int) -> Node:
        """A node that can be named to the driver: by the graph that this was made of."""
        assert self.handle and self._template is not None
        if not self._template._alive:
            raise EndedError("the graph that this was made of was closed: its nodes can't change")
        return _find(self._nodes, number)

    def _update(self, graph: Graph) -> None:
        nodes = reading.read(graph.device, graph.handle)
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
        self._works.update({n.number: n.work for n in nodes})
        self._on_host = any(map(_on_host, self._works.values()))

    def enable(self, node: int, enabled: bool = True) -> None:
        """Switches a kernel, a copy or a set on or off, from the next launch on."""
        found = self._node(node)
        with self.device.use() as driver:
            call = "cuGraphNodeSetEnabled"
            doing = f"switching node {node}"
            driver.call(call, self.handle, found.handle, int(enabled), doing=doing)

    def close(self) -> None:
        """Gives it back when it does not run any more; else that happens when it is not used."""
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


def _on_host(work: Work | None) -> bool:
    return isinstance(work, Copy) and (work.host_dst or work.host_src)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
