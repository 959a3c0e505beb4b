"""numpy dtypes, constants and names of the format, from interpose/include/format.h through cffi.

Sizes, offsets and values come from the header, so nothing is written down twice.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttanalyze._format import ffi

Array = np.ndarray[Any, np.dtype[Any]]


def constant(name: str) -> int:
    """Returns the value of a #define of the header."""
    return int(ffi.integer_const(name))


@functools.cache
def enum(name: str) -> dict[str, int]:
    """Returns the enumerators of `enum tt_NAME` with their values, ascending."""
    members: dict[str, int] = ffi.typeof(f"enum tt_{name}").relements
    return dict(sorted(members.items(), key=lambda item: item[1]))


@functools.cache
def names(name: str, prefix: str) -> list[str]:
    """Returns the names for users of an enumeration by value, "" for unused values.

    TT_TRIGGER_KERNEL_BEFORE with the prefix TT_TRIGGER_ becomes "kernel-before".
    """
    members = enum(name)
    out = [""] * (max(members.values()) + 1)
    for member, value in members.items():
        out[value] = member.removeprefix(prefix).lower().replace("_", "-")
    return out


@functools.cache
def dtype(struct: str, ffi: Any = ffi) -> np.dtype[Any]:
    """Returns the little-endian numpy dtype of `struct tt_STRUCT`. ffi: declares the struct."""
    fields = ffi.typeof(f"struct tt_{struct}").fields
    described = [(name, _field(field.type)) for name, field in fields]
    out = np.dtype(
        {
            "names": [name for name, _ in described],
            "formats": [kind for _, kind in described],
            "offsets": [field.offset for _, field in fields],
            "itemsize": ffi.sizeof(f"struct tt_{struct}"),
        }
    )
    return out


def _field(ctype: Any) -> Any:
    if ctype.kind == "array":
        return (_field(ctype.item), (ctype.length,))
    return f"<{'u' if ctype.cname.startswith('u') else 'i'}{ffi.sizeof(ctype)}"


VERSION = constant("TT_FORMAT_VERSION")
BLOCK_SIZE = constant("TT_BLOCK_SIZE")
HEADER_SIZE = constant("TT_FILE_HEADER_SIZE")
DATA_LANES = np.uint32(constant("TT_DATA_LANES"))
NO_ID = constant("TT_NO_ID")
NO_CALL = constant("TT_NO_CALL")
NO_EPOCH = constant("TT_NO_EPOCH")
NO_SEGMENT = constant("TT_NO_SEGMENT")
MAGIC = b"TTRUN\r\n\x1a"

HEADER = dtype("file_header")
EVENT = dtype("event")
ACTIVITY = dtype("activity")
REGION = dtype("region")
EPOCH = dtype("epoch")
DIGEST = dtype("digest")
BLOCK = dtype("block")
FUNCTION = dtype("function")
MODULE = dtype("module")
FRAME = dtype("frame")
LABEL = dtype("label")
GRAPH_RECORD = dtype("graph_record")
LAUNCH = dtype("launch")
SETTING = dtype("setting")
LAUNCH_ATTRIBUTE = dtype("launch_attribute")
VIEW = dtype("view")
GRAPH_EDGE = dtype("graph_edge")
TRACED = dtype("traced")
TENSOR_MAP = dtype("tensor_map")
TRACE_CHUNK = dtype("trace_chunk")
TRACE_RECORD = dtype("trace_record")

EVENT_KINDS = names("event_kind", "TT_EVENT_")
REGION_KINDS = names("region_kind", "TT_REGION_")
TRIGGERS = names("trigger", "TT_TRIGGER_")
MODULE_KINDS = names("module_kind", "TT_MODULE_")
MISSING = names("missing", "TT_MISSING_")
SETTING_KINDS = names("setting_kind", "TT_SETTING_")
VIEW_KINDS = names("view_kind", "TT_VIEW_")
TRACE_KINDS = names("trace_kind", "TT_TRACE_")
REFUSED_TRACES = names("trace_refused", "TT_REFUSED_")
FRAME_KINDS = names("frame_kind", "TT_FRAME_")
EPOCH_FLAGS = {
    name: constant(f"TT_EPOCHF_{name.upper()}")
    for name in ("full", "touched", "loose", "refused", "dropped", "gap")
}
CAPTURED = constant("TT_REGIONF_CAPTURED")
UNSTABLE = constant("TT_REGIONF_UNSTABLE")
GUARDED = constant("TT_REGIONF_GUARDED")
FULL = EPOCH_FLAGS["full"]
TOUCHED = EPOCH_FLAGS["touched"]
REFUSED = EPOCH_FLAGS["refused"]
DROPPED = EPOCH_FLAGS["dropped"]
LOOSE = EPOCH_FLAGS["loose"]
GAP = EPOCH_FLAGS["gap"]


def pointer(array: Array, kind: str | None = None) -> Any:
    """Returns a pointer to the items of a contiguous array of numpy, for functions of the library.

    kind: what to point to. Default: the unsigned integers that the array has.
    """
    return ffi.cast(f"{kind or f'uint{8 * array.itemsize}_t'} *", array.ctypes.data)


def reads_some(flags: Array) -> Array:
    """Returns which epochs read only some regions, from their flags."""
    return np.asarray(flags & (TOUCHED | FULL) == TOUCHED)


def blocks_of(size: int) -> int:
    """Returns the number of blocks of a region of `size` bytes."""
    return -(-size // BLOCK_SIZE)


def whole(records: Array) -> Array:
    """Returns records as items without fields. numpy copies these ten times as fast."""
    return records.view((np.void, records.itemsize))


def take(records: Array, which: Array | slice) -> Array:
    """Returns records[which], with the speed of `whole`."""
    return whole(records)[which].view(records.dtype)


def joined(parts: Sequence[Array]) -> Array:
    """Returns the concatenation of one or more arrays of records."""
    return np.concatenate([whole(part) for part in parts]).view(parts[0].dtype)


def distinct(values: Array) -> Array:
    """Returns the unique values, ascending. It is faster than numpy for millions of few values."""
    ordered = np.sort(values, kind="stable")  # which merges what is sorted already
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]])
