"""The work of graph nodes: kernels, copies and sets.

Work is submitted to a stream, added to a graph, or replaces that of a node of an executable graph.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.memory import DeviceBuffer, address_of
from ttanalyze.gpu.module import Function
from ttanalyze.gpu.validate_args import MOST, whole
from ttanalyze.output import text

HOST, DEVICE = 1, 2  # CU_MEMORYTYPE_…
CLUSTER, COOPERATIVE = 4, 2  # CU_LAUNCH_ATTRIBUTE_…
BUFFER_POINTER, BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_…
# By direction: what the source and the destination have to be.
DIRECTIONS = {"d2d": (DEVICE, DEVICE), "h2d": (HOST, DEVICE), "d2h": (DEVICE, HOST)}
ALIASES = {
    **{name: name for name in DIRECTIONS},
    **{f"{a[0]}to{b[0]}": f"{a[0]}2{b[0]}" for a in ("device", "host") for b in ("device", "host")},
    **{f"{a}_to_{b}": f"{a[0]}2{b[0]}" for a in ("device", "host") for b in ("device", "host")},
}
# What can be changed in a node, by its kind.
CHANGES = {
    "kernel": ("function", "grid", "block", "shared_mem", "args"),
    "copy": ("size", "dst", "src"),
    "set": ("size", "value", "dst", "item"),
}
MOST_THREADS = MOST_SHARED = (1 << 32) - 1  # that a driver can be asked for
ITEMS = (1, 2, 4)  # bytes of an item that can be set
Size = int | Sequence[int]


class MemcpyDirection(str, enum.Enum):
    """The directions of copies: `record_memcpy` and `add_memcpy_node` take these or their
    values.
    """

    HostToDevice = "h2d"
    DeviceToHost = "d2h"
    DeviceToDevice = "d2d"

    __str__ = str.__str__


def three(size: Size, what: str) -> tuple[int, int, int]:
    """Returns a grid or block of one to three ints as three, each at least 1. Raises Error for
    anything else.
    """
    numbers = list(size) if isinstance(size, (Sequence, np.ndarray)) else [size]
    if not 1 <= len(numbers) <= 3:
        raise Error(f"{what} {size}: give one to three numbers of at least 1")
    x, y, z = (whole(n, what, 1, MOST_THREADS) for n in [*numbers, 1, 1][:3])
    return x, y, z


class _Node(abc.ABC):
    """Work of a node."""

    ADD: ClassVar[str]  # the driver's calls
    CHANGE: ClassVar[str]
    DESCRIPTION: ClassVar[str]  # in errors

    @property
    def _description(self) -> str:
        return self.DESCRIPTION

    @abc.abstractmethod
    def _arguments(self, device: Device) -> tuple[tuple[Any, ...], Any]:
        """Returns the last arguments of both driver calls, and objects that must live during
        them.
        """

    def add(self, device: Device, graph: Any, after: Any) -> Any:
        """Adds a node to a graph and returns its CUgraphNode."""
        given, _kept = self._arguments(device)
        with device.use() as driver:
            doing = f"adding {self._description}"
            return driver.get(self.ADD, "CUgraphNode", graph, *after, *given, doing=doing)

    def put(self, device: Device, executable: Any, node: Any) -> None:
        """Replaces the work of a node of an executable graph."""
        given, _kept = self._arguments(device)
        with device.use() as driver:
            driver.call(
                self.CHANGE, executable, node, *given, doing=f"updating {self._description}"
            )


@dataclass(frozen=True)
class Kernel(_Node):
    """A launch.

    params: the bytes of the parameters, None if unknown. cluster: zeros for none. keeps: objects
    that must live while it may run. attributes: further ones by CUlaunchAttributeID, as bytes.
    """

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    params: bytes | None
    cluster: tuple[int, int, int] = (0, 0, 0)
    cooperative: bool = False
    keeps: tuple[Any, ...] = field(default=(), repr=False)
    attributes: tuple[tuple[int, bytes], ...] = ()

    ADD = "cuGraphAddKernelNode_v2"
    CHANGE = "cuGraphExecKernelNodeSetParams_v2"

    @classmethod
    def of(
        cls,
        function: Function,
        grid: Size,
        block: Size,
        shared_mem: int,
        args: Sequence[Any],
        cluster: Size | None = None,
        cooperative: bool = False,
    ) -> Kernel:
        """Makes a launch. Raises Error for wrong arguments and sizes."""
        params, keeps = function.pack(args)
        of = (0, 0, 0) if cluster is None else three(cluster, "cluster")
        sizes = three(grid, "grid"), three(block, "block")
        dynamic = whole(shared_mem, "shared_mem", 0, MOST_SHARED)
        return cls(function, *sizes, dynamic, params, of, cooperative, (function, *keeps))

    def changed(
        self,
        function: Function | None = None,
        grid: Size | None = None,
        block: Size | None = None,
        shared_mem: int | None = None,
        args: Sequence[Any] | None = None,
    ) -> Kernel:
        """Returns the launch with some changes. Raises Error as of()."""
        other = self.function if function is None else function
        params, keeps = self.params, self.keeps
        if args is not None:
            params, kept = other.pack(args)
            keeps = (other, *kept)
        elif params is None:
            raise Error(f"the arguments of {other.name} are unknown: give them with args=")
        elif function is not None:
            keeps = (other, *keeps)
        return replace(
            self,
            function=other,
            grid=self.grid if grid is None else three(grid, "grid"),
            block=self.block if block is None else three(block, "block"),
            shared=self.shared
            if shared_mem is None
            else whole(shared_mem, "shared_mem", 0, MOST_SHARED),
            params=params,
            keeps=keeps,
        )

    @property
    def _attributes(self) -> list[tuple[int, Any]]:
        """Returns id and value of each CUlaunchAttribute."""
        out = []
        if any(self.cluster):
            value = ffi.new("CUlaunchAttributeValue *")
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = self.cluster
            out.append((CLUSTER, value))
        if self.cooperative:
            value = ffi.new("CUlaunchAttributeValue *")
            value.cooperative = 1
            out.append((COOPERATIVE, value))
        for number, data in self.attributes:
            value = ffi.new("CUlaunchAttributeValue *")
            ffi.memmove(value, data, min(len(data), ffi.sizeof("CUlaunchAttributeValue")))
            out.append((number, value))
        return out

    def _extra(self) -> tuple[Any, list[Any]]:
        """Returns the parameters as the driver takes them, and objects that must live during
        the call.
        """
        if not self.params:
            return ffi.NULL, []
        data = ffi.new("char[]", self.params)
        size = ffi.new("size_t *", len(self.params))
        words = (ffi.cast("void *", BUFFER_POINTER), data, ffi.cast("void *", BUFFER_SIZE), size)
        extra = ffi.new("void *[]", [*words, ffi.NULL])
        return extra, [extra, data, size]

    def submit(self, device: Device, stream: int) -> None:
        self.function.allow_shared(self.shared)
        extra, kept = self._extra()
        config = ffi.new("CUlaunchConfig *")
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.block
        config.sharedMemBytes = self.shared
        config.hStream = ffi.cast("CUstream", stream)
        given = self._attributes
        attributes = ffi.new("CUlaunchAttribute[]", max(1, len(given)))
        for attribute, (number, value) in zip(attributes, given, strict=False):
            attribute.id, attribute.value = number, value[0]
        config.attrs, config.numAttrs = attributes, len(given)
        with device.use() as driver:
            call, doing = "cuLaunchKernelEx", f"launching {self.function.name}"
            driver.call(call, config, self.function.handle, ffi.NULL, extra, doing=doing)
        del kept

    @property
    def _description(self) -> str:
        return f"a launch of {self.function.name}"

    def _arguments(self, device: Device) -> tuple[tuple[Any, ...], Any]:
        self.function.allow_shared(self.shared)
        extra, kept = self._extra()
        node = ffi.new("CUDA_KERNEL_NODE_PARAMS *")
        node.func = self.function.handle
        node.gridDimX, node.gridDimY, node.gridDimZ = self.grid
        node.blockDimX, node.blockDimY, node.blockDimZ = self.block
        node.sharedMemBytes = self.shared
        node.extra = extra
        return (node,), kept

    def add(self, device: Device, graph: Any, after: Any) -> Any:
        node = super().add(device, graph, after)
        with device.use() as driver:
            for number, value in self._attributes:
                call, doing = "cuGraphKernelNodeSetAttribute", f"adding {self._description}"
                driver.call(call, node, number, value, doing=doing)
        return node


@dataclass(frozen=True)
class Copy(_Node):
    """A copy of `size` bytes, or of rows of `size` bytes.

    dst, src: addresses. host_dst, host_src: whether they are on the host. rows: the number of rows
    and slices, and the distances of rows and slices on both sides.
    """

    dst: int
    src: int
    size: int
    host_dst: bool = False
    host_src: bool = False
    keeps: tuple[Any, ...] = field(default=(), repr=False)
    rows: tuple[int, int, int, int, int, int] = (1, 1, 0, 0, 0, 0)

    DESCRIPTION = "a copy"
    ADD = "cuGraphAddMemcpyNode"
    CHANGE = "cuGraphExecMemcpyNodeSetParams"

    @classmethod
    def of(cls, direction: str, size: int, dst: Any, src: Any) -> Copy:
        """Makes a copy. Raises Error if the arguments do not fit together."""
        known = ALIASES.get(str(direction).lower().replace("-", "_"))
        if known not in DIRECTIONS:
            raise Error(f"direction {direction!r}: must be one of {', '.join(DIRECTIONS)}")
        size = whole(size, "size", 1)
        of_src, of_dst = DIRECTIONS[known]
        to = checked_address(dst, of_dst, size, "dst", known, True)
        return cls(
            to,
            checked_address(src, of_src, size, "src", known),
            size,
            of_dst == HOST,
            of_src == HOST,
            (kept(dst), kept(src)),
        )

    def changed(self, size: int | None = None, dst: Any = None, src: Any = None) -> Copy:
        """Returns the copy with some changes. Raises Error as of(), and for copies of rows."""
        if self._several:
            raise Error("a copy of several rows: drivers change none; instantiate another graph")
        direction = "2".join("h" if host else "d" for host in (self.host_src, self.host_dst))
        to, source = self.keeps or (None, None)
        return Copy.of(
            direction,
            self.size if size is None else size,
            CheckedAddress(self.dst, to) if dst is None else dst,
            CheckedAddress(self.src, source) if src is None else src,
        )

    def submit(self, device: Device, stream: int) -> None:
        if self._several:
            with device.use() as driver:
                driver.call("cuMemcpy3DAsync_v2", self._box(), ffi.cast("CUstream", stream))
            return
        call = "cuMemcpyDtoDAsync_v2"
        dst, src = self.dst, self.src
        if self.host_dst:
            call, dst = "cuMemcpyDtoHAsync_v2", ffi.cast("void *", dst)
        elif self.host_src:
            call, src = "cuMemcpyHtoDAsync_v2", ffi.cast("void *", src)
        with device.use() as driver:
            driver.call(call, dst, src, self.size, ffi.cast("CUstream", stream))

    @property
    def _several(self) -> bool:
        return self.rows[:2] != (1, 1)

    def _arguments(self, device: Device) -> tuple[tuple[Any, ...], Any]:
        return (self._box(), device.context.handle), None

    def _box(self) -> Any:
        node = ffi.new("CUDA_MEMCPY3D *")
        node.dstMemoryType = HOST if self.host_dst else DEVICE
        node.srcMemoryType = HOST if self.host_src else DEVICE
        if self.host_dst:
            node.dstHost = ffi.cast("void *", self.dst)
        else:
            node.dstDevice = self.dst
        if self.host_src:
            node.srcHost = ffi.cast("void *", self.src)
        else:
            node.srcDevice = self.src
        rows, slices, to, source, high, far = self.rows
        node.WidthInBytes, node.Height, node.Depth = self.size, rows, slices
        node.dstPitch, node.srcPitch, node.dstHeight, node.srcHeight = to, source, high, far
        return node


@dataclass(frozen=True)
class Set(_Node):
    """A set of memory to a value, or of rows.

    size: bytes. item: the size in bytes of each item, which gets the value. pitch: bytes from row
    to row.
    """

    dst: int
    size: int
    value: int
    item: int = 1
    keeps: tuple[Any, ...] = field(default=(), repr=False)
    rows: int = 1
    pitch: int = 0

    DESCRIPTION = "a set"
    ADD = "cuGraphAddMemsetNode"
    CHANGE = "cuGraphExecMemsetNodeSetParams"

    @classmethod
    def of(cls, size: int, value: int, dst: Any, item: int = 1) -> Set:
        """Makes a set. Raises Error if the arguments do not fit together."""
        size, value = whole(size, "size", 1), whole(value, "value", -MOST)
        if item not in ITEMS:
            raise Error(f"items of {item} bytes: must be one of {', '.join(map(str, ITEMS))}")
        if size % item:
            raise Error(f"{size} bytes are no items of {item} bytes")
        bits = 8 * item
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise Error(f"value {value} does not fit into {text.count(item, 'byte')}")
        to = checked_address(dst, DEVICE, size, "dst", "memset")
        return cls(to, size, value & ((1 << bits) - 1), item, (kept(dst),))

    def changed(
        self,
        size: int | None = None,
        value: int | None = None,
        dst: Any = None,
        item: int | None = None,
    ) -> Set:
        """Returns the set with some changes. Raises Error as of(), and for sets of rows."""
        if self.rows > 1:
            raise Error("a set of several rows: it can't be changed; instantiate another graph")
        return Set.of(
            self.size if size is None else size,
            self.value if value is None else value,
            CheckedAddress(self.dst, self.keeps[0] if self.keeps else None) if dst is None else dst,
            self.item if item is None else item,
        )

    def submit(self, device: Device, stream: int) -> None:
        call, to = f"cuMemsetD{8 * self.item}Async", ffi.cast("CUstream", stream)
        count, several = self.size // self.item, f"cuMemsetD2D{8 * self.item}Async"
        with device.use() as driver:
            if self.rows > 1:
                driver.call(several, self.dst, self.pitch, self.value, count, self.rows, to)
            else:
                driver.call(call, self.dst, self.value, count, to)

    def _arguments(self, device: Device) -> tuple[tuple[Any, ...], Any]:
        node = ffi.new("CUDA_MEMSET_NODE_PARAMS *")
        node.dst, node.value, node.elementSize = self.dst, self.value, self.item
        node.width, node.height, node.pitch = self.size // self.item, self.rows, self.pitch
        return (node, device.context.handle), None


Work = Kernel | Copy | Set


@dataclass(frozen=True)
class CheckedAddress:
    """A valid address, and an object that must live while it is used."""

    address: int
    keeps: Any


def kept(value: Any) -> Any:
    """Returns the object that must live while a value is used."""
    return value.keeps if isinstance(value, CheckedAddress) else value


def checked_address(
    value: Any, kind: int, size: int, which: str, what: str, written: bool = False
) -> int:
    """Returns the address of one side of a copy. Raises Error if it is of another kind or too
    small.
    """
    if isinstance(value, CheckedAddress):
        return value.address
    if value is None:
        raise Error(f"{what} needs {which}=")
    if isinstance(value, (int, np.integer)):
        return int(value)
    address = address_of(value)
    if kind == DEVICE and address is None:
        raise Error(
            f"{which} of {what} lies on the device: give a DeviceBuffer, an address or such"
        )
    if kind == HOST:
        if address is not None:
            raise Error(f"{which} of {what} lies on the host: give a numpy array or an address")
        return _host(value, size, which, what, written)
    if isinstance(value, DeviceBuffer) and value.size < size:
        raise Error(f"{which} of {what} has {value.size} bytes, which are not {size}")
    assert address is not None
    return address


def _host(value: Any, size: int, which: str, what: str, written: bool) -> int:
    try:
        view = memoryview(value)
    except TypeError:
        raise Error(f"{which} of {what}: a {type(value).__name__} is no memory") from None
    if not view.contiguous or (written and view.readonly):
        raise Error(f"{which} of {what} is not {'writable' if view.contiguous else 'contiguous'}")
    if view.nbytes < size:
        raise Error(f"{which} of {what} has {view.nbytes} bytes, which are not {size}")
    return int(ffi.cast("uintptr_t", ffi.from_buffer(value)))
