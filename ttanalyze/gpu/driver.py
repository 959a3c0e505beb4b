"""The driver's library: loads it when it is needed, and checks the result of each call.

Invariant: importing this package loads no driver; making a Driver does.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from typing import Any, ClassVar

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu.once_init import once
from ttanalyze.util import libraries
from ttanalyze.util.arguments import checked

NAME = "libcuda.so.1"
FLAGS = ffi.RTLD_NOW | ffi.RTLD_NODELETE  # it has threads, and work to do when the process ends
INVALIDATED, UPDATE_FAILURE = 901, 910
ADVICE = {
    46: "another process has it for itself",
    100: "there is none, or CUDA_VISIBLE_DEVICES hides it; --sim, graph.simulator() need none",
    209: "the image has no code for this device",
    218: "the PTX is not valid, or newer than this driver",
    222: "the PTX is newer than this driver",
    700: "a kernel accessed unmapped memory; the context can't be used any more",
    715: "a kernel's code is for another device; the context can't be used any more",
    719: "a kernel failed; the context can't be used any more",
    900: "not while a stream is captured",
    901: "a call that is not allowed during it ended the capture: begin again without that call",
    905: "work of the captured stream and of another one that is not part of the capture",
    906: "it would have used the default stream, which waits for the captured one",
    908: "the capture has to end in the thread that began it",
}


class CudaError(Error):
    """The base class of errors of this module, with the names of oxicuda's errors.

    Attributes:
        NotInitialized: `MissingDriverError`.
        StreamCaptureUnmatched: `EndedError`.
    """

    NotInitialized: ClassVar[type[CudaError]]
    StreamCaptureUnmatched: ClassVar[type[CudaError]]


class DriverError(CudaError):
    """The driver refused a call.

    Attributes:
        call: The name of the call.
        result: The CUresult.
        name: The name of the CUresult.
    """

    def __init__(self, call: str, result: int, name: str, text: str, doing: str = "") -> None:
        what = f"{doing}: {call}" if doing else call
        advice = f" ({ADVICE[result]})" if result in ADVICE else ""
        super().__init__(f"{what}: {name}: {text}{advice}")
        self.call = call
        self.result = result
        self.name = name


class MissingDriverError(CudaError):
    """No driver can be loaded, or the driver lacks a call."""


class EndedError(CudaError):
    """An object was used after it had ended or had been freed."""


CudaError.NotInitialized = MissingDriverError
CudaError.StreamCaptureUnmatched = EndedError


@checked
class Driver:
    """A loaded and initialised driver library.

    Args:
        path: A file, or a name that the dynamic loader finds.

    Raises:
        MissingDriverError: The library cannot be loaded.
        DriverError: The driver cannot be initialised, such as without a GPU.

    Example:
        >>> driver = tt.graph.simulator()
        >>> driver.devices, driver.has("cuGraphLaunch")
        (1, True)
        >>> driver.get("cuDeviceGetCount", "int")
        1
    """

    def __init__(self, path: str | os.PathLike[str] = NAME) -> None:
        self.path = os.fspath(path)
        try:
            self._library: Any = ffi.dlopen(self.path, FLAGS)
        except OSError as e:
            raise MissingDriverError(
                f"no driver: {e}; install NVIDIA's, or take the simulator: --sim, graph.simulator()"
            ) from None
        # Of device.py: the contexts that are in use here, by their address, and for making them.
        self.contexts: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.lock = threading.RLock()
        self.call("cuInit", 0)

    def __repr__(self) -> str:
        return f"<Driver {self.path!r}, version {self.version}>"

    @functools.cached_property
    def version(self) -> int:
        """The version of the driver API: 13000 is CUDA 13.0."""
        return int(self.get("cuDriverGetVersion", "int"))

    @property
    def devices(self) -> int:
        """The number of devices."""
        return int(self.get("cuDeviceGetCount", "int"))

    def has(self, call: str) -> bool:
        """Returns whether the library has a call.

        Args:
            call: The name of the call, such as "cuMemAlloc_v2".
        """
        return hasattr(self._library, call)

    def function(self, call: str) -> Any:
        """Returns a function of the library.

        Args:
            call: The name of the call.

        Raises:
            MissingDriverError: The library lacks the call.
        """
        try:
            return getattr(self._library, call)
        except AttributeError:
            raise MissingDriverError(f"{self.path} has no {call}: a newer one is needed") from None

    def result(self, call: str, *arguments: Any) -> int:
        """Makes a call and returns its CUresult.

        Args:
            call: The name of the call.
            arguments: The arguments, as cffi takes them.

        Raises:
            Error: A number does not fit its parameter.
            MissingDriverError: The library lacks the call.
        """
        try:
            return int(self.function(call)(*arguments))
        except OverflowError as e:
            raise Error(f"{call}: {e}") from None

    def call(self, call: str, *arguments: Any, doing: str = "") -> None:
        """Makes a call that must succeed.

        Args:
            call: The name of the call.
            arguments: The arguments, as cffi takes them.
            doing: The purpose of the call, for the error message.

        Raises:
            DriverError: The driver refuses the call.
        """
        result = self.result(call, *arguments)
        if result:
            raise self.error(call, result, doing)

    def get(self, call: str, kind: str, *arguments: Any, doing: str = "") -> Any:
        """Makes a call whose first parameter is an output, and returns this output.

        Args:
            call: The name of the call.
            kind: The C type of the output, such as "CUcontext".
            arguments: The other arguments, as cffi takes them.
            doing: The purpose of the call, for the error message.

        Raises:
            DriverError: The driver refuses the call.
        """
        out = ffi.new(f"{kind} *")
        self.call(call, out, *arguments, doing=doing)
        return out[0]

    def error(self, call: str, result: int, doing: str = "") -> DriverError:
        """Returns the error for a CUresult.

        Args:
            call: The name of the call.
            result: The CUresult.
            doing: The purpose of the call, for the error message.
        """
        name, text = (self._text(what, result) for what in ("cuGetErrorName", "cuGetErrorString"))
        return DriverError(call, result, name, text, doing)

    def _text(self, call: str, result: int) -> str:
        out = ffi.new("char **")
        known = self.result(call, result, out) == 0 and out[0] != ffi.NULL
        return str(ffi.string(out[0]).decode()) if known else f"error {result}"


@once
def driver() -> Driver:
    """Loads the driver of this machine: libcuda.so.1.

    It is the simulator if LD_LIBRARY_PATH names its folder, as `ttanalyze record --sim` does.

    Raises:
        MissingDriverError: No driver can be loaded.
        DriverError: The driver cannot be initialised.
    """
    return Driver()


@once
def simulator() -> Driver:
    """Loads the simulator, whatever LD_LIBRARY_PATH says.

    Raises:
        Error: The simulator was not built.

    Example:
        >>> tt.graph.simulator().devices
        1
    """
    # Both libraries call themselves by one name, and who asks for that gets the first one loaded.
    with contextlib.suppress(OSError):
        ffi.dlopen(NAME, FLAGS)
    return Driver(libraries.simulator() / NAME)
