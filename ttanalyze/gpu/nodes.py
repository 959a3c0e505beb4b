"""Reads the nodes and edges of a graph from the driver, as tables like those of recorded graphs."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ttanalyze._cuda import ffi
from ttanalyze.code import demangle
from ttanalyze.errors import Error
from ttanalyze.format.graphs import KIND
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.module import Function, find
from ttanalyze.gpu.unbound import Unbound
from ttanalyze.gpu.validate_args import MOST, whole
from ttanalyze.gpu.work import CHANGES, CLUSTER, COOPERATIVE, HOST, Copy, Kernel, Set, Work

if TYPE_CHECKING:
    import pandas as pd

ARRAY = 3  # CU_MEMORYTYPE_ARRAY
NODE_KINDS = (  # CU_GRAPH_NODE_TYPE_…
    *("kernel", "copy", "set", "host", "graph", "empty", "event-wait", "event-record"),
    *("signal", "wait", "alloc", "free", "mem-op", "conditional"),
)
assert all(kind in KIND for kind in NODE_KINDS)


@dataclass
class GraphNode:
    """A node of a graph.

    Attributes:
        number: From 0 in the order of the driver. Nodes of a child graph come right behind the node
            that contains it.
        handle: The CUgraphNode.
        kind: "kernel", "copy", "set", "empty" and so on, as in `Graph.nodes`.
        parent: The number of the node whose child graph contains it, None for most.
        work: What a kernel, copy or set does. None if unknown.
        row: Columns of `Graph.nodes` that this kind has.
    """

    number: int
    handle: Any
    kind: str
    parent: int | None
    work: Work | Unbound | None = None
    row: dict[str, Any] = field(default_factory=dict)


def read(
    device: Device, graph: Any, work: bool = True, places: Mapping[int, int] | None = None
) -> list[GraphNode]:
    """Returns the nodes of a graph and its child graphs.

    work: whether to read what they do. places: the places of nodes of the graph itself by their
    addresses; others come behind. Raises DriverError if the driver refuses.
    """
    out: list[GraphNode] = []
    with device.use():
        own = listed(device, "cuGraphGetNodes", graph)
        if places is not None:
            own.sort(key=lambda handle: places.get(address(handle), len(places)))
        levels = [_Level(iter(own), None)]
        while levels:
            handle = next(levels[-1].handles, None)
            if handle is None:
                levels.pop()
                continue
            kind = ffi.new("CUgraphNodeType *")
            device.driver.call("cuGraphNodeGetType", handle, kind)
            number = int(kind[0])
            name = NODE_KINDS[number] if 0 <= number < len(NODE_KINDS) else "other"
            node = GraphNode(len(out), handle, name, levels[-1].parent)
            out.append(node)
            if work and name in READERS:
                READERS[name](device, node)
            if name == "graph":
                inner = ffi.new("CUgraph *")
                device.driver.call("cuGraphChildGraphNodeGetGraph", handle, inner)
                levels.append(
                    _Level(iter(listed(device, "cuGraphGetNodes", inner[0])), node.number)
                )
    return out


@dataclass
class _Level:
    handles: Iterator[Any]
    parent: int | None


def listed(device: Device, call: str, of: Any) -> list[Any]:
    """Returns the nodes that a call of the driver lists for a graph or a node."""
    count = ffi.new("size_t *")
    with device.use() as driver:
        driver.call(call, of, ffi.NULL, count)
        out = ffi.new("CUgraphNode[]", count[0])
        if count[0]:  # the driver refuses to list nothing
            driver.call(call, of, out, count)
    return [out[i] for i in range(count[0])]


def address(handle: Any) -> int:
    """Returns a handle as an int."""
    return int(ffi.cast("uintptr_t", handle))


# ---- what nodes do ----


def _kernel(device: Device, node: GraphNode) -> None:
    driver = device.driver
    made = ffi.new("CUDA_KERNEL_NODE_PARAMS *")
    driver.call("cuGraphKernelNodeGetParams_v2", node.handle, made)
    handle = made.func
    if handle == ffi.NULL and made.kern != ffi.NULL:
        out = ffi.new("CUfunction *")
        if not driver.result("cuKernelGetFunction", out, made.kern):
            handle = out[0]
    if handle == ffi.NULL:
        return
    function = Function.wrap(device, handle)
    cluster = ffi.new("CUlaunchAttributeValue *")
    if driver.result("cuGraphKernelNodeGetAttribute", node.handle, CLUSTER, cluster):
        cluster = ffi.new("CUlaunchAttributeValue *")
    alike = ffi.new("CUlaunchAttributeValue *")
    if driver.result("cuGraphKernelNodeGetAttribute", node.handle, COOPERATIVE, alike):
        alike = ffi.new("CUlaunchAttributeValue *")
    of = cluster.clusterDim
    node.work = Kernel(
        function,
        (made.gridDimX, made.gridDimY, made.gridDimZ),
        (made.blockDimX, made.blockDimY, made.blockDimZ),
        int(made.sharedMemBytes),
        _params(function, made),
        (of.x, of.y, of.z),
        bool(alike.cooperative),
    )
    done = node.work
    node.row = {
        "kernel": function.name,
        "grid": done.grid,
        "block": done.block,
        "cluster": done.cluster,
        "shared": done.shared,
        "params": done.params,
        "cooperative": done.cooperative,
    }


def _params(function: Function, made: Any) -> bytes | None:
    if made.extra != ffi.NULL:
        words: list[Any] = []
        while len(words) < 8 and made.extra[len(words)] != ffi.NULL:
            words.append(made.extra[len(words)])
        given = {address(k): v for k, v in zip(words[::2], words[1::2], strict=False)}
        if 1 in given and 2 in given:
            return bytes(ffi.buffer(given[1], ffi.cast("size_t *", given[2])[0]))
    layout = function.layout
    if layout is None:
        return None
    if not layout:
        return b""
    if made.kernelParams == ffi.NULL:
        return None
    out = bytearray(layout[-1][0] + layout[-1][1])
    for i, (offset, size) in enumerate(layout):
        out[offset : offset + size] = bytes(ffi.buffer(made.kernelParams[i], size))
    return bytes(out)


def _copy(device: Device, node: GraphNode) -> None:
    made = ffi.new("CUDA_MEMCPY3D *")
    device.driver.call("cuGraphMemcpyNodeGetParams", node.handle, made)
    rows, slices = max(1, made.Height), max(1, made.Depth)
    sides = []
    for side in ("dst", "src"):
        kind = getattr(made, f"{side}MemoryType")
        if kind == HOST:
            base = address(getattr(made, f"{side}Host"))
        else:
            base = 0 if kind == ARRAY else int(getattr(made, f"{side}Device"))
        row = getattr(made, f"{side}Y") + getattr(made, f"{side}Z") * getattr(made, f"{side}Height")
        skip = getattr(made, f"{side}XInBytes") + row * getattr(made, f"{side}Pitch")
        sides.append((base + skip if base else 0, kind))
    size = int(made.WidthInBytes) * rows * slices
    (dst, of_dst), (src, of_src) = sides
    node.row = {"dst": dst, "src": src, "bytes": size}
    if dst and src:
        pitches = (int(made.dstPitch), int(made.srcPitch))
        shape = (rows, slices, *pitches, int(made.dstHeight), int(made.srcHeight))
        width, sides_of_host = int(made.WidthInBytes), (of_dst == HOST, of_src == HOST)
        node.work = Copy(dst, src, width, *sides_of_host, rows=shape)


def _set(device: Device, node: GraphNode) -> None:
    made = ffi.new("CUDA_MEMSET_NODE_PARAMS *")
    device.driver.call("cuGraphMemsetNodeGetParams", node.handle, made)
    item, rows = int(made.elementSize), max(1, made.height)
    size = int(made.width) * item * rows
    node.row = {"dst": int(made.dst), "src": int(made.value), "bytes": size, "shared": item}
    if rows == 1:
        node.work = Set(int(made.dst), size, int(made.value), item)


READERS = {"kernel": _kernel, "copy": _copy, "set": _set}


# ---- tables ----


def table(nodes: list[GraphNode]) -> pd.DataFrame:
    """Returns one row per node, with the columns of format.graph_tables.nodes."""
    import pandas as pd  # which takes longer to import than all else together

    kernels = [n.row.get("kernel") for n in nodes]
    different = list(dict.fromkeys(k for k in kernels if k is not None))
    texts = dict(zip(different, demangle.demangle(different), strict=True))
    columns: dict[str, Any] = {
        "node": [n.number for n in nodes],
        "kind": [n.kind for n in nodes],
        "parent": pd.array([n.parent for n in nodes], "Int64"),
        "branch": [0] * len(nodes),
        "kernel": kernels,
        "short": [None if k is None else demangle.short(texts[k]) for k in kernels],
        "context": pd.array([None] * len(nodes), "Int64"),
    }
    for size in ("grid", "block", "cluster"):
        of = [n.row.get(size, (0, 0, 0)) for n in nodes]
        columns |= {f"{size}_{axis}": [s[i] for s in of] for i, axis in enumerate("xyz")}
    for name in ("shared", "dst", "src", "bytes"):
        columns[name] = [n.row.get(name, 0) for n in nodes]
    columns |= {
        "params": [n.row.get("params") for n in nodes],
        "regions": [[] for _ in nodes],
        "enabled": [True] * len(nodes),
        "cooperative": [n.row.get("cooperative", False) for n in nodes],
        "conditional": [False] * len(nodes),
        "device": [False] * len(nodes),
        "known": [_is_known(n) for n in nodes],
    }
    return pd.DataFrame(columns)


def _is_known(node: GraphNode) -> bool:
    if isinstance(node.work, Unbound):
        return False
    return bool(node.work or node.row) or node.kind not in READERS


def edges(device: Device, graph: Any, nodes: list[GraphNode]) -> pd.DataFrame:
    """Returns one row per edge, with the columns of format.graph_tables.edges."""
    import pandas as pd

    numbers = {address(n.handle): n.number for n in nodes}
    rows: list[tuple[int, ...]] = []
    with device.use() as driver:
        graphs = [graph]
        for node in nodes:
            if node.kind == "graph":
                inner = ffi.new("CUgraph *")
                driver.call("cuGraphChildGraphNodeGetGraph", node.handle, inner)
                graphs.append(inner[0])
        for one in graphs:
            count = ffi.new("size_t *")
            call = "cuGraphGetEdges_v2"
            driver.call(call, one, ffi.NULL, ffi.NULL, ffi.NULL, count)
            begins, ends = (ffi.new("CUgraphNode[]", count[0]) for _ in range(2))
            data = ffi.new("CUgraphEdgeData[]", count[0])
            if count[0]:
                driver.call(call, one, begins, ends, data, count)
            rows += [
                (
                    numbers[address(begins[i])],
                    numbers[address(ends[i])],
                    int(data[i].from_port),
                    int(data[i].to_port),
                    int(data[i].type),
                )
                for i in range(count[0])
            ]
    names = ("from", "to", "from_port", "to_port", "type")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    made = {name: pd.array(list(c), "int64") for name, c in zip(names, columns, strict=True)}
    return pd.DataFrame(made)


def in_order(nodes: Sequence[GraphNode], edges: pd.DataFrame) -> list[int]:
    """Returns the numbers of the nodes, each behind those that it runs after.

    Nodes of a child graph come right behind the node that contains it. Raises Error if nodes run
    after each other.
    """
    before: dict[int, list[int]] = {n.number: [] for n in nodes}
    for start, end in zip(edges["from"].tolist(), edges["to"].tolist(), strict=True):
        before[end].append(start)
    levels: dict[int | None, list[int]] = {}
    for node in nodes:
        levels.setdefault(node.parent, []).append(node.number)

    def level(parent: int | None) -> Iterator[int]:
        order = graphlib.TopologicalSorter({n: before[n] for n in levels.get(parent, [])})
        for number in order.static_order():
            yield number
            yield from level(number)

    try:
        return list(level(None))
    except graphlib.CycleError as e:
        around = ", ".join(map(str, e.args[1]))
        raise Error(f"nodes {around}: each runs after the one before, in a circle") from None


def find_node(nodes: Sequence[GraphNode], number: int) -> GraphNode:
    """Returns the node of a number. Raises Error if there is none."""
    at = whole(number, "node", -MOST)
    if not 0 <= at < len(nodes):
        there = f"nodes 0 to {len(nodes) - 1}" if nodes else "no nodes"
        raise Error(f"no node {at}: the graph has {there}")
    return nodes[at]


def changed(
    device: Device, node: GraphNode, work: Work | Unbound, changes: Mapping[str, Any]
) -> Work | Unbound:
    """Returns the work of a node with changes. A kernel may be given by its name.

    Raises Error for changes that this kind of node does not have.
    """
    new = dict(changes)
    if isinstance(new.get("function"), str):
        new["function"] = find(device.context.loaded, new["function"])
    try:
        return work.changed(**new)
    except TypeError:
        of = f"{'an' if node.kind[0] in 'aeiou' else 'a'} {node.kind}"
        takes, given = ", ".join(CHANGES[node.kind]), ", ".join(changes)
        raise Error(f"node {node.number} is {of}, which takes {takes}: not {given}") from None
