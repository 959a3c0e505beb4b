"""What the kernels of a run do through their parameters, by their PTX or their machine code."""

from __future__ import annotations

import re

from ttanalyze.core.reach import Uses, modes_of, uses_of
from ttanalyze.disassembly import tables
from ttanalyze.disassembly.pointers import pointer_uses
from ttanalyze.errors import Error
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run


def kernel_uses(run: Run, process: Process, refused: list[str]) -> Uses:
    """Returns what kernels of a process do. Machine code is disassembled when it is first needed.

    refused: gets one line per module that cannot be disassembled.
    """
    by_ptx = uses_of(process)
    by_code: dict[str, dict[int, int] | None] | None = None

    def get(function: int) -> dict[int, int] | None:
        nonlocal by_code
        found = by_ptx(function)
        if found is not None:
            return found
        if by_code is None:
            by_code = _by_code(run, process, by_ptx, refused)
        return by_code.get(process.kernel(function) or "")

    return get


def _by_code(
    run: Run, process: Process, by_ptx: Uses, refused: list[str]
) -> dict[str, dict[int, int] | None]:
    """By mangled names, of the kernels without PTX."""
    functions = process.functions
    sizes = {
        process.kernel(number) or "": size
        for number, size in zip(
            functions["id"].tolist(), functions["param_bytes"].tolist(), strict=True
        )
        if by_ptx(number) is None
    }
    out: dict[str, dict[int, int] | None] = {}
    names = "|".join(map(re.escape, sizes))
    try:
        for table in tables.of_run(run, f"^(?:{names})$", refused=refused) if sizes else ():
            if table.kernel_name in sizes:
                uses = pointer_uses(table, sizes[table.kernel_name])
                out[table.kernel_name] = modes_of(uses)
    except Error as e:
        refused.append(str(e))
    return out
