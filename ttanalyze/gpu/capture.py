"""Work that is submitted to a stream becomes a graph instead."""

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
from ttanalyze.gpu.module import Function, find
from ttanalyze.gpu.work import Copy, Kernel, Set, Size, Work

MODES = {"global": 0, "thread-local": 1, "relaxed": 2}
NONE, ACTIVE = 0, 1  # CU_STREAM_CAPTURE_STATUS_…


class StreamCapture:
    """A stream from begin() to end(): what is submitted to it, here or by the program's own calls,
    does not run but becomes a Graph.

    In a `with` it ends at the end, and `graph` is what came of it; after an exception nothing does.
    """

    def __init__(self, device: Device, stream: Any, mode: str = "thread-local") -> None:
        if mode not in MODES:
            raise Error(f"mode {mode!r}: must be one of {', '.join(MODES)}")
        self.device = device
        self.stream = stream
        self._handle = stream_handle(stream)
        self._recorded: list[Work] = []
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
        self.active = True
        # The stream is kept until then: drivers crash where a capture ends whose stream is gone.
        kept = (device.context, os.getpid(), self._handle, stream)
        self._abandon = weakref.finalize(self, _drop, *kept)
        device.context.captured.add(self._handle)

    @classmethod
    def begin(
        cls, stream: Any = None, device: Device | None = None, mode: str = "thread-local"
    ) -> StreamCapture:
        """Begins to capture a stream: a Stream, a CUstream, one of PyTorch or CuPy, or by default a
        new one of `device`.

        mode: what else is forbidden until the end, as calls that wait or allocate are: "global" to
        all threads, "thread-local" to this one, "relaxed" to none. Raises Error where the stream is
        captured already, or is the default one.
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
        state = "active" if self.active else "ended"
        return f"<StreamCapture: {self.recorded_count} recorded, {state}>"

    @property
    def recorded_count(self) -> int:
        """How many launches, copies and sets were recorded by the calls below."""
        return len(self._recorded)

    def record_kernel(
        self,
        function_name: str | Function,
        grid: Size,
        block: Size,
        shared_mem: int = 0,
        args: Sequence[Any] = (),
        *,
        cluster: Size | None = None,
        cooperative: bool = False,
    ) -> None:
        """Records a launch.

        function_name: a kernel of one of the modules that are loaded in this context, or a Function
        of any. grid, block: one to three numbers. shared_mem: dynamic shared memory in bytes. args:
        an argument for each parameter: integers and floats, which take the parameter's size, numpy
        scalars, ("f32", 1.0), bytes of a structure, None, DeviceBuffers, and arrays and tensors of
        other libraries. They are taken as they are now; buffers are kept while the graph is there.
        Raises Error for an unknown kernel and arguments that do not fit.
        """
        self._check()
        function = find(self.device.context.loaded, function_name)
        self._record(Kernel.of(function, grid, block, shared_mem, args, cluster, cooperative))

    def record_memcpy(self, direction: str, size: int, dst: Any = None, src: Any = None) -> None:
        """Records a copy of `size` bytes. direction: "h2d", "d2h" or "d2d" (also "htod",
        "host_to_device"). dst, src: addresses; on the device whatever can be an argument of a
        kernel, on the host numpy arrays, which are read, or written, when the graph runs.
        Raises Error for what does not fit.
        """
        self._check()
        self._record(Copy.of(direction, size, dst, src))

    def record_memset(self, size: int, value: int, dst: Any = None, item: int = 1) -> None:
        """Records that `size` bytes at dst are set to a value, in items of 1, 2 or 4 bytes. Raises
        Error for what does not fit.
        """
        self._check()
        self._record(Set.of(size, value, dst, item))

    def _check(self) -> None:
        if not self.active:
            how = f" with an error ({self._error})" if self._error else ""
            raise EndedError(f"the capture has ended{how}: StreamCapture.begin(…) begins another")
        try:
            stream_handle(self.stream)
        except EndedError:
            self._done()
            raise

    def _record(self, work: Work) -> None:
        try:
            work.submit(self.device, self._handle)
        except DriverError as e:
            self._look(e)
            raise
        self._recorded.append(work)

    def _look(self, error: DriverError) -> None:
        """What fails may end the capture; then so do we, so that the stream can be used again."""
        if error.result == INVALIDATED or self._status() != ACTIVE:
            self._error = f"{error.call}: {error.name}"
            self.abandon()

    def end(self) -> Graph:
        """Ends the capture and gives what was recorded. Raises EndedError where it has ended, and
        DriverError where a call that is not allowed during a capture has ended it.
        """
        self._check()
        out = ffi.new("CUgraph *")
        self._done()
        with self.device.use() as driver:
            driver.call("cuStreamEndCapture", self._raw, out, doing="ending the capture")
        self._graph = Graph(self.device, out[0], self._recorded)
        return self._graph

    @property
    def graph(self) -> Graph:
        """What end() gave. Raises Error before that."""
        if self._graph is None:
            raise Error("there is no graph" + (" yet: end the capture" if self.active else ""))
        return self._graph

    def _done(self) -> None:
        self.active = False
        self._abandon.detach()
        self.device.context.captured.discard(self._handle)

    def abandon(self) -> None:
        """Ends the capture, and forgets what was recorded."""
        self.active = False
        self._abandon()

    def __enter__(self) -> StreamCapture:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.active and kind is None:
            self.end()
        elif self.active:
            self.abandon()


def _drop(context: Context, process: int, handle: int, stream: Any) -> None:
    """Ends a capture, unless its stream was closed; what came of it is given back."""
    context.captured.discard(handle)
    with contextlib.suppress(Error):
        if process == os.getpid():
            with context.use() as driver:
                out = ffi.new("CUgraph *")
                raw = ffi.cast("CUstream", stream_handle(stream))
                driver.result("cuStreamEndCapture", raw, out)
                if out[0] != ffi.NULL:
                    driver.result("cuGraphDestroy", out[0])
