"""The memory that tensor copies in a trace write to, from the tensor maps that their records have.

A load fills its box in shared memory, without gaps. A store writes the lines of its box that are in
the tensor, each in pieces of one size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttanalyze.format.instruction_traces import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.traces.descriptors import SIZES, box_bytes, encoded
from ttanalyze.verbs.race.exact.model import STRIDED

MODES = ("im2col", "gather", "scatter")  # that write elsewhere, or by other maps


def is_tensor(text: str) -> bool:
    return "tensor" in _words(text)


def is_multicast(text: str) -> bool:
    return "multicast::cluster" in _words(text)


def _words(text: str) -> list[str]:
    return text.split("[", maxsplit=1)[0].strip().split(".")


@dataclass
class Boxes:
    """What the tensor copies of one instruction write to.

    Attributes:
        size: Bytes of each piece.
        pieces: Of each record in the order of the trace, the addresses of its pieces; of loads
            nothing, because other records have their addresses.
        taken: Records that were looked at.
    """

    size: int
    pieces: list[Array] = field(default_factory=list)
    taken: int = 0

    def next(self) -> Array:
        self.taken += 1
        return self.pieces[self.taken - 1]


def boxes(process: Process, index: int, number: int, text: str) -> Boxes | None:
    """Returns what the tensor copies of an instruction write to; None: that is unknown.

    index: in process.traced. text: the instruction.
    """
    words, known = _words(text), process.instruction_trace.tensor_maps
    if any(word.startswith(MODES) for word in words):
        return None
    stores = "bulk_group" in words
    sizes, lines = set(), []
    for records in process.trace_records(index, ["tma"], [number]):
        for map_, copy in zip(records.tensor_maps(), records.tma(), strict=True):
            made = known.get(map_.tobytes())
            if made is None or made["mode"]:
                return None
            sizes.add(box_bytes(encoded(made)))
            if stores:
                lines.append(_lines(made, copy["coordinates"].tolist()))
    if not stores:
        return Boxes(int(sizes.pop() or 0)) if len(sizes) == 1 else None
    unit = math.gcd(*(length for _, length in lines))
    return Boxes(unit, [_pieces(starts, length, unit) for starts, length in lines])


def masks(process: Process, index: int, number: int) -> list[int]:
    """Returns the ranks of the blocks that each copy of an instruction writes to, as bits."""
    found: list[int] = []
    for records in process.trace_records(index, ["tma"], [number]):
        found += records.tma()["blocks"].tolist()
    return found


def _lines(made: Any, first: list[int]) -> tuple[Array, int]:
    """Returns where the lines of a box in its tensor begin, and the length of each, in bytes."""
    element = SIZES.get(encoded(made)["data_type"], 4)
    starts = np.array([int(made["address"])], "i8")
    for i in range(1, int(made["rank"])):
        at = first[i] + np.arange(0, int(made["box"][i]), max(int(made["steps"][i]), 1))
        at = at[(at >= 0) & (at < int(made["sizes"][i]))]
        starts = (starts[:, None] + at * int(made["strides"][i - 1])).ravel()
    low = max(first[0], 0)
    count = max(min(first[0] + int(made["box"][0]), int(made["sizes"][0])) - low, 0)
    return (starts + int(low * element) if count else starts[:0]), int(count * element)


def _pieces(starts: Array, length: int, unit: int) -> Array:
    within = np.arange(0, length, unit) if unit else np.empty(0, "i8")
    out: Array = (starts[:, None] + within).astype("u8").ravel()
    return out


def insert(columns: dict[str, Array], kinds: Array, known: dict[int, Boxes]) -> dict[str, Array]:
    """Returns columns of records with a record for each piece that a known tensor store writes."""
    at = np.flatnonzero((kinds == KIND["tma"]) & np.isin(columns["instruction"], [*known]))
    if not len(at):
        return columns
    found = [known[number].next() for number in columns["instruction"][at].tolist()]
    times = np.ones(len(kinds), "i8")
    times[at] = [len(pieces) for pieces in found]
    index = np.repeat(np.arange(len(kinds)), times)
    columns = {name: column[index] for name, column in columns.items()}
    rows = np.isin(index, at)
    columns["base"][rows] = np.concatenate(found)
    columns["row"][rows] = STRIDED
    columns["stride"][rows] = 0
    return columns
