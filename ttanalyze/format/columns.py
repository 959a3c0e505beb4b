"""Helpers that make columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.format.files import KINDS
from ttanalyze.format.instruction_traces import SUMMARY
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

# Of the columns of a run without processes.
DTYPES = {
    name: dtype[name]
    for dtype in (*(dtype for _, dtype in KINDS.values()), SUMMARY)
    for name in dtype.names or ()
}


def names_of(texts: Sequence[str]) -> Any:
    """Returns texts as a categorical in order of first appearance."""
    numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return categories(np.array([numbers[text] for text in texts], "i4"), list(numbers))


def categories(codes: Array, names: list[str]) -> Any:
    """Returns a categorical of unique names by number; -1 is missing."""
    return pd.Categorical.from_codes(codes, categories=pd.Index(names, dtype="object"))


def concat(parts: Sequence[Array], dtype: Any) -> Array:
    whole = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])
    return whole.astype(dtype, copy=False)


def joined(records: Sequence[Array], field: str) -> Array:
    found = [r[field] for r in records]
    return np.concatenate(found) if found else np.empty(0, DTYPES.get(field, "u4"))


def plain(records: Sequence[Array], *fields: str) -> dict[str, Array]:
    return {field: joined(records, field) for field in fields}


def process_column(processes: Sequence[Process], records: Sequence[Array]) -> Array:
    counts = [len(r) for r in records]
    return np.repeat(np.array([p.index for p in processes], "u4"), counts)


def nullable(values: Array, missing: int) -> Any:
    return masked(values, values == missing)


def masked(values: Array, mask: Array) -> Any:
    return pd.arrays.IntegerArray(values.astype("i8"), mask)


def named(values: Array, names: list[str]) -> Any:
    """Returns a categorical of the values of an enumeration."""
    used = [i for i, name in enumerate(names) if name]
    codes = np.zeros(len(names), "i1")
    codes[used] = np.arange(len(used))
    return categories(codes[values], [names[i] for i in used])


class Texts:
    """The texts of records of several processes as categories in order of first use."""

    def __init__(self, text_of: Callable[[Process, int], str | None]) -> None:
        self._text_of = text_of
        self._categories: dict[str, int] = {}

    def column(self, processes: Sequence[Process], parts: Sequence[Array]) -> Any:
        """Returns a categorical of the numbers of each process, one process after the other."""
        codes = [self._codes(p, values) for p, values in zip(processes, parts, strict=True)]
        return categories(concat(codes, "i4"), list(self._categories))

    def _codes(self, process: Process, values: Array) -> Array:
        which, different = pd.factorize(values)
        codes = np.empty(len(different), "i4")
        for i, value in enumerate(different.tolist()):
            text = self._text_of(process, value)
            codes[i] = (
                -1 if text is None else self._categories.setdefault(text, len(self._categories))
            )
        return codes[which]


def texts_of(
    processes: Sequence[Process],
    parts: Sequence[Array],
    text_of: Callable[[Process, int], str | None],
) -> Any:
    return Texts(text_of).column(processes, parts)


def string_of(process: Process, offset: int) -> str | None:
    return process.strings.get(offset)
