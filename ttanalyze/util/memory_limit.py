"""Limits the memory of this process. Arrays that do not fit lie in a temporary file.

The system writes pages of that file to the disk and takes them back when memory is short, so they
do not count. All other memory is limited by RLIMIT_DATA: an allocation beyond it fails. It counts
memory that is reserved and never touched, too, such as the stacks of the math library's threads, of
which there is one for each processor. What this process has reserved already does not count here.
"""

from __future__ import annotations

import ctypes
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze._format import ffi
from ttanalyze.errors import Error, system_errors
from ttanalyze.util.libraries import toolkit

LEAST = 256 << 20  # bytes: an interpreter with its libraries takes half of it
ROOM = 4  # the part of the limit that large arrays may take
SET_HANDLER = 304  # PyDataMem_SetHandler in numpy's table of functions, since 1.22
_kept: dict[str, Any] = {}  # of the one limit of this process


def limit_memory(size: int) -> None:
    """Limits the memory of this process to `size` bytes, once.

    Memory of mapped files does not count. Arrays of 1 MiB and more beyond a quarter of `size` go to
    a temporary file in $TMPDIR (default: /var/tmp). Threads that begin later keep their arrays in
    memory, and have small stacks. A forked process must not make arrays: its file would be that of
    this process.

    Raises:
        Error: It is less than 256 MiB, or the file cannot be created.
    """
    if size < LEAST:
        raise Error(f"{size >> 20} MiB of memory are too few; give at least {LEAST >> 20} MiB")
    folder = Path(os.environ.get("TMPDIR") or "/var/tmp")
    with system_errors(folder):
        descriptor, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
    handler = toolkit().tt_spill(descriptor, size // ROOM)
    if handler == ffi.NULL:
        raise Error("the memory of this process is limited already")
    _kept["folder"], _kept["size"] = folder, size
    # The default pool of pyarrow, which pandas loads, reserves a gigabyte at once.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _set_handler(int(ffi.cast("uintptr_t", handler)))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = size + _reserved()
    soft = soft if most == resource.RLIM_INFINITY else min(soft, most)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def _reserved() -> int:
    """Returns the bytes of this process that RLIMIT_DATA counts and that are not in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {
        name: int(value.split()[0])
        for name, _, value in (line.partition(":") for line in lines)
        if name in ("VmData", "RssAnon")
    }
    return max(0, kib["VmData"] - kib["RssAnon"]) << 10


def _set_handler(address: int) -> None:
    """Gives numpy the functions by which it allocates arrays in this thread."""
    core: Any = getattr(np, "_core", None) or np.core
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule_of = ctypes.pythonapi.PyCapsule_New
    capsule_of.restype = ctypes.py_object
    capsule_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    _kept["name"] = b"mem_handler"  # the capsule keeps its address
    table = pointer_of(core._multiarray_umath._ARRAY_API, None)
    functions = (ctypes.c_void_p * (SET_HANDLER + 1)).from_address(int(table or 0))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(int(functions[-1] or 0))
    set_handler(capsule_of(address, _kept["name"], None))


def limited() -> bool:
    """Returns whether the memory of this process is limited."""
    return "size" in _kept


def lacks_memory(error: Exception) -> bool:
    """Returns whether the error says that memory is short: for an object, a thread or a library."""
    if isinstance(error, ImportError):
        return limited() and not isinstance(error, ModuleNotFoundError)
    if isinstance(error, RuntimeError):
        return limited() and "start new thread" in str(error)
    return isinstance(error, MemoryError)


def out_of_memory() -> str:
    """Returns the message for an error that lacks_memory."""
    if not limited():
        return "out of memory"
    return (
        f"out of memory: the limit of {_kept['size'] >> 20} MiB is too low, or {_kept['folder']} "
        f"is full; give --max-memory more, or TMPDIR a folder with more space"
    )
