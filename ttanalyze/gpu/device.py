"""Devices, contexts and streams.

Invariant: each call is made in its context, and leaves the current context and the stream-capture
mode of the thread unchanged. Garbage collection never raises, and frees nothing in a forked child.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu.driver import Driver, EndedError
from ttanalyze.gpu.driver import driver as default_driver
from ttanalyze.gpu.once_init import once, once_property
from ttanalyze.gpu.validate_args import MOST, whole
from ttanalyze.util.arguments import checked

if TYPE_CHECKING:
    from ttanalyze.gpu.module import Module

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
NON_BLOCKING = 1


class Context:
    """A context of the driver. There is one object per context; it lives as long as what was made
    in it.
    """

    def __init__(self, driver: Driver, handle: Any) -> None:
        self.driver = driver
        self.handle = handle
        self.retained = False
        # By number, in the order in which they were loaded.
        self.modules: weakref.WeakValueDictionary[int, Module] = weakref.WeakValueDictionary()
        self.captured: set[int] = set()  # streams, by a StreamCapture

    @contextlib.contextmanager
    def use(self) -> Iterator[Driver]:
        """Makes the context current for a `with` block.

        Calls in the block are allowed while other streams are under capture, and do not disturb
        these.
        """
        driver = self.driver
        other = driver.get("cuCtxGetCurrent", "CUcontext") != self.handle
        if other:
            driver.call("cuCtxPushCurrent_v2", self.handle)
        mode = ffi.new("CUstreamCaptureMode *", RELAXED)
        driver.call("cuThreadExchangeStreamCaptureMode", mode)
        try:
            yield driver
        finally:
            driver.result("cuThreadExchangeStreamCaptureMode", mode)
            if other:
                driver.result("cuCtxPopCurrent_v2", ffi.new("CUcontext *"))

    def give_back(self, owner: object, call: str, *arguments: Any) -> weakref.finalize[Any, Any]:
        """Makes a call in this context when `owner` is collected, or at the latest when Python
        exits.
        """
        return weakref.finalize(owner, self._give_back, os.getpid(), call, *arguments)

    def _give_back(self, process: int, call: str, *arguments: Any) -> None:
        with contextlib.suppress(Error):
            if process == os.getpid():
                with self.use():
                    self.driver.result(call, *arguments)

    @property
    def loaded(self) -> list[Module]:
        """The modules of this package that are loaded in the context, the last one first."""
        known = sorted(self.modules.valuerefs(), key=lambda ref: ref.key, reverse=True)
        return [module for module in (ref() for ref in known) if module is not None]

    def check_no_capture(self, what: str) -> None:
        """Raises Error while a StreamCapture is active, because the call `what` would end it."""
        if self.captured:
            raise Error(f"can't {what} while a stream is captured: end the capture first")


def _release(process: int, driver: Driver, device: int) -> None:
    if process == os.getpid():
        driver.result("cuDevicePrimaryCtxRelease_v2", device)


class Device:
    """A device and its primary context.

    The context is kept as long as anything that was made in it.

    Args:
        ordinal: The number of the device, from 0.
        driver: The driver. Default: `graph.driver()`.

    Raises:
        Error: The driver has no such device.
        MissingDriverError: No driver can be loaded.
        DriverError: The driver cannot be initialised.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> device.name
        'ttanalyze simulator'
        >>> memory = tt.graph.DeviceBuffer.of(b"abc", device)
        >>> device.synchronize()
        >>> memory.read().tobytes()
        b'abc'
    """

    def __init__(self, ordinal: int = 0, driver: Driver | None = None) -> None:
        found = driver or default_driver()
        ordinal = whole(ordinal, "device", -MOST)
        if not 0 <= ordinal < found.devices:
            raise Error(f"no device {ordinal}: the driver has {found.devices}")
        device = found.get("cuDeviceGet", "CUdevice", ordinal)
        with found.lock:
            self._set(found, found.get("cuDevicePrimaryCtxRetain", "CUcontext", device), ordinal)
            if self.context.retained:
                _release(os.getpid(), found, device)
            else:
                self.context.retained = True
                weakref.finalize(self.context, _release, os.getpid(), found, device)

    @staticmethod
    def default(driver: Driver | None = None) -> Device:
        """Returns the first device: always the same object, which lives until Python exits.

        Args:
            driver: The driver. Default: `graph.driver()`.
        """
        return _default(driver or default_driver())

    def _set(self, driver: Driver, handle: Any, ordinal: int) -> None:
        key = int(ffi.cast("uintptr_t", handle))
        with driver.lock:
            context = driver.contexts.get(key)
            if context is None:
                context = driver.contexts[key] = Context(driver, handle)
        self.context: Context = context
        self.driver = driver
        self.ordinal = ordinal
        self.modules: list[Module] = []  # which stay loaded as long as this is used

    @classmethod
    def current(cls, driver: Driver | None = None) -> Device:
        """Returns the device with the context that is current in this thread.

        The context belongs to the library that made it, such as PyTorch or CuPy.

        Args:
            driver: The driver. Default: `graph.driver()`.

        Raises:
            Error: No context is current in this thread.
        """
        found = driver or default_driver()
        handle = found.get("cuCtxGetCurrent", "CUcontext")
        if handle == ffi.NULL:
            raise Error("no context is current in this thread: Device(0) takes the primary one")
        return cls._of(found, handle)

    @classmethod
    def of_stream(cls, stream: Any, driver: Driver | None = None) -> Device:
        """Returns the device with the context of a stream.

        Args:
            stream: A Stream, a CUstream as an int, or a stream of PyTorch, CuPy or Numba.
            driver: The driver. Default: `graph.driver()`.
        """
        if isinstance(stream, Stream):
            return stream.device
        found = driver or default_driver()
        out, handle = ffi.new("CUcontext *"), ffi.cast("CUstream", stream_handle(stream))
        none = found.get("cuCtxGetCurrent", "CUcontext") == ffi.NULL  # then the driver says nothing
        with cls.default(found).use() if none else contextlib.nullcontext():
            found.call("cuStreamGetCtx", handle, out)
        return cls._of(found, out[0])

    @classmethod
    def _of(cls, driver: Driver, handle: Any) -> Device:
        made = cls.__new__(cls)
        made._set(driver, handle, 0)
        with made.use():
            made.ordinal = int(driver.get("cuCtxGetDevice", "CUdevice"))
        return made

    def __repr__(self) -> str:
        return f"<Device {self.ordinal}: {self.name}>"

    @functools.cached_property
    def name(self) -> str:
        """The name of the device."""
        out = ffi.new("char[]", 256)
        handle = self.driver.get("cuDeviceGet", "CUdevice", self.ordinal)
        self.driver.call("cuDeviceGetName", out, 256, handle)
        return str(ffi.string(out).decode(errors="replace"))

    def use(self) -> contextlib.AbstractContextManager[Driver]:
        """Makes the context current in this thread for a `with` block."""
        return self.context.use()

    @once_property
    def stream(self) -> Stream:
        """The stream for work without a given stream."""
        return Stream(self)

    @once_property
    def copies(self) -> Stream:
        """The stream for copies from and to the host. It is never captured."""
        return Stream(self)

    def synchronize(self) -> None:
        """Waits for all work in the context.

        Raises:
            Error: A StreamCapture is active.
            DriverError: Work in the context failed.
        """
        self.context.check_no_capture("wait for a device")
        with self.use() as driver:
            driver.call("cuCtxSynchronize")


@once
def _default(driver: Driver) -> Device:
    return Device(0, driver)


@checked
class Stream:
    """A stream that does not wait for the default stream.

    Args:
        device: The device. Default: the first one.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> stream = tt.graph.Stream(device)
        >>> stream.synchronize()
        >>> stream.close()
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device.default()
        with self.device.use() as driver:
            made = driver.get("cuStreamCreate", "CUstream", NON_BLOCKING)
        self.handle = int(ffi.cast("uintptr_t", made))
        self._destroy = self.device.context.give_back(self, "cuStreamDestroy_v2", made)

    def __repr__(self) -> str:
        return f"<Stream {self.handle:#x}>"

    @property
    def cuda_stream(self) -> int:
        """The CUstream as an int; PyTorch streams have the same attribute."""
        return stream_handle(self)

    def synchronize(self) -> None:
        """Waits for all work in the stream.

        Raises:
            DriverError: Work in the stream failed.
        """
        with self.device.use() as driver:
            driver.call("cuStreamSynchronize", ffi.cast("CUstream", stream_handle(self)))

    def close(self) -> None:
        """Destroys the stream when its work is done. Garbage collection does the same."""
        self._destroy()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stream_handle(stream: Any) -> int:
    """Returns the CUstream of a stream as an int.

    The stream may be ours, an int, or one of PyTorch, CuPy or Numba. Raises Error for any other
    object, and EndedError for a closed stream.
    """
    if isinstance(stream, Stream):
        if not stream._destroy.alive:
            raise EndedError("the stream was closed")
        return stream.handle
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise Error(f"{stream!r} is not a stream; give a Stream, a CUstream as an int, or PyTorch's")
