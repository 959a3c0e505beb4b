"""Asks the driver for its devices, in a process of its own.

It runs as a file with the standard library only, and prints one JSON object. If the driver hangs or
crashes, only this process is affected.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from typing import Any

SUCCESS = 0
PATTERN = bytes(range(256)) * 16


def error_name(cuda: Any, result: int) -> str:
    name = ctypes.c_char_p()
    if cuda.cuGetErrorName(result, ctypes.byref(name)) == SUCCESS and name.value:
        return name.value.decode()
    return f"CUDA error {result}"


def library_path() -> str | None:
    """Returns the path of the loaded libcuda.so.1."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            match = re.search(r"(/\S*libcuda\.so\S*)$", line.strip())
            if match:
                return match[1]
    return None


def device(cuda: Any, ordinal: int) -> dict[str, Any]:
    handle = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    cuda.cuDeviceGet(ctypes.byref(handle), ordinal)
    cuda.cuDeviceGetName(name, len(name), handle)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    return {
        "ordinal": ordinal,
        "name": name.value.decode(errors="replace"),
        "memory": memory.value,
        "works": round_trip(cuda, handle),
    }


def round_trip(cuda: Any, handle: Any) -> str:
    """Copies some bytes to the device and back. Returns "yes" or the failing result."""
    context = ctypes.c_void_p()
    address = ctypes.c_uint64()
    back = ctypes.create_string_buffer(len(PATTERN))
    size = ctypes.c_size_t(len(PATTERN))
    steps: list[tuple[str, list[Any]]] = [
        ("cuDevicePrimaryCtxRetain", [ctypes.byref(context), handle]),
        ("cuCtxSetCurrent", [context]),
        ("cuMemAlloc_v2", [ctypes.byref(address), size]),
        ("cuMemcpyHtoD_v2", [address, PATTERN, size]),
        ("cuMemcpyDtoH_v2", [back, address, size]),
        ("cuMemFree_v2", [address]),
        ("cuDevicePrimaryCtxRelease_v2", [handle]),
    ]
    for call, arguments in steps:
        result = getattr(cuda, call)(*arguments)
        if result != SUCCESS:
            return error_name(cuda, result)
    return "yes" if back.raw == PATTERN else "a copy returned other bytes"


def probe() -> dict[str, Any]:
    """Returns path, version, error (None if it works) and devices."""
    out: dict[str, Any] = {"path": None, "version": None, "error": None, "devices": []}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        return {**out, "error": str(e)}
    out["path"] = library_path()
    result = cuda.cuInit(0)
    if result != SUCCESS:
        return {**out, "error": f"cuInit: {error_name(cuda, result)}"}
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    out["version"] = number.value
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    out["devices"] = [device(cuda, i) for i in range(count.value)]
    return out


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
