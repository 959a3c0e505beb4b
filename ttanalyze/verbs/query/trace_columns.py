"""The columns of an instruction trace's records.

A column of lists has a numpy array per row, with an item per lane where the record has one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.disassembly.decode import parsed
from ttanalyze.format.columns import categories
from ttanalyze.format.layout import Array
from ttanalyze.records.members import Place, hexadecimal, text, whole
from ttanalyze.traces.instructions import category
from ttanalyze.traces.native import TYPE_NAMES, Batch, RecordLines
from ttanalyze.traces.reader import Record, cta

LANES = 32
INFO = "tma_transfer_info"
AXES = ("cta_x", "cta_y", "cta_z")
WHOLE = {
    "index": "trace_index",
    "launch": "grid_launch_id",
    **{n: n for n in ("timestamp", "warp", "opcode_id", "mem_space", "access_size")},
    **{n: n for n in ("tma_param_size", "trace_index", "grid_launch_id")},
    **{n: n for n in ("active_mask", "clock")},
}
HEXADECIMAL = {"pc": "pc", "context": "ctx", "desc_addr": "desc_addr"}
TEXTS = {"kind": "type", "type": "type", "ipoint": "ipoint"}
LISTS: dict[str, tuple[tuple[int | None, ...], str]] = {  # shapes and types
    "addrs": ((LANES,), "u8"),
    "values": ((LANES, None), "u4"),
    "regs": ((None, LANES), "u4"),
    "regs_indices": ((None,), "u1"),
    "uregs": ((None,), "u4"),
    "uregs_indices": ((None,), "u1"),
    "desc_raw": ((16,), "u8"),
    "cta": ((3,), "u4"),
}
TENSOR_LISTS = ("global_dim", "global_strides", "box_dim", "element_strides")
TMA: dict[str, tuple[tuple[str, ...], str]] = {  # where in the record, and what
    **{f"tma_{n}": ((INFO, n), "bool") for n in ("is_bulk", "is_tensor", "is_prefetch")},
    "tma_is_multicast": ((INFO, "is_multicast"), "bool"),
    **{f"tma_{n}": ((INFO, n), "whole") for n in ("transfer_count", "transfer_size")},
    **{f"tma_{n}": ((INFO, n), "whole") for n in ("byte_count", "multicast_cta_mask")},
    **{f"tma_{n}": ((INFO, n), "text") for n in ("src_memspace", "dst_memspace")},
    "tma_dim": ((INFO, "tensor", "dim"), "whole"),
    "tma_mode": ((INFO, "tensor", "mode"), "text"),
    "tma_coords": ((INFO, "tensor", "coords"), "i8"),
    **{
        f"tma_{n}": ((INFO, "tensor", n), "whole")
        for n in ("intended_transfer_count", "oob_transfer_count")
    },
    **{
        f"tma_{n}": ((INFO, "tensor", "tiled", n), "whole")
        for n in ("data_type_id", "rank", "interleave_id", "swizzle_id")
    },
    **{
        f"tma_{n}": ((INFO, "tensor", "tiled", n), "text")
        for n in ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill")
    },
    "tma_global_address": ((INFO, "tensor", "tiled", "global_address"), "hexadecimal"),
    **{f"tma_{n}": ((INFO, "tensor", "tiled", n), "u8") for n in TENSOR_LISTS},
}
OF_INSTRUCTIONS = ("sass", "opcode", "mnemonic", "category", "binary")
OF_KERNELS = ("kernel", "checksum", "kernel_name", "kernel_checksum", "demangled", "short")
RECORDED = (
    *("index", "timestamp", "kind", "launch", "kernel", "checksum", *AXES, "warp"),
    *("opcode_id", "pc", "ipoint", "mem_space", "is_load", "access_size"),
    *("addrs", "values", "regs", "regs_indices", "uregs", "uregs_indices"),
)
WORKED_OUT = (
    *("demangled", "short", *OF_INSTRUCTIONS, "line", "context", "cta", "type"),
    *("trace_index", "grid_launch_id", "kernel_name", "kernel_checksum"),
    *("desc_addr", "desc_raw", "tma_param_size", *TMA),
    *("active_mask", "clock"),
)
OF_GROUPS = (
    *("ipoint", "mem_space", "is_load", "access_size", "regs_indices", "uregs_indices"),
)  # the same for all records of an instruction
PAYLOADS = ("addrs", "values", "regs", "uregs")
Maker = Callable[[Record], Any]


class Rows:
    """The rows of a piece, column by column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._makers = {column: _maker(column) for column in columns}
        self._columns: dict[str, list[Any]] = {column: [] for column in columns}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, record: Record) -> None:
        self._count += 1
        for column, (make, _) in self._makers.items():
            self._columns[column].append(make(record))

    def frame(self) -> pd.DataFrame:
        """Returns the rows that were added since the last call."""
        made = {column: COLUMNS[self._makers[column][1]](v) for column, v in self._columns.items()}
        frame: pd.DataFrame = pd.DataFrame(made, index=range(self._count))
        self._columns = {column: [] for column in self._columns}
        self._count = 0
        return frame


def columns_of(batch: Batch, columns: Sequence[str], lines: RecordLines) -> dict[str, Any] | None:
    """Returns columns of the records of a run at once, None if one is that of a tensor copy.

    What instructions and kernels say is looked up once for each instruction.
    """
    which, different = pd.factorize(batch.records.heads["instruction"])
    place = Place(lines, batch.line)
    said = [Record(place, {"opcode_id": n}, batch.kernel) for n in different.tolist()]
    made: dict[str, Any] = {}
    groups, alike = batch.alike() if {*columns} & {*OF_GROUPS, *PAYLOADS} else (None, [])
    for column in columns:
        if groups is not None and column in OF_GROUPS:
            make, kind = _maker(column)
            made[column] = COLUMNS[kind]([make(record) for record in alike]).take(groups)
        elif groups is not None and column in PAYLOADS:
            made[column] = batch.payload(column, groups, alike)
        elif column in ("kind", "type"):
            codes, kinds = pd.factorize(batch.records.kinds)
            made[column] = categories(codes, [TYPE_NAMES[kind] for kind in kinds.tolist()])
        elif column in (*OF_INSTRUCTIONS, *OF_KERNELS):
            make = _maker(column)[0]
            codes, names = pd.factorize(np.array([make(record) for record in said], "object"))
            made[column] = categories(codes[which], list(names))
        else:
            numbers = batch.numbers(column)
            if numbers is None:
                return None
            missing = numbers == 0 if column == "clock" else np.zeros(len(numbers), bool)
            made[column] = pd.arrays.IntegerArray(numbers.astype("i8"), missing)
    return made


def _maker(column: str) -> tuple[Maker, str]:
    """Returns what takes the value of a column from a record, and the kind of the column."""
    if column in AXES:
        axis = AXES.index(column)
        return (lambda record: cta(record)[axis]), "whole"
    if column == "line":
        return (lambda record: record.place.number), "whole"
    if column == "process":
        return (lambda record: record.kernel and record.kernel.process), "whole"
    for kind, members in (("whole", WHOLE), ("hexadecimal", HEXADECIMAL), ("text", TEXTS)):
        if column in members:
            return _of(MEMBERS[kind], (members[column],)), kind
    if column == "is_load":
        return _of(_yes_or_no, (column,)), "bool"
    if column in LISTS:
        return (lambda record: _array(record.place, record.members, column, *LISTS[column])), "list"
    if column in TMA:
        path, kind = TMA[column]
        if kind in MEMBERS:
            return _of(MEMBERS[kind], path), kind
        return _of(lambda p, r, m: _array(p, r, m, (None,), kind), path), "list"
    if column in OF_INSTRUCTIONS:
        return (lambda record: _said(column, record)), "text"
    return (lambda record: _of_kernel(column, record)), "text"


def _of(take: Callable[[Place, Mapping[str, Any], str], Any], path: Sequence[str]) -> Maker:
    """Returns a function that takes a member of an object within the record."""
    *outer, last = path

    def make(record: Record) -> Any:
        inner: Any = record.members
        for name in outer:
            inner = inner.get(name)
            if inner is None:
                return None
            if not isinstance(inner, dict):
                raise record.place.error(f"{name}: expected an object")
        return take(record.place, inner, last)

    return make


def _yes_or_no(place: Place, record: Mapping[str, Any], member: str) -> bool | None:
    value = record.get(member)
    if value is not None and not isinstance(value, bool):
        raise place.error(f"{member}: expected true or false")
    return value


def _array(
    place: Place,
    record: Mapping[str, Any],
    member: str,
    shape: tuple[int | None, ...],
    dtype: str,
) -> Array | None:
    """Returns lists of whole numbers as an array. shape: the sizes, None for any."""
    value = record.get(member)
    if value is None:
        return None
    flat = _flat(value, shape)
    limits = np.iinfo(dtype)
    good = flat is not None and {*map(type, flat)} <= {int}
    if not good or (flat and (min(flat) < limits.min or max(flat) > limits.max)):
        sizes = " x ".join("n" if size is None else str(size) for size in shape)
        bits = 8 * limits.dtype.itemsize
        raise place.error(f"{member}: expected {sizes} whole numbers of {bits} bits")
    made = np.array(flat, dtype)
    return made.reshape(len(value), -1) if len(shape) == 2 and value else made


def _flat(value: Any, shape: tuple[int | None, ...]) -> list[Any] | None:
    """Returns the items of lists. None if they do not have this shape."""
    if not isinstance(value, list) or shape[0] not in (None, len(value)):
        return None
    if len(shape) == 1:
        return value
    lengths = {len(row) if isinstance(row, list) else -1 for row in value}
    if -1 in lengths or len(lengths) > 1 or (shape[1] and lengths - {shape[1]}):
        return None
    return list(itertools.chain.from_iterable(value))


MEMBERS: dict[str, Callable[[Place, Mapping[str, Any], str], Any]] = {
    "whole": whole,
    "hexadecimal": hexadecimal,
    "text": text,
    "bool": _yes_or_no,
}


def _said(column: str, record: Record) -> str | None:
    """Returns a value of the instruction, from the record or else from the kernel."""
    if column == "binary":
        return text(record.place, record.instruction(), "binary")
    sass = record.sass()
    if sass is None:
        return None
    return said(sass)[column]


def said(sass: str) -> dict[str, str]:
    """Returns the columns `sass`, `opcode`, `mnemonic` and `category` of an instruction."""
    split = parsed(sass.rstrip("; "))
    made = {name: getattr(split, name) for name in ("sass", "opcode", "mnemonic", "category")}
    if split.opcode.islower():
        made["category"] = category(split.mnemonic, machine=False)
    return made


def _of_kernel(column: str, record: Record) -> str | None:
    kernel = record.kernel
    if kernel is None:
        return None
    if column in ("checksum", "kernel_checksum"):
        return kernel.checksum
    if column == "kernel":
        return kernel.name
    if column == "short":
        return None if kernel.demangled is None else demangle.short(kernel.demangled)
    return kernel.demangled


def texts(values: Sequence[str | None]) -> Any:
    codes, different = pd.factorize(np.array(values, "object"))
    return categories(codes, list(different))


def lists(values: Sequence[Array | None]) -> Any:
    made = np.empty(len(values), "object")
    for row, value in enumerate(values):
        made[row] = value
    return made


def integers(values: Sequence[int | None]) -> Any:
    return pd.array(values, "Int64")


COLUMNS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "whole": integers,
    "hexadecimal": integers,
    "text": texts,
    "bool": lambda values: pd.array(values, "boolean"),
    "list": lists,
}
