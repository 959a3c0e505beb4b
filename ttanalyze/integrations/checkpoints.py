"""Reads saved checkpoints, without PyTorch, and compares their tensors.

Files of torch.save are zip archives with a pickle and the bytes of each storage; those of
safetensors begin with JSON. Pickles are read with a list of allowed names, so nothing in a file
runs.
"""

from __future__ import annotations

import collections
import itertools
import json
import pickle
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from ttanalyze.core.values.compare import compare_values
from ttanalyze.core.values.types import SAFETENSORS, TYPES, parse
from ttanalyze.errors import Error, system_errors
from ttanalyze.format.layout import Array
from ttanalyze.format.run import Run
from ttanalyze.integrations.memory_names import TYPES as FRAMEWORK_TYPES

STORAGES = {  # torch.FloatStorage and so on
    "Float": "f32",
    "Double": "f64",
    "Half": "f16",
    "BFloat16": "bf16",
    "Bool": "bool",
    "Long": "i64",
    "Int": "i32",
    "Short": "i16",
    "Char": "i8",
    "Byte": "u8",
    "ComplexFloat": "c64",
    "ComplexDouble": "c128",
    "Untyped": "u8",
}
SAVED_TYPES = {saved: name for name, saved in SAFETENSORS.items()}
KINDS = {"different": "Int64", "first": "Int64", "max_abs": "Float64", "max_rel": "Float64"}
NOT_SAVED = "not a checkpoint of torch.save (PyTorch 1.6 or newer) or safetensors"
DAMAGED = (ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, OverflowError)


@dataclass(frozen=True)
class Saved:
    """A tensor of a checkpoint. raw: its bytes, with the last dimension running fastest."""

    type: str
    shape: tuple[int, ...]
    raw: Array


def load(source: Any) -> dict[str, Saved]:
    """Returns the tensors of a checkpoint by their path: a file, or a state dictionary.

    Raises:
        Error: The file cannot be read.
    """
    if isinstance(source, Mapping):
        return dict(_tensors(source, ""))
    path = Path(source)
    with system_errors(path), path.open("rb") as file:
        try:
            found = _load_zip(file) if zipfile.is_zipfile(file) else _load_safetensors(file)
        except (*DAMAGED, pickle.UnpicklingError, zipfile.BadZipFile) as e:
            raise Error(f"{path}: {NOT_SAVED}: {e}") from None
    if not found:
        raise Error(f"{path}: no tensors in this checkpoint")
    return found


def _load_safetensors(file: BinaryIO) -> dict[str, Saved]:
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > 100_000_000:
        raise ValueError("its header is too long")
    header = json.loads(file.read(length))
    data = np.frombuffer(file.read(), "u1")
    header.pop("__metadata__", None)
    found = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        found[name] = Saved(SAVED_TYPES[about["dtype"]], tuple(about["shape"]), data[begin:end])
    return found


def _load_zip(file: BinaryIO) -> dict[str, Saved]:
    with zipfile.ZipFile(file) as archive:
        pickled = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickled) != 1:
            raise ValueError("it has no data.pkl")
        folder = pickled[0].removesuffix("data.pkl")
        with archive.open(pickled[0]) as content:
            return dict(_tensors(_Reader(content, archive, folder).load(), ""))


class _Reader(pickle.Unpickler):
    """Reads a pickle of torch.save. Everything but tensors and containers becomes `_Other`."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(file)
        self._archive, self._folder = archive, folder
        self._read: dict[str, Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return _rebuild
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda data, *_: data
        if module.startswith("torch") and name.endswith("Storage"):
            return STORAGES.get(name.removesuffix("Storage"), "u8")
        if module == "torch":
            return f"torch.{name}"  # a dtype
        return _Other

    def persistent_load(self, pid: Any) -> tuple[str, Array]:
        _, kind, key, *_ = pid
        if key not in self._read:
            content = self._archive.read(f"{self._folder}data/{key}")
            self._read[key] = np.frombuffer(content, "u1")
        return kind, self._read[key]


class _Other:
    """Stands for an object that is not needed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __call__(self, *_: Any) -> _Other:
        return self

    def append(self, _: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _rebuild(
    storage: tuple[str, Array], offset: int, shape: Any, steps: Any, *more: Any
) -> Saved | None:
    """Returns a tensor as torch._utils._rebuild_tensor_v2 and _v3 do. more: a dtype comes third."""
    kind, raw = storage
    if len(more) > 2 and isinstance(more[2], str):
        kind = FRAMEWORK_TYPES.get(more[2].removeprefix("torch."), "")
    if kind not in TYPES:
        return None
    width = parse(kind).itemsize
    last = (
        sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) if 0 not in shape else -1
    )
    if min((offset, *shape, *steps)) < 0 or (offset + last + 1) * width > len(raw):
        raise ValueError("a tensor lies outside of its storage")
    strides = (*(step * width for step in steps), 1)
    items = np.lib.stride_tricks.as_strided(raw[offset * width :], (*shape, width), strides)
    return Saved(kind, tuple(shape), np.ascontiguousarray(items).reshape(-1))


def _tensors(value: Any, path: str) -> Iterator[tuple[str, Saved]]:
    """Yields the tensors in a container with their paths."""
    if isinstance(value, Saved):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            yield from _tensors(item, f"{path}.{key}" if path else str(key))
    elif hasattr(type(value), "dtype"):
        yield from _held(value, path)


def _held(value: Any, path: str) -> Iterator[tuple[str, Saved]]:
    """Yields an array in memory: of PyTorch, numpy, JAX or CuPy."""
    kind = str(value.dtype).removeprefix("torch.")
    kind = FRAMEWORK_TYPES.get(kind, kind)
    if kind not in TYPES:
        return
    shape = tuple(value.shape)
    if hasattr(value, "untyped_storage"):
        flat = value.detach().cpu().contiguous().reshape(-1)
        held = flat.view(sys.modules["torch"].uint8).numpy()
    else:
        held = np.asarray(value.get() if hasattr(value, "get") else value)
    yield path, Saved(kind, shape, np.ascontiguousarray(held).reshape(-1).view("u1"))


def compare(a: Any, b: Any, run: Run | None) -> pd.DataFrame:
    """Compares two checkpoints: see `ttanalyze.torch.checkpoint_diff`."""
    ours, theirs = load(a), load(b)
    found = [_row(name, ours.get(name), theirs.get(name)) for name in {**ours, **theirs}]
    table = pd.DataFrame(found).astype(KINDS)
    if run is not None:
        names = _Names(run)
        for name, row in zip(table["tensor"], table.index, strict=True):
            if table.loc[row, "status"] == "different":
                first, second = names.epochs(name, ours[name], theirs[name])
                table.loc[row, ["epoch_a", "epoch_b"]] = [first, second]
        for column in ("epoch_a", "epoch_b"):
            if column not in table:
                table[column] = None
            table[column] = table[column].astype("Int64")
    return table


def _row(name: str, ours: Saved | None, theirs: Saved | None) -> dict[str, Any]:
    known = ours or theirs
    assert known is not None, "it is in one of them"
    row = {"tensor": name, "type": known.type, "shape": known.shape, "items": _count(known.shape)}
    nothing = {"different": None, "first": None, "max_abs": None, "max_rel": None}
    if ours is None or theirs is None:
        return {**row, "status": "only in b" if ours is None else "only in a", **nothing}
    if (ours.type, ours.shape) != (theirs.type, theirs.shape):
        return {**row, "status": "other type or shape", **nothing}
    found = compare_values(parse(ours.type), ours.raw, theirs.raw)
    return {
        **row,
        "status": "same" if found.same else "different",
        "different": found.count,
        "first": found.first[0] if found.first else None,
        "max_abs": float(found.max_abs),
        "max_rel": float(found.max_rel),
    }


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype="i8"))


class _Names:
    """The tensors of a recording, by name."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._epochs = sorted({int(e) for e in run.epochs["epoch"]})
        self._tensors = {
            epoch: run.tensors(epoch).drop_duplicates("tensor").set_index("tensor")
            for epoch in self._epochs
        }

    def _name(self, path: str) -> str | None:
        """Returns the recorded name: the path of a checkpoint may begin with more."""
        parts = [part for part in path.split(".") if part not in ("module", "_orig_mod")]
        for begin in range(len(parts)):
            name = ".".join(parts[begin:])
            if any(name in table.index for table in self._tensors.values()):
                return name
        return None

    def epochs(self, path: str, ours: Saved, theirs: Saved) -> tuple[int | None, int | None]:
        """Returns the last epoch in which the memory of a tensor is as in a, and the first epoch
        from there on in which it is as in b. None: there is no such epoch.
        """
        name = self._name(path)
        held = {epoch: self._read(name, epoch) for epoch in self._epochs if name is not None}
        first = [epoch for epoch, raw in held.items() if np.array_equal(raw, ours.raw)]
        since = first[-1] if first else -1
        second = (
            epoch
            for epoch, raw in held.items()
            if epoch > since and np.array_equal(raw, theirs.raw)
        )
        return (first[-1] if first else None), next(itertools.chain(second, [None]))

    def _read(self, name: str | None, epoch: int) -> Array:
        table = self._tensors[epoch]
        if name not in table.index:
            return np.empty(0, "u1")
        part = table.loc[name]
        begin = int(part["offset"])
        end = begin + int(part["bytes"])
        try:
            return self._run.read(epoch, int(part["region"]), start=begin, stop=end)
        except Error:  # the contents of the epoch were not kept
            return np.empty(0, "u1")
