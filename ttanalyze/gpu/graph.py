"""Graph and GraphExec: CUDA graphs and executable graphs."""

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
    """A CUDA graph: launches, copies and sets, and their order.

    `StreamCapture` makes one from a stream. `Graph.new` makes an empty one for `add_kernel`,
    `add_memcpy` and `add_memset`.

    Args:
        device: The device.
        handle: The CUgraph.
        keeps: Objects that live as long as this graph and its executable graphs.
        owned: Whether to destroy the CUgraph with this object.
    """

    _rebuild: ClassVar[Callable[[Run, tuple[int, int], int, Device | None, str], Rebuilt]]

    def __init__(
        self, device: Device, handle: Any, keeps: Sequence[Any] = (), owned: bool = True
    ) -> None:
        self.device = device
        self._handle = handle
        self._keeps: list[Any] = list(keeps)
        self._destroy = device.context.give_back(self, "cuGraphDestroy", handle)
        if not owned:
            self._destroy.detach()
        self._borrowed = not owned

    @classmethod
    def new(cls, device: Device | None = None) -> Graph:
        """Makes an empty graph.

        Args:
            device: The device. Default: the first one.
        """
        of = device or Device.default()
        with of.use() as driver:
            return cls(of, driver.get("cuGraphCreate", "CUgraph", 0))

    @classmethod
    def wrap(cls, handle: int, device: Device | None = None) -> Graph:
        """Wraps a graph that belongs to another library.

        Args:
            handle: The CUgraph, such as that of PyTorch's
                `torch.cuda.CUDAGraph(keep_graph=True).raw_cuda_graph()`.
            device: The device. Default: that of the current context.
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
        """Makes a graph of the work that was recorded between two epochs.

        The run needs `--params`. Data that the program copied from the host is taken from the next
        epoch.

        Args:
            run: The run.
            epochs: The first and the last epoch.
            process: The number of the process.
            device: The device. Default: the first one.
            order: "streams" keeps the order that streams, events and waits of the host made;
                "serial" repeats the calls one after the other.

        Returns:
            The graph with its memory.

        Raises:
            Error: Some of the work cannot be repeated. The message says why.
            FormatError: A file does not follow the format.
        """
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
        """The CUgraph. Raises EndedError if the graph was closed."""
        if not self._alive:
            raise EndedError("the graph was closed")
        return self._handle

    def close(self) -> None:
        """Destroys the graph. Garbage collection does the same."""
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
        """The number of nodes, with those of child graphs."""
        return len(reading.read(self.device, self.handle, work=False))

    @property
    def nodes(self) -> pd.DataFrame:
        """One row per node, with the columns of the table `graph_nodes`: node, kind, kernel, grid_x
        and so on.
        """
        return reading.table(reading.read(self.device, self.handle))

    @property
    def edges(self) -> pd.DataFrame:
        """One row per edge: from, to, from_port, to_port, type. Node `to` runs after node
        `from`.
        """
        handle = self.handle
        return reading.edges(self.device, handle, reading.read(self.device, handle, work=False))

    def to_dot(self) -> str:
        """Returns a picture of the graph in Graphviz's DOT language."""
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
        """Adds a kernel launch. `StreamCapture.record_kernel` describes arguments of kernels.

        Args:
            function_name: The name of a kernel in a module that is loaded in this context, or a
                Function.
            grid: The blocks of the grid, one to three ints.
            block: The threads of a block, one to three ints.
            shared_mem: The dynamic shared memory in bytes.
            args: One argument per parameter of the kernel.
            cluster: The blocks of a cluster, one to three ints. Default: no clusters.
            cooperative: Whether the launch is cooperative.
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: The kernel or a node is unknown, or an argument does not fit.
        """
        function = find(self.device.context.loaded, function_name)
        work = Kernel.of(function, grid, block, shared_mem, args, cluster, cooperative)
        return self._add(work, after)

    def add_memcpy(
        self, direction: str, size: int, dst: Any = None, src: Any = None, after: Iterable[int] = ()
    ) -> int:
        """Adds a copy. `StreamCapture.record_memcpy` describes addresses.

        Args:
            direction: "h2d", "d2h" or "d2d".
            size: The number of bytes.
            dst: The destination.
            src: The source.
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: A node is unknown, or an argument does not fit.
        """
        return self._add(Copy.of(direction, size, dst, src), after)

    def add_memset(
        self, size: int, value: int, dst: Any = None, item: int = 1, after: Iterable[int] = ()
    ) -> int:
        """Adds a node that sets memory to a value.

        Args:
            size: The number of bytes.
            value: The value of each item.
            dst: The destination.
            item: The size of an item: 1, 2 or 4 bytes.
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: A node is unknown, or an argument does not fit.
        """
        return self._add(Set.of(size, value, dst, item), after)

    def _add(self, work: Work, after: Iterable[int]) -> int:
        known = reading.read(self.device, self.handle, work=False)
        behind = [_find(known, number).handle for number in after]
        made = self.append(work, behind)
        key = reading.address(made)
        found = reading.read(self.device, self.handle, work=False)
        return next(n.number for n in found if reading.address(n.handle) == key)

    def append(self, work: Work | None, behind: Sequence[Any]) -> Any:
        """Adds work by driver handles.

        Args:
            work: The work, None for an empty node.
            behind: The CUgraphNode of each node that it runs after.

        Returns:
            The CUgraphNode of the new node.
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
        """Makes an executable graph of the current nodes.

        Raises:
            DriverError: The driver refuses the graph.
        """
        return GraphExec(self)

    @property
    def keeps(self) -> list[Any]:
        """Objects that live as long as this graph and its executable graphs."""
        return list(self._keeps)


def _find(nodes: Sequence[Node], number: int) -> Node:
    at = whole(number, "node", -MOST)
    if not 0 <= at < len(nodes):
        there = f"nodes 0 to {len(nodes) - 1}" if nodes else "no nodes"
        raise Error(f"no node {at}: the graph has {there}")
    return nodes[at]


class GraphExec:
    """An executable graph. Its nodes have the numbers of `Graph.nodes`.

    Args:
        graph: The graph.

    Raises:
        DriverError: The driver refuses the graph.
    """

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
        """The CUgraphExec. Raises EndedError if the graph was closed."""
        if not self._destroy.alive:
            raise EndedError("the executable graph was closed")
        return self._handle

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
        """Returns a node with a handle of the graph that this was made of, which the driver
        asks for.
        """
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


def _on_host(work: Work | None) -> bool:
    return isinstance(work, Copy) and (work.host_dst or work.host_src)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
