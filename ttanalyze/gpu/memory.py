"""Device memory that this process allocates, page-locked host memory, and copies."""

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
    """Memory on a device.

    It is freed by `free`, at the end of a `with` block, or when nothing uses it, such as a graph.
    CuPy, PyTorch and Numba accept it as an array of bytes.

    Args:
        size: The number of bytes, at least 1.
        device: The device. Default: the first one.

    Raises:
        DriverError: The device has not enough memory.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> memory = tt.graph.DeviceBuffer(8, device)
        >>> memory.write(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
        >>> memory.read("u4")
        array([1, 2], dtype=uint32)
        >>> memory.free()
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
        """Allocates a buffer and copies a numpy array into it.

        Args:
            array: The array.
            device: The device. Default: the first one.
        """
        values = np.ascontiguousarray(array)
        made = cls(values.nbytes, device)
        made.write(values)
        return made

    def __repr__(self) -> str:
        where = f"at {self._address:#x}" if self._free.alive else "given back"
        return f"<DeviceBuffer of {self.size} bytes, {where}>"

    @property
    def address(self) -> int:
        """The address of the first byte. Raises EndedError if the buffer was freed."""
        if not self._free.alive:
            raise EndedError("the buffer was given back: free() was called, or its `with` ended")
        return self._address

    def write(self, array: Any, offset: int = 0) -> None:
        """Copies data into the buffer and waits for the copy.

        It does not wait for work that was submitted before.

        Args:
            array: A numpy array or bytes.
            offset: The offset of the first byte in the buffer.

        Raises:
            Error: The data does not fit.
        """
        raw = isinstance(array, (bytes, bytearray, memoryview))
        data = np.ascontiguousarray(np.frombuffer(array, "u1") if raw else array)
        items(data.dtype)
        to = self.address + self._checked(offset, data.nbytes)
        if data.nbytes:
            copy_in(self.device, to, data)

    def read(self, dtype: Any = "u1", offset: int = 0, count: int | None = None) -> Array:
        """Waits for all work in the context and copies data from the buffer.

        Args:
            dtype: The numpy dtype of the items.
            offset: The offset of the first byte in the buffer.
            count: The number of items. Default: as many as there are behind `offset`.

        Returns:
            A 1-D array.

        Raises:
            Error: The items do not lie in the buffer.
            DriverError: Work in the context failed.
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
        """Frees the memory. Graphs that use it must not be launched any more."""
        self._free()

    def __enter__(self) -> DeviceBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The buffer as an array of bytes, for CuPy, PyTorch and Numba."""
        data = (self.address, False)
        return {"shape": (self.size,), "typestr": "|u1", "data": data, "version": 3}


class Pinned:
    """Page-locked host memory. array: its bytes, valid as long as this object."""

    def __init__(self, size: int, device: Device) -> None:
        with device.use() as driver:
            doing = f"allocating {size:,} bytes of the host"
            made = driver.get("cuMemAllocHost_v2", "void *", size, doing=doing)
        self.address = int(ffi.cast("uintptr_t", made))
        self.array: Array = np.frombuffer(ffi.buffer(made, size), "u1")
        self._free = device.context.give_back(self, "cuMemFreeHost", made)


def copy_in(device: Device, address: int, data: Array) -> None:
    """Copies an array to the device through a stream of its own, and waits for the copy."""
    stream = ffi.cast("CUstream", device.copies.handle)
    with device.use() as driver:
        source = ffi.from_buffer(data)
        driver.call("cuMemcpyHtoDAsync_v2", address, source, data.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)


def copy_out(device: Device, out: Array, address: int) -> None:
    """Fills an array from the device through a stream of its own, and waits for the copy."""
    stream = ffi.cast("CUstream", device.copies.handle)
    with device.use() as driver:
        to = ffi.from_buffer(out, require_writable=True)
        driver.call("cuMemcpyDtoHAsync_v2", to, address, out.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)


def address_of(value: Any) -> int | None:
    """Returns the device address of a DeviceBuffer or of an array of another library, else None.

    Other libraries offer `__cuda_array_interface__` or `data_ptr()`. Raises Error for a tensor in
    host memory.
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
