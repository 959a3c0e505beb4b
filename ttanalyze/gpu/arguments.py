"""Converts the arguments of a kernel to the bytes of its parameters."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttanalyze.core import values
from ttanalyze.errors import Error
from ttanalyze.gpu.memory import address_of
from ttanalyze.output import text

FLOATS = {2: "<e", 4: "<f", 8: "<d"}
POINTER = 8
SAY = "give its type, as ('i32', 1), or a numpy scalar"
UNSAID = "this driver does not report the parameters of kernels"


def pack(
    kernel: str, layout: list[tuple[int, int]] | None, args: Sequence[Any]
) -> tuple[bytes, list[Any]]:
    """Returns the bytes of arguments, and the objects that must live while the kernel may run.

    layout: offset and size in bytes of each parameter, None if unknown; then each argument needs a
    type. Raises Error if an argument does not fit.
    """
    if layout is not None and len(args) != len(layout):
        raise Error(f"{kernel} takes {text.count(len(layout), 'argument')}, not {len(args)}")
    out = bytearray()
    for i, value in enumerate(args):
        where = f"argument {i} of {kernel}"
        size = None if layout is None else layout[i][1]
        data, alignment = encode(value, size, where)
        if size is not None and len(data) != size:
            raise Error(f"{where} takes {text.count(size, 'byte')}: {_said(value)} has {len(data)}")
        offset = -(-len(out) // alignment) * alignment if layout is None else layout[i][0]
        out += bytes(offset - len(out)) + data
    return bytes(out), [value for value in args if _lives(value)]


def _lives(value: Any) -> bool:
    return not isinstance(value, (int, float, bytes, np.generic, tuple, type(None)))


def _said(value: Any) -> str:
    return text.printable(repr(value))[:60]


def encode(value: Any, size: int | None, where: str) -> tuple[bytes, int]:
    """Returns the bytes of one argument, and its alignment. size: of the parameter, if known."""
    if value is None:
        return bytes(POINTER), POINTER
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        data = _typed(*value, where)
        return data, min(len(data), 16)
    if isinstance(value, np.generic):
        return value.tobytes(), value.dtype.alignment
    if isinstance(value, (bytes, bytearray, memoryview)):
        if size is None:
            raise Error(f"{where}: {UNSAID}, so that bytes can't be placed: give numbers")
        return bytes(value), 1
    if isinstance(value, bool):
        return struct.pack("<?", value) if size in (None, 1) else _integer(value, size, where), 1
    if isinstance(value, (int, float)):
        if size is None:
            raise Error(f"{where}: {UNSAID}: {SAY}")
        if isinstance(value, float):
            return _float(value, size, where), size
        return _integer(value, size, where), size
    if isinstance(value, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
        return bytes(value), ctypes.alignment(type(value))
    address = address_of(value)
    if address is None:
        what = "numbers, (type, value), bytes, None and device memory"
        raise Error(f"{where} can't be {_said(value)}: expected {what}")
    return struct.pack("<Q", address), POINTER


def _typed(name: str, value: Any, where: str) -> bytes:
    if name in ("ptr", "pointer"):
        name = "u64"
    try:
        kind = values.parse(name)
    except Error as e:
        raise Error(f"{where}: {e}") from None
    if kind.name in ("e4m3", "e5m2"):
        raise Error(f"{where}: give the bits of an {kind.name}, as ('u8', 0x38)")
    try:
        if kind.name == "bf16":
            bits = int.from_bytes(struct.pack("<f", kind.nearest(value)), "little")
            return (bits >> 16).to_bytes(2, "little")
        if kind.kind == "int":
            return int(value).to_bytes(kind.itemsize, "little", signed=kind.name[0] == "i")
        return np.array(value, kind.numpy).tobytes()
    except (OverflowError, ValueError, TypeError):
        raise Error(f"{where}: {_said(value)} is no {kind.name}") from None


def _integer(value: int, size: int, where: str) -> bytes:
    if size not in (1, 2, 4, 8):
        raise Error(f"{where} has {size} bytes, which is no integer: give bytes")
    for signed in (True, False):
        try:
            return int(value).to_bytes(size, "little", signed=signed)
        except OverflowError:
            continue
    raise Error(f"{where}: {value} does not fit into {text.count(size, 'byte')}")


def _float(value: float, size: int, where: str) -> bytes:
    if size not in FLOATS:
        raise Error(f"{where} has {size} bytes, which is no float: {SAY}")
    try:
        return struct.pack(FLOATS[size], value)
    except OverflowError:
        raise Error(f"{where}: {value} does not fit into {text.count(size, 'byte')}") from None
