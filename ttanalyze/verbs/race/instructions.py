"""Guesses the two unordered instructions of a kernel, from one that was delayed.

It goes by the order of the code. For a write it is the next read of such memory before a barrier,
for a read the next write. Any other instruction is replaced by the next read or write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ttanalyze.disassembly.find import find_tables
from ttanalyze.errors import Error
from ttanalyze.format.run import Run
from ttanalyze.verbs.race.report import Instruction, Late
from ttanalyze.verbs.reduce import DelayedInstruction

SHARED, GLOBAL = 1, 2
READS = {
    "LDS": SHARED,
    "LDSM": SHARED,
    "LDG": GLOBAL,
    "LDGSTS": GLOBAL,
    "LD": SHARED | GLOBAL,
    "UTMASTG": SHARED,
    "HGMMA": SHARED,
    "IGMMA": SHARED,
    "QGMMA": SHARED,
    "UTCHMMA": SHARED,
    "UTCQMMA": SHARED,
    "UTCIMMA": SHARED,
}
WRITES = {
    "STS": SHARED,
    "STSM": SHARED,
    "STAS": SHARED,
    "STG": GLOBAL,
    "ST": SHARED | GLOBAL,
    "LDGSTS": SHARED,
    "UBLKCP": SHARED | GLOBAL,
    "UTMALDG": SHARED,
    "UTMASTG": GLOBAL,
    "UTMAREDG": GLOBAL,
}
BOTH = {"ATOMS": SHARED, "ATOMG": GLOBAL, "ATOM": SHARED | GLOBAL, "RED": GLOBAL, "REDG": GLOBAL}
READS |= BOTH
WRITES |= BOTH
BARRIERS = ("BAR", "UCGABAR_WAIT")

Row = dict[str, Any]  # of an instruction table


def opcode(row: Row) -> str:
    """Returns the opcode of an instruction: LDG of `@P0 LDG.E.64 R2, [R4.64]`."""
    words = [word for word in str(row["sass"]).split() if not word.startswith("@")]
    return words[0].partition(".")[0].rstrip(";") if words else ""


def counterpart(rows: Sequence[Row], pc: int) -> Row | None:
    """Returns the instruction that is most likely unordered with the one at pc, None if there is
    none.

    rows: all instructions of the kernel, by address.
    """
    at = next((i for i, row in enumerate(rows) if row["pc"] == pc), None)
    if at is None:
        return None
    names = [opcode(row) for row in rows]
    moved = next((i for i in range(at, len(rows)) if names[i] in READS or names[i] in WRITES), None)
    if moved is None:
        return None
    space = WRITES.get(names[moved], 0)
    wanted = READS if space else WRITES
    space = space or READS[names[moved]]
    # Behind it, up to a barrier; where there is none, as in a loop from the one before.
    behind = [*range(moved + 1, len(rows))]
    before = [*range(moved - 1, -1, -1)]
    for order, to_barrier in ((behind, True), (before, True), (behind, False)):
        for i in order:
            if names[i] in BARRIERS and to_barrier:
                break
            if wanted.get(names[i], 0) & space:
                return rows[i]
    return None


def late(delayed: Iterable[DelayedInstruction], run: Run) -> list[Late]:
    """Returns the delayed instructions and calls, with their likely counterparts."""
    found = []
    tables: dict[str, Sequence[Row]] = {}
    for one in delayed:
        member = one.member
        if one.point.kernel is None:
            numbers = {name: member.get(name) for name in ("stream", "number", "seq", "call")}
            found.append(Late(**numbers, kernel=one.kernel_name, where=member["where"]))
            continue
        checksum, kernel = one.checksum or "", one.kernel_name or ""
        if checksum not in tables:
            tables[checksum] = _rows(run, kernel, checksum)
        row = one.instruction or {"pc": member["pc"], "sass": member["sass"]}
        other = counterpart(tables[checksum], member["pc"])
        found.append(
            Late(
                instruction=_instruction(kernel, checksum, row),
                other=_instruction(kernel, checksum, other) if other else None,
            )
        )
    return found


def _rows(run: Run, kernel: str, checksum: str) -> Sequence[Row]:
    """Returns the instruction table of a kernel, [] if there is none."""
    try:
        for table in find_tables(run, f"^{re.escape(kernel)}$"):
            if checksum in (table.code_checksum, table.kernel_checksum):
                return table.instructions
    except Error:
        pass
    return []


def _instruction(kernel: str, checksum: str, row: Row) -> Instruction:
    line = f"{Path(row['file']).name}:{row['line']}" if row.get("file") else None
    return Instruction(kernel, checksum, int(row["pc"]), str(row["sass"]).rstrip(" ;"), line)
