"""What exported scripts use of cuda-python (cuda.bindings.driver), over ctypes, on the libcuda.so.1
that the library path leads to: `python -m tests.cuda_standin SCRIPT [ARGUMENT…]` runs a script.

Calls give (result, value, …), take numbers for handles and addresses, and structures by attribute,
as cuda-python's do.
"""

from __future__ import annotations

import ctypes
import enum
import runpy
import sys
import types
from pathlib import Path
from typing import Any

LIBRARY = ctypes.CDLL("libcuda.so.1")
U64, SIZE, INT = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int


class Location(ctypes.Structure):
    _fields_ = (("type", INT), ("id", INT))


class CUmemAllocationProp(ctypes.Structure):
    _fields_ = (
        ("type", INT),
        ("requestedHandleTypes", INT),
        ("location", Location),
        ("win32HandleMetaData", ctypes.c_void_p),
        ("allocFlags", ctypes.c_ubyte * 8),
    )


class CUmemAccessDesc(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", INT))


class Value(ctypes.Structure):
    _fields_ = (("raw", ctypes.c_char * 64),)
    _align_ = 8

    @property
    def pad(self) -> bytes:
        return bytes(self)

    @pad.setter
    def pad(self, value: bytes) -> None:
        if len(value) != 64:
            raise ValueError("pad length must be 64")
        ctypes.memmove(ctypes.addressof(self), value, 64)


class CUlaunchAttribute(ctypes.Structure):
    _fields_ = (("id", INT), ("pad", ctypes.c_char * 4), ("value", Value))


class Config(ctypes.Structure):
    _fields_ = (
        *((f"{of}Dim{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "XYZ"),
        ("sharedMemBytes", ctypes.c_uint),
        ("hStream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("numAttrs", ctypes.c_uint),
    )


class CUlaunchConfig(Config):
    attrs: list[CUlaunchAttribute]


class Any32(int):
    """A CUlimit, CUjit_option, …: the names are not needed."""


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NOT_FOUND = 500


def call(name: str, *arguments: Any, outs: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Makes a call whose last arguments but those given are what it gives; they come first."""
    places = [out() for out in outs]
    number = getattr(LIBRARY, name)(*map(ctypes.byref, places), *arguments)
    known = number in Result._value2member_map_
    result = Result(number) if known else Any32(number)
    return (result, *(place.value for place in places))


def reserve(size: int, alignment: int, address: int, flags: int) -> tuple[Any, ...]:
    given = SIZE(size), SIZE(alignment), U64(address), U64(flags)
    return call("cuMemAddressReserve", *given, outs=(U64,))


def load(image: int, count: int, options: list[int], values: list[Any]) -> tuple[Any, ...]:
    assert len(options) == len(values) == count
    numbers = (INT * max(1, count))(*options)
    words = (ctypes.c_void_p * max(1, count))(*values)
    given = ctypes.c_void_p(image), count, numbers, words
    return call("cuModuleLoadDataEx", *given, outs=(ctypes.c_void_p,))


def set_access(address: int, size: int, access: list[Any], count: int) -> tuple[Any, ...]:
    (one,) = access
    return call("cuMemSetAccess", U64(address), SIZE(size), ctypes.byref(one), SIZE(count))


def launch(config: CUlaunchConfig, kernel: int, params: int, extra: int) -> tuple[Any, ...]:
    assert not params and config.numAttrs == len(config.attrs)
    attributes = (CUlaunchAttribute * max(1, config.numAttrs))(*config.attrs)
    config.attributes = ctypes.addressof(attributes)
    words = ctypes.c_void_p(kernel), None, ctypes.c_void_p(extra)
    return call("cuLaunchKernelEx", ctypes.byref(config), *words)


def granularity(prop: Any, option: int) -> tuple[Any, ...]:
    return call("cuMemGetAllocationGranularity", ctypes.byref(prop), option, outs=(SIZE,))


def variable(module: int, name: bytes) -> tuple[Any, ...]:
    return call("cuModuleGetGlobal_v2", ctypes.c_void_p(module), name, outs=(U64, SIZE))


POINTER = ctypes.c_void_p
CALLS: dict[str, Any] = {
    "cuInit": lambda flags: call("cuInit", flags),
    "cuDeviceGet": lambda n: call("cuDeviceGet", n, outs=(INT,)),
    "cuDevicePrimaryCtxRetain": lambda d: call("cuDevicePrimaryCtxRetain", d, outs=(POINTER,)),
    "cuCtxSetCurrent": lambda context: call("cuCtxSetCurrent", POINTER(context)),
    "cuCtxGetLimit": lambda limit: call("cuCtxGetLimit", INT(limit), outs=(SIZE,)),
    "cuCtxSetLimit": lambda limit, value: call("cuCtxSetLimit", INT(limit), SIZE(value)),
    "cuCtxSynchronize": lambda: call("cuCtxSynchronize"),
    "cuMemGetAllocationGranularity": granularity,
    "cuMemAddressReserve": reserve,
    "cuMemAddressFree": lambda at, size: call("cuMemAddressFree", U64(at), SIZE(size)),
    "cuMemCreate": lambda size, prop, flags: call(
        "cuMemCreate", SIZE(size), ctypes.byref(prop), U64(flags), outs=(U64,)
    ),
    "cuMemMap": lambda at, size, offset, memory, flags: call(
        "cuMemMap", U64(at), SIZE(size), SIZE(offset), U64(memory), U64(flags)
    ),
    "cuMemSetAccess": set_access,
    "cuMemsetD8": lambda at, value, n: call("cuMemsetD8_v2", U64(at), value, SIZE(n)),
    "cuMemcpyHtoD": lambda to, at, n: call("cuMemcpyHtoD_v2", U64(to), POINTER(at), SIZE(n)),
    "cuMemcpyDtoH": lambda to, at, n: call("cuMemcpyDtoH_v2", POINTER(to), U64(at), SIZE(n)),
    "cuModuleLoadDataEx": load,
    "cuModuleGetGlobal": variable,
    "cuModuleGetFunction": lambda module, name: call(
        "cuModuleGetFunction", POINTER(module), name, outs=(POINTER,)
    ),
    "cuFuncGetAttribute": lambda n, f: call("cuFuncGetAttribute", INT(n), POINTER(f), outs=(INT,)),
    "cuFuncSetAttribute": lambda f, n, value: call(
        "cuFuncSetAttribute", POINTER(f), INT(n), INT(value)
    ),
    "cuFuncSetCacheConfig": lambda f, n: call("cuFuncSetCacheConfig", POINTER(f), INT(n)),
    "cuEventCreate": lambda flags: call("cuEventCreate", flags, outs=(POINTER,)),
    "cuEventRecord": lambda event, stream: call("cuEventRecord", POINTER(event), POINTER(stream)),
    "cuEventElapsedTime": lambda a, b: call(
        "cuEventElapsedTime", POINTER(a), POINTER(b), outs=(ctypes.c_float,)
    ),
    "cuLaunchKernelEx": launch,
}
NUMBERS = {
    "CUmemAllocationType": {"CU_MEM_ALLOCATION_TYPE_PINNED": 1},
    "CUmemLocationType": {"CU_MEM_LOCATION_TYPE_DEVICE": 1},
    "CUmemAccess_flags": {"CU_MEM_ACCESS_FLAGS_PROT_READWRITE": 3},
    "CUmemAllocationGranularity_flags": {"CU_MEM_ALLOC_GRANULARITY_MINIMUM": 0},
}
PLAIN = ("CUlimit", "CUjit_option", "CUfunction_attribute", "CUfunc_cache", "CUlaunchAttributeID")
STRUCTURES = (CUmemAllocationProp, CUmemAccessDesc, CUlaunchAttribute, CUlaunchConfig)


def install() -> None:
    """Lets `from cuda.bindings import driver` find it."""
    driver = types.ModuleType("cuda.bindings.driver")
    for name, value in CALLS.items():
        setattr(driver, name, value)
    for name, members in NUMBERS.items():
        setattr(driver, name, enum.IntEnum(name, members))
    for structure in STRUCTURES:
        setattr(driver, structure.__name__, structure)
    for name in PLAIN:
        setattr(driver, name, Any32)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    modules = {"cuda": types.ModuleType("cuda"), "cuda.bindings": bindings}
    sys.modules.update(modules | {"cuda.bindings.driver": driver})


if __name__ == "__main__":
    install()
    script = Path(sys.argv[1]).resolve()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
