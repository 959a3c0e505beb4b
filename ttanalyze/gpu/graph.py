"""Graph and GraphExec: CUDA graphs and executable graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu import nodes as reading
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import EndedError
from ttanalyze.gpu.graph_exec import GraphExec
from ttanalyze.gpu.module import Function
from ttanalyze.gpu.nodes import GraphNode
from ttanalyze.gpu.unbound import Unbound, plan, plan_kernel
from ttanalyze.gpu.work import Size, Work
from ttanalyze.output import text

if TYPE_CHECKING:
    import pandas as pd

    from ttanalyze.format import Run
    from ttanalyze.gpu.rebuild.graph import Rebuilt


class Graph:
    """A CUDA graph: launches, copies and sets, and their order.

    `StreamCapture` makes one from a stream. `Graph.new` makes an empty one for `add_kernel_node`,
    `add_memcpy_node`, `add_memset_node` and `add_empty_node`.

    Args:
        device: The device.
        handle: The CUgraph.
        keeps: Objects that live as long as this graph and its executable graphs.
        owned: Whether to destroy the CUgraph with this object.
        unbound: The work of empty nodes, by their addresses, that `bind` completes.
    """

    _rebuild: ClassVar[
        Callable[[Run, tuple[int, int], int, Device | None, str, int | None], Rebuilt]
    ]

    def __init__(
        self,
        device: Device,
        handle: Any,
        keeps: Sequence[Any] = (),
        owned: bool = True,
        unbound: Mapping[int, Unbound] | None = None,
    ) -> None:
        self.device = device
        self._handle = handle
        self._keeps: list[Any] = list(keeps)
        self._unbound = dict(unbound or {})
        self._places: dict[int, int] | None = None  # of nodes, once one was replaced
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
        rank: int | None = None,
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
            rank: The rank of the process, instead of its number.

        Returns:
            The graph with its memory.

        Raises:
            Error: Some of the work cannot be repeated. The message says why.
            FormatError: A file does not follow the format.

        Example:
            >>> device = tt.graph.Device(0, tt.graph.simulator())
            >>> rebuilt = tt.graph.Graph.from_run(tt.open("work"), (0, 2), device=device)
            >>> rebuilt.restore()
            >>> rebuilt.launch()
            >>> rebuilt.check().same
            True
        """
        return cls._rebuild(run, epochs, process, device, order, rank)

    def __repr__(self) -> str:
        if not self.alive:
            return "<Graph, closed>"
        return f"<Graph of {text.count(self.node_count(), 'node')}>"

    @property
    def alive(self) -> bool:
        return self._borrowed or self._destroy.alive

    @property
    def handle(self) -> Any:
        """The CUgraph. Raises EndedError if the graph was closed."""
        if not self.alive:
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

    def read(self, work: bool = True) -> list[GraphNode]:
        """Returns the nodes, with those of child graphs.

        Args:
            work: Whether to read what they do.

        Raises:
            DriverError: The driver refuses.
        """
        out = reading.read(self.device, self.handle, work, self._places)
        for node in out:
            unbound = self._unbound.get(reading.address(node.handle))
            if unbound is not None:
                node.kind, node.work, node.row = unbound.kind, unbound, unbound.row
        return out

    def node_count(self) -> int:
        """Returns the number of nodes, with those of child graphs."""
        return len(self.read(work=False))

    def dependency_count(self) -> int:
        """Returns the number of edges, with those of child graphs."""
        return len(self.edges)

    def get_node(self, index: int) -> GraphNode | None:
        """Returns a node, None if there is none of this number.

        Args:
            index: The number of the node.
        """
        nodes = self.read()
        return nodes[index] if 0 <= index < len(nodes) else None

    def topological_sort(self) -> list[int]:
        """Returns the numbers of the nodes, each behind those that it runs after.

        Nodes of a child graph come right behind the node that contains it.

        Raises:
            Error: Nodes run after each other in a circle.
        """
        return reading.in_order(self.read(work=False), self.edges)

    @property
    def nodes(self) -> pd.DataFrame:
        """One row per node, with the columns of the table `graph_nodes`: node, kind, kernel, grid_x
        and so on. `known` is False for a node that `bind` has to complete.
        """
        return reading.table(self.read())

    @property
    def edges(self) -> pd.DataFrame:
        """One row per edge: from, to, from_port, to_port, type. Node `to` runs after node
        `from`.
        """
        return reading.edges(self.device, self.handle, self.read(work=False))

    def to_dot(self) -> str:
        """Returns a picture of the graph in Graphviz's DOT language."""
        from ttanalyze.core.graph_dot import drawing  # and with it pandas

        return drawing([("graph", "graph", self.nodes, self.edges)])

    # ---- building ----

    def add_kernel_node(
        self,
        function_name: str | Function,
        grid: Size,
        block: Size,
        shared_mem: int = 0,
        args: Sequence[Any] | None = None,
        *,
        cluster: Size | None = None,
        cooperative: bool = False,
        after: Iterable[int] = (),
    ) -> int:
        """Adds a kernel launch. `StreamCapture.record_kernel` describes arguments of kernels.

        Args:
            function_name: The name of a kernel, or a Function.
            grid: The blocks of the grid, one to three ints.
            block: The threads of a block, one to three ints.
            shared_mem: The dynamic shared memory in bytes.
            args: One argument per parameter of the kernel. Default: `bind` gives them later.
            cluster: The blocks of a cluster, one to three ints. Default: no clusters.
            cooperative: Whether the launch is cooperative.
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: A node is unknown, or an argument does not fit. With `args`: no such kernel.
        """
        size = {"grid": grid, "block": block, "shared_mem": shared_mem}
        how = {"cluster": cluster, "cooperative": cooperative}
        return self._add(plan_kernel(self.device, function_name, args, **size, **how), after)

    def add_memcpy_node(
        self, direction: str, size: int, dst: Any = None, src: Any = None, after: Iterable[int] = ()
    ) -> int:
        """Adds a copy. `StreamCapture.record_memcpy` describes addresses.

        Args:
            direction: "h2d", "d2h" or "d2d", or a MemcpyDirection.
            size: The number of bytes.
            dst: The destination.
            src: The source. Without both, `bind` gives them later.
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: A node is unknown, or an argument does not fit.
        """
        return self._add(plan("copy", direction=direction, size=size, dst=dst, src=src), after)

    def add_memset_node(
        self, size: int, value: int, dst: Any = None, item: int = 1, after: Iterable[int] = ()
    ) -> int:
        """Adds a node that sets memory to a value.

        Args:
            size: The number of bytes.
            value: The value of each item.
            dst: The destination. Default: `bind` gives it later.
            item: The size of an item: 1, 2 or 4 bytes.
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: A node is unknown, or an argument does not fit.
        """
        return self._add(plan("set", size=size, value=value, dst=dst, item=item), after)

    def add_empty_node(self, after: Iterable[int] = ()) -> int:
        """Adds a node that does nothing, where branches meet.

        Args:
            after: The numbers of the nodes that it runs after.

        Returns:
            The number of the new node.

        Raises:
            Error: A node is unknown.
        """
        return self._add(None, after)

    def _add(self, work: Work | Unbound | None, after: Iterable[int]) -> int:
        known = self.read(work=False)
        behind = [reading.find_node(known, number).handle for number in after]
        made = self.append(None if isinstance(work, Unbound) else work, behind)
        key = reading.address(made)
        if isinstance(work, Unbound):
            self._unbound[key] = work
        return next(n.number for n in self.read(work=False) if reading.address(n.handle) == key)

    def add_dependency(self, before: int, after: int) -> None:
        """Makes a node run after another one.

        Args:
            before: The number of the node that runs first.
            after: The number of the node that waits for it.

        Raises:
            Error: A node is unknown, or both are one node.
            DriverError: The driver refuses the edge, such as between two graphs.
        """
        known = self.read(work=False)
        pair = [reading.find_node(known, number).handle for number in (before, after)]
        if pair[0] == pair[1]:
            raise Error(f"node {before} can't run after itself")
        self._connect(pair[:1], pair[1:])

    def _connect(self, begins: Sequence[Any], ends: Sequence[Any]) -> None:
        if begins:
            edges = [ffi.new("CUgraphNode[]", list(nodes)) for nodes in (begins, ends)]
            with self.device.use() as driver:
                doing = "adding a dependency"
                count = len(begins)
                driver.call("cuGraphAddDependencies", self.handle, *edges, count, doing=doing)

    def bind(self, node: int, **given: Any) -> None:
        """Gives a node what it lacks: a kernel its function and arguments, a copy or a set its
        addresses. The names are those of `GraphExec.update`.

        Args:
            node: The number of the node, which stays.
            given: The values, such as args=(memory, 1024) or dst=memory, src=array.

        Raises:
            Error: The node lacks nothing, or a value does not fit.

        Example:
            >>> device = tt.graph.Device(0, tt.graph.simulator())
            >>> graph, memory = tt.graph.Graph.new(device), tt.graph.DeviceBuffer(4, device)
            >>> graph.bind(graph.add_memset_node(4, 7), dst=memory)
            >>> graph.instantiate().launch()
            >>> memory.read("u1")
            array([7, 7, 7, 7], dtype=uint8)
        """
        found = reading.find_node(self.read(), node)
        if not isinstance(found.work, Unbound):
            raise Error(f"node {node} lacks nothing: GraphExec.update changes it")
        work = reading.changed(self.device, found, found.work, given)
        if isinstance(work, Unbound):
            self._unbound[reading.address(found.handle)] = work
        else:
            self._replace(found, work)

    def _replace(self, node: GraphNode, work: Work) -> None:
        """Puts work in the place of an empty node of this graph."""
        own = [reading.address(n.handle) for n in self.read(work=False) if n.parent is None]
        before, behind = (
            reading.listed(self.device, call, node.handle)
            for call in ("cuGraphNodeGetDependencies", "cuGraphNodeGetDependentNodes")
        )
        made = self.append(work, before)
        self._connect([made] * len(behind), behind)
        with self.device.use() as driver:
            driver.call("cuGraphDestroyNode", node.handle)
        old = reading.address(node.handle)
        del self._unbound[old]
        self._places = {
            reading.address(made) if at == old else at: place for place, at in enumerate(own)
        }

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

        A kernel that has only a name is looked up again. If it has no parameters, it is bound.

        Raises:
            Error: A node lacks something that `bind` has to give.
            DriverError: The driver refuses the graph.
        """
        lacking = []
        for node in self.read():
            if not isinstance(node.work, Unbound):
                continue
            name = node.work.given.get("function")
            with contextlib.suppress(Error):
                if isinstance(name, str):
                    self.bind(node.number, function=name)
            if reading.address(node.handle) in self._unbound:
                lacking.append(node)
        if lacking:
            raise Error(_missing(self, lacking))
        return GraphExec(self)

    @property
    def keeps(self) -> list[Any]:
        """Objects that live as long as this graph and its executable graphs."""
        return list(self._keeps)


def _missing(graph: Graph, nodes: Sequence[GraphNode]) -> str:
    """Says what the first of some nodes lacks."""
    node = reading.find_node(graph.read(), nodes[0].number)
    assert isinstance(node.work, Unbound)
    name = node.work.given.get("function", "")
    given = ", ".join(f"{name}=…" for name in node.work.missing)
    called = name.name if isinstance(name, Function) else name
    more = f"; {len(nodes) - 1} more nodes lack something" if len(nodes) > 1 else ""
    what = f"{node.kind} {called}".strip()
    return f"node {node.number} ({what}) can't run yet: bind({node.number}, {given}) first{more}"
