"""The machine code of kernels as tables of instructions."""

from __future__ import annotations

import os

import pandas as pd

from ttanalyze.disassembly.find import find_tables
from ttanalyze.disassembly.tables import Table, read
from ttanalyze.format.run import Run
from ttanalyze.verbs.sass import show

__all__ = ["Table", "find_tables", "instructions", "read"]


def instructions(
    what: Run | str | os.PathLike[str], kernel: str | None = None, architecture: int = 0
) -> pd.DataFrame:
    """The same as a DataFrame with a row for each instruction, kernel after kernel."""
    return show.frame(find_tables(what, kernel, architecture))
