"""Disassembles kernels into tables of instructions."""

from __future__ import annotations

import os

import pandas as pd

from ttanalyze.disassembly.find import find_tables
from ttanalyze.format.run import Run
from ttanalyze.verbs.sass import show

__all__ = ["sass"]


def sass(
    what: Run | str | os.PathLike[str], kernel: str | None = None, architecture: int = 0
) -> pd.DataFrame:
    """Returns the instructions of kernels as a table.

    Args:
        what: A run, or the path of a run, cubin, fatbin, PTX file or program.
        kernel: A regular expression for the kernel name, mangled or demangled. Default: all
            kernels.
        architecture: The architecture, such as 90 for sm_90. Default: that of the run's devices, or
            all in a file.

    Returns:
        One row per instruction, kernel after kernel, with the members of schemas/instruction.json
        as columns.

    Raises:
        Error: There are no such kernels, or they cannot be disassembled.

    Example:
        >>> table = tt.sass(tt.open("work"), "add")
        >>> table[table["category"] == "store"][["opcode", "mnemonic"]].values.tolist()
        [['STG', 'STG.E']]
    """
    return show.frame(find_tables(what, kernel, architecture))
