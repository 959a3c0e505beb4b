"""Names writes of the host to memory that a copy still has to read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttanalyze.core.order import Event, plain
from ttanalyze.core.reach import READS, Reach, Uses
from ttanalyze.core.unordered import Unordered
from ttanalyze.errors import Error
from ttanalyze.format.contents import block_records
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check.difference import call_text
from ttanalyze.verbs.check.findings import CONFIRMED, POSSIBLE, Finding
from ttanalyze.verbs.check.naming import call_of, memory_of, memory_text

KIND_OF_FAULT = "host write after read"


def finding(
    check: str, process: Process, found: Unordered, uses: Uses, command: list[str]
) -> Finding:
    """Returns the finding for a copy, and a write of the host before the copy was complete.

    Args:
        check: The name of the check.
        process: The process.
        found: The copy and the write.
        uses: What kernels do through their parameters.
        command: The command that shows more.
    """
    copy, change = found.first.call.event, found.second.call.event
    call, region = call_of(process, copy.seq), int(process.regions.id[found.row])
    memory = memory_of(process, region, found.low, found.high - found.low, change.seq)
    epoch, brought = _first_epoch(process, change.seq), False
    if epoch is not None:
        brought = _brought(process, epoch, copy, change, uses)
    missing = f"the host does not wait for stream {copy.stream} after call {copy.seq}"
    summary = (
        f"{call_text(call)} reads {memory_text(memory)} while the host writes there: {missing}."
    )
    if brought:
        size = text.size(change.bytes)
        summary += f" Epoch {epoch} has {size} in the copy's destination that the host wrote later."
    details: dict[str, Any] = {
        "missing": missing,
        "times": found.times,
        "streams": [copy.stream],
        "sure": found.sure,
        "changed_before": change.seq,
        "brought": brought,
    }
    step = None if epoch is None else f"epoch {epoch}"
    certainty = CONFIRMED if brought else POSSIBLE
    return Finding(check, KIND_OF_FAULT, certainty, summary, call, memory, step, command, details)


def _first_epoch(process: Process, seq: int) -> int | None:
    after = np.flatnonzero(process.epochs["seq"] >= seq)
    return int(after[0]) if len(after) else None


def _brought(process: Process, epoch: int, copy: Event, change: Event, uses: Uses) -> bool:
    """Whether the epoch has what the host wrote, in a whole block that only the copy wrote."""
    reach = Reach(process, uses)
    reach.living.go_to(copy.seq)
    address = copy.dst + change.dst - copy.src
    found = reach.living.at(address)
    if found is None:
        return False
    row, base, end = found
    block, begin = divmod(address - base, BLOCK_SIZE)
    if begin or (change.bytes != BLOCK_SIZE and address + change.bytes != end):
        return False
    for event in plain(process.events_between(copy.seq, int(process.epochs["seq"][epoch]))):
        for access in reach.of(event):
            if access.row == row and access.mode != READS and not event.result:
                return False
    try:
        records = block_records(
            process, epoch, int(process.regions.id[row]), True, block, block + 1
        )
    except Error:  # the epoch does not have it
        return False
    low, high, _ = change.block
    return int(records["digest"][0]) == low | high << 32
