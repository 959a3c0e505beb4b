"""Memory of a device that this process allocates, and addresses of memory that others did."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import EndedError
from ttanalyze.gpu.validate_args import items, whole


class DeviceBuffer:
    """Memory on a device. size: bytes, at least 1. It is given back by free(), at the end of a
    `with`, or when nothing uses it any more, be it a graph.

    address: where it is. Raises DriverError where there is not enough memory.
    """

    def __init__(self, size: int, device: Device | None = None) -> None:
        self.size = whole(size, "size", 1)
        self.device = device or Device.default()
        with self.device.use() as driver:
            doing = f"allocating {self.size:,} bytes"
            self._address = int(driver.get("cuMemAlloc_v2", "CUdeviceptr", self.size, doing=doing))
        self._free = self.device.context.give_back(self, "cuMemFree_v2", self._address)

    @classmethod
    def of(cls, array: Any, device: Device | None = None) -> DeviceBuffer:
        """A buffer that holds what a numpy array does."""
        values = np.ascontiguousarray(array)
        made = cls(values.nbytes, device)
        made.write(values)
        return made

    def __repr__(self) -> str:
        where = f"at {self._address:#x}" if self._free.alive else "given back"
        return f"<DeviceBuffer of {self.size} bytes, {where}>"

    @property
    def address(self) -> int:
        """Raises EndedError where it was given back."""
        if not self._free.alive:
            raise EndedError("the buffer was given back: free() was called, or its `with` ended")
        return self._address

    def write(self, array: Any, offset: int = 0) -> None:
        """Copies a numpy array, or bytes, to `offset` bytes behind the beginning, and waits for it,
        but for nothing that was submitted before. Raises Error where it does not fit.
        """
        raw = isinstance(array, (bytes, bytearray, memoryview))
        data = np.ascontiguousarray(np.frombuffer(array, "u1") if raw else array)
        items(data.dtype)
        to = self.address + self._checked(offset, data.nbytes)
        if data.nbytes:
            copy_in(self.device, to, data)

    def read(self, dtype: Any = "u1", offset: int = 0, count: int | None = None) -> Array:
        """Waits for all work in the context, and gives `count` items from an offset in bytes on, by
        default all that there are, as a one-dimensional array.
        """
        kind = items(dtype)
        begin = whole(offset, "offset")
        if count is None:
            count = max(0, self.size - begin) // kind.itemsize
        number = whole(count, "count")
        address = self.address + self._checked(begin, number * kind.itemsize)
        out: Array = np.empty(number, kind)
        self.device.synchronize()
        if out.nbytes:
            copy_out(self.device, out, address)
        return out

    def _checked(self, offset: int, size: int) -> int:
        begin = whole(offset, "offset")
        if begin + size > self.size:
            raise Error(f"{size} bytes at {begin} do not lie in a buffer of {self.size} bytes")
        return begin

    def free(self) -> None:
        """Gives the memory back. Graphs that use it must not be launched any more."""
        self._free()

    def __enter__(self) -> DeviceBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """As bytes, for CuPy, PyTorch and Numba."""
        place = (self.address, False)
        return {"shape": (self.size,), "typestr": "|u1", "data": place, "version": 3}


class Pinned:
    """Page-locked memory of the host. array: its bytes, to be used no longer than this."""

    def __init__(self, size: int, device: Device) -> None:
        with device.use() as driver:
            doing = f"allocating {size:,} bytes of the host"
            made = driver.get("cuMemAllocHost_v2", "void *", size, doing=doing)
        self.address = int(ffi.cast("uintptr_t", made))
        self.array: Array = np.frombuffer(ffi.buffer(made, size), "u1")
        self._free = device.context.give_back(self, "cuMemFreeHost", made)


def copy_in(device: Device, address: int, data: Array) -> None:
    """Copies an array to the device, through a stream of its own, and waits for that."""
    stream = ffi.cast("CUstream", device.copies.handle)
    with device.use() as driver:
        source = ffi.from_buffer(data)
        driver.call("cuMemcpyHtoDAsync_v2", address, source, data.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)


def copy_out(device: Device, out: Array, address: int) -> None:
    """Fills an array from the device, likewise."""
    stream = ffi.cast("CUstream", device.copies.handle)
    with device.use() as driver:
        to = ffi.from_buffer(out, require_writable=True)
        driver.call("cuMemcpyDtoHAsync_v2", to, address, out.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)


def address_of(value: Any) -> int | None:
    """Where something that lies on a device is: a DeviceBuffer, or an object of another library
    (__cuda_array_interface__, data_ptr()). None for what is nothing of that kind.
    """
    if isinstance(value, DeviceBuffer):
        return value.address
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    if callable(getattr(value, "data_ptr", None)):
        if getattr(value, "is_cuda", True) is False:
            raise Error("the tensor is in host memory: move it to the device first")
        return int(value.data_ptr())
    return None
