"""Warp syncs of which the compiler left a NOP, because it found the warp to meet there.

Ways of tracing have no records of these. An access in the same basic block is executed by the same
lanes, so its records tell when a warp met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.race.exact.model import NO_ADDRESS, Access, Operation, Sync

SIZE = 16  # bytes of an instruction
BY_REGISTER = {"BRX", "BRXU", "JMX", "JMXU"}  # they may lead to any place
Anchors = Mapping[int, tuple[int, bool]]  # by NOP: an access, and whether the NOP follows it


def left_over(operation: Operation) -> bool:
    """Returns whether an instruction is what is left of a warp sync."""
    return operation.sync == Sync.WARP and operation.text == "NOP"


def anchors(rows: Sequence[Mapping[str, Any]], operations: Mapping[int, Operation]) -> Anchors:
    """Returns for each of these NOPs an access of its basic block, if there is one.

    Args:
        rows: The instruction table of a kernel.
        operations: What its instructions do, by number.
    """
    if BY_REGISTER & {row["opcode"] for row in rows}:
        return {}
    entries = {row["target"] // SIZE for row in rows if row.get("target") is not None}
    found: dict[int, tuple[int, bool]] = {}
    for nop in (number for number, one in operations.items() if left_over(one)):
        before = _before(nop, entries)
        after = range(nop + 1, len(rows))
        for places, follows in ((before, True), (after, False)):
            access = _access(places, rows, operations, set() if follows else entries)
            if access is not None:
                found[nop] = access, follows
                break
    return found


def _before(nop: int, entries: set[int]) -> list[int]:
    """Returns the instructions before one back to the last that is branched to."""
    first = max((entry for entry in entries if entry <= nop), default=0)
    return [*range(nop - 1, first - 1, -1)]


def _access(
    places: Iterable[int],
    rows: Sequence[Mapping[str, Any]],
    operations: Mapping[int, Operation],
    entries: set[int],
) -> int | None:
    """Returns the first access that all lanes at the NOP execute, within its basic block."""
    for place in places:
        one = operations[place]
        branches = rows[place]["category"] == "branch" and rows[place]["opcode"] != "BSSY"
        waits = one.sync != Sync.NONE and not left_over(one)
        if place in entries or branches or waits or rows[place]["opcode"] == "BSYNC":
            return None
        if one.access != Access.NONE and not one.copy and rows[place]["predicate"] is None:
            return place
    return None


def insert(columns: Mapping[str, Array], found: Anchors) -> dict[str, Array]:
    """Returns columns of records with a record for each time that a warp met at a NOP."""
    at, numbers, of = [], [], []
    for nop, (access, follows) in found.items():
        records = np.flatnonzero(columns["instruction"] == access)
        at.append(records + follows)
        of.append(records)
        numbers.append(np.full(len(records), nop))
    if not at:
        return dict(columns)
    places, source = np.concatenate(at), np.concatenate(of)
    same: dict[str, Any] = {
        "instruction": np.concatenate(numbers),
        "base": 0,
        "stride": 0,
        "row": NO_ADDRESS,
    }
    return {
        name: np.insert(column, places, same.get(name, column[source]))
        for name, column in columns.items()
    }
