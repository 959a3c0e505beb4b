"""StreamCapture: turns work that is submitted to a stream into a graph."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import Any

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu.device import Context, Device, Stream, stream_handle
from ttanalyze.gpu.driver import INVALIDATED, DriverError, EndedError
from ttanalyze.gpu.graph import Graph
from ttanalyze.gpu.module import Function
from ttanalyze.gpu.unbound import Unbound, plan, plan_kernel
from ttanalyze.gpu.work import Size, Work

MODES = {"global": 0, "thread-local": 1, "relaxed": 2}
SET_DEPENDENCIES = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES
NONE, ACTIVE = 0, 1  # CU_STREAM_CAPTURE_STATUS_…


class StreamCapture:
    """A stream under capture. Work that is submitted to it becomes a graph and does not run.

    The work may come from the methods below or from calls of the program or its libraries. Use
    `StreamCapture.begin` to start a capture. A `with` block ends the capture and sets `graph`;
    after an exception the capture is abandoned.

    Args:
        device: The device of the stream.
        stream: A Stream, a CUstream as an int, or a stream of PyTorch, CuPy or Numba.
        mode: "global", "thread-local" or "relaxed", as `begin` takes it.
    """

    def __init__(self, device: Device, stream: Any, mode: str = "global") -> None:
        if mode not in MODES:
            raise Error(f"mode {mode!r}: must be one of {', '.join(MODES)}")
        self.device = device
        self.stream = stream
        self._handle = stream_handle(stream)
        self._recorded: list[Work | Unbound] = []
        self._graph: Graph | None = None
        self._error = ""  # that ended it
        with device.use() as driver:
            call = "cuStreamBeginCapture_v2"
            status = self._status()
            if status != NONE:
                raise Error("the stream is captured already: end that capture first")
            result = driver.result(call, self._raw, MODES[mode])
            if result and self._handle in (0, 1, 2):
                raise Error("the default stream can't be captured: give another one")
            if result:
                raise driver.error(call, result)
        self._active = True
        self._unbound: dict[int, Unbound] = {}
        # The stream is kept until then: drivers crash where a capture ends whose stream is gone.
        kept = (device.context, os.getpid(), self._handle, stream)
        self._abandon = weakref.finalize(self, _drop, *kept)
        device.context.captured.add(self._handle)

    @classmethod
    def begin(
        cls, stream: Any = None, device: Device | None = None, mode: str = "global"
    ) -> StreamCapture:
        """Begins the capture of a stream.

        Args:
            stream: A Stream, a CUstream as an int, or a stream of PyTorch, CuPy or Numba. Default:
                a new stream of `device`.
            device: The device. Default: that of the stream, else the first one.
            mode: The threads in which calls that wait or allocate are forbidden during the capture:
                all ("global"), this one ("thread-local") or none ("relaxed").

        Returns:
            The capture.

        Raises:
            Error: The stream is under capture, or is the default stream.

        Example:
            >>> device = tt.graph.Device(0, tt.graph.simulator())
            >>> memory = tt.graph.DeviceBuffer(16, device)
            >>> with tt.graph.StreamCapture.begin(device=device) as capture:
            ...     capture.record_memset(16, 7, memory)
            >>> capture.graph.instantiate().launch()
            >>> memory.read("u4")
            array([117901063, 117901063, 117901063, 117901063], dtype=uint32)
        """
        if stream is None:
            stream = Stream(device)
        return cls(device or Device.of_stream(stream), stream, mode)

    @property
    def _raw(self) -> Any:
        return ffi.cast("CUstream", self._handle)

    def _status(self) -> int:
        out = ffi.new("CUstreamCaptureStatus *")
        with self.device.use() as driver:
            driver.call("cuStreamIsCapturing", self._raw, out)
        return int(out[0])

    def __repr__(self) -> str:
        state = "active" if self._active else "ended"
        return f"<StreamCapture: {self.recorded_count()} recorded, {state}>"

    def is_active(self) -> bool:
        """Returns whether the capture goes on."""
        return self._active

    def recorded_count(self) -> int:
        """Returns the number of launches, copies and sets that the methods of this object
        recorded.
        """
        return len(self._recorded)

    def record_kernel(
        self,
        function_name: str | Function,
        grid: Size,
        block: Size,
        shared_mem: int = 0,
        args: Sequence[Any] | None = None,
        *,
        cluster: Size | None = None,
        cooperative: bool = False,
    ) -> None:
        """Records a kernel launch.

        Without `args`, a kernel that is not loaded yet or that has parameters is only described:
        `Graph.bind` gives the rest before the graph can run.

        An argument may be an int or a float, which gets the size of its parameter, a numpy scalar,
        a pair such as ("f32", 1.0), the bytes of a structure, None (a null pointer), a
        DeviceBuffer, or an array or tensor of another library. The graph keeps the buffers.

        Args:
            function_name: The name of a kernel, in a module that is loaded in this context if
                `args` is given; or a Function.
            grid: The blocks of the grid, one to three ints.
            block: The threads of a block, one to three ints.
            shared_mem: The dynamic shared memory in bytes.
            args: One argument per parameter of the kernel. Their values at this moment are used.
            cluster: The blocks of a cluster, one to three ints. Default: no clusters.
            cooperative: Whether the launch is cooperative.

        Raises:
            Error: The kernel is unknown, or an argument does not fit.
            DriverError: The driver refuses the launch.
        """
        self._check()
        size = {"grid": grid, "block": block, "shared_mem": shared_mem}
        how = {"cluster": cluster, "cooperative": cooperative}
        self._record(plan_kernel(self.device, function_name, args, **size, **how))

    def record_memcpy(self, direction: str, size: int, dst: Any = None, src: Any = None) -> None:
        """Records a copy.

        An address on the device is anything that may be an argument of a kernel. On the host it is
        a numpy array, which is read or written when the graph runs.

        Args:
            direction: "h2d", "d2h" or "d2d"; also "htod" or "host_to_device" and so on, or a
                MemcpyDirection.
            size: The number of bytes.
            dst: The destination.
            src: The source. Without both, `Graph.bind` gives them before the graph can run.

        Raises:
            Error: An address or the size does not fit.
        """
        self._check()
        self._record(plan("copy", direction=direction, size=size, dst=dst, src=src))

    def record_memset(self, size: int, value: int, dst: Any = None, item: int = 1) -> None:
        """Records that memory is set to a value.

        Args:
            size: The number of bytes.
            value: The value of each item.
            dst: The destination, anything that may be an argument of a kernel. Without it,
                `Graph.bind` gives it before the graph can run.
            item: The size of an item: 1, 2 or 4 bytes.

        Raises:
            Error: An argument does not fit.
        """
        self._check()
        self._record(plan("set", size=size, value=value, dst=dst, item=item))

    def _check(self) -> None:
        if not self._active:
            how = f" with an error ({self._error})" if self._error else ""
            raise EndedError(f"the capture has ended{how}: StreamCapture.begin(…) begins another")
        try:
            stream_handle(self.stream)
        except EndedError:
            self._done()
            raise

    def _record(self, work: Work | Unbound) -> None:
        try:
            if isinstance(work, Unbound):
                self._unbound[self._empty()] = work
            else:
                work.submit(self.device, self._handle)
        except DriverError as e:
            self._look(e)
            raise
        self._recorded.append(work)

    def _empty(self) -> int:
        """Adds an empty node behind what was captured, and returns its address."""
        state, graph = ffi.new("CUstreamCaptureStatus *"), ffi.new("CUgraph *")
        before, count = ffi.new("CUgraphNode **"), ffi.new("size_t *")
        with self.device.use() as driver:
            call, where = "cuStreamGetCaptureInfo_v2", (ffi.NULL, graph, before, count)
            driver.call(call, self._raw, state, *where)
            node = driver.get("cuGraphAddEmptyNode", "CUgraphNode", graph[0], before[0], count[0])
            call, only = "cuStreamUpdateCaptureDependencies", ffi.new("CUgraphNode[]", [node])
            driver.call(call, self._raw, only, 1, SET_DEPENDENCIES)
        return int(ffi.cast("uintptr_t", node))

    def _look(self, error: DriverError) -> None:
        """Abandons the capture if the driver ended it, so that the stream can be used again."""
        if error.result == INVALIDATED or self._status() != ACTIVE:
            self._error = f"{error.call}: {error.name}"
            self.abandon()

    def end(self) -> Graph:
        """Ends the capture and returns the graph.

        Raises:
            EndedError: The capture has ended.
            DriverError: A call that is not allowed during a capture has ended it.
        """
        self._check()
        out = ffi.new("CUgraph *")
        self._done()
        with self.device.use() as driver:
            driver.call("cuStreamEndCapture", self._raw, out, doing="ending the capture")
        self._graph = Graph(self.device, out[0], self._recorded, unbound=self._unbound)
        return self._graph

    @property
    def graph(self) -> Graph:
        """The graph that `end` returned. Raises Error before that."""
        if self._graph is None:
            raise Error("there is no graph" + (" yet: end the capture" if self._active else ""))
        return self._graph

    def _done(self) -> None:
        self._active = False
        self._abandon.detach()
        self.device.context.captured.discard(self._handle)

    def abandon(self) -> None:
        """Ends the capture and drops the recorded work."""
        self._active = False
        self._abandon()

    def __enter__(self) -> StreamCapture:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._active and kind is None:
            self.end()
        elif self._active:
            self.abandon()


def _drop(context: Context, process: int, handle: int, stream: Any) -> None:
    """Ends a capture, unless its stream was closed, and destroys its graph."""
    context.captured.discard(handle)
    with contextlib.suppress(Error):
        if process == os.getpid():
            with context.use() as driver:
                out = ffi.new("CUgraph *")
                raw = ffi.cast("CUstream", stream_handle(stream))
                driver.result("cuStreamEndCapture", raw, out)
                if out[0] != ffi.NULL:
                    driver.result("cuGraphDestroy", out[0])
