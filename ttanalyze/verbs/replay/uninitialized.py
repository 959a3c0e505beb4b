"""Finds uninitialised bytes of new allocations. Their old contents are unknown, so other values
there are no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ttanalyze.format import contents
from ttanalyze.format.layout import Array
from ttanalyze.gpu.memory import copy_in, copy_out
from ttanalyze.gpu.rebuild.address_map import Finding, State
from ttanalyze.gpu.rebuild.replay_context import ReplayContext
from ttanalyze.output import text

FULL_OF = (0x00, 0xFF)  # what new memory is, in turn


def settled(
    replay_context: ReplayContext,
    before: State,
    after: State,
    findings: Sequence[Finding],
    again: Callable[[], None],
) -> tuple[Sequence[Finding], list[str]]:
    """Returns the findings without uninitialised bytes of new allocations, and a remark for each
    region.

    A byte is uninitialised if it keeps its value when the work is repeated on other contents. Its
    recorded value is then taken. If the memory lies where a freed region was, it has that region's
    contents. again: repeats the work after memory was restored.
    """
    rows = [_row(replay_context, one) for one in findings if one.new and not one.same]
    if not rows:
        return findings, []
    process, addresses, notes = replay_context.process, replay_context.addresses, []
    now = {row: np.empty(int(process.regions.size[row]), "u1") for row in rows}
    uninitialized = {row: np.ones(len(data), bool) for row, data in now.items()}
    for value in FULL_OF:
        addresses.restore(before, value)
        found = {row: _read(replay_context, row, np.empty_like(data)) for row, data in now.items()}
        again()
        replay_context.device.synchronize()
        for row, data in now.items():
            uninitialized[row] &= _read(replay_context, row, data) == found[row]
    for row, data in now.items():
        recorded = np.empty_like(data)
        contents.read_blocks(process, after.records[row], recorded)
        count = int(np.count_nonzero(uninitialized[row]))
        copy_in(
            replay_context.device, addresses.now(row), np.where(uninitialized[row], recorded, data)
        )
        if count:
            some = text.count(count, "uninitialised byte")
            region = int(process.regions.id[row])
            notes.append(f"region {region}: {some}: assumed to be as recorded")
    return addresses.compare(after, before), notes


def _row(replay_context: ReplayContext, one: Finding) -> int:
    return int(replay_context.process.regions.rows(np.array([one.region]))[0])


def _read(replay_context: ReplayContext, row: int, out: Array) -> Array:
    copy_out(replay_context.device, out, replay_context.addresses.now(row))
    return out
