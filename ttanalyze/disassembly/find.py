"""Finds the instruction tables of a run, or of a file with GPU code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ttanalyze.disassembly import tables
from ttanalyze.disassembly.images import codes
from ttanalyze.disassembly.tables import Table
from ttanalyze.errors import Error
from ttanalyze.format import open_run
from ttanalyze.format.run import Run
from ttanalyze.util.progress import Progress


def find_tables(
    what: Run | str | os.PathLike[str],
    kernel: str | None = None,
    architecture: int = 0,
    progress: Progress = None,
    refused: list[str] | None = None,
) -> Iterator[Table]:
    """Yields instruction tables.

    Args:
        what: A run, or the path of a run, cubin, fatbin, PTX file or program.
        kernel: A regular expression for the kernel name, mangled or demangled. Default: all
            kernels.
        architecture: The architecture, such as 90 for sm_90. Default: that of the run's devices, or
            all in a file.
        progress: Called with the finished and the total number of kernels.
        refused: A list that gets one line per module of a run that cannot be disassembled.

    Raises:
        Error: There are no such kernels, or none can be disassembled.
    """
    if isinstance(what, Run) or Path(what).is_dir():
        run = what if isinstance(what, Run) else open_run(what)
        found = tables.of_run(run, kernel, architecture, progress, refused)
        name = os.fspath(run.path)
    else:
        name = os.fspath(what)
        image = tables.open_image(Path(what))
        code = codes(image, architecture)
        if not code:
            raise Error(f"{name}: neither a run nor code for a GPU (cubin, fatbin, PTX, program)")
        wanted = tables.matcher(kernel)
        found = tables.of_codes(code, image, wanted, architecture, progress=progress)
    some = False
    for table in found:
        some = True
        yield table
    if not some:
        such = "" if kernel is None else f" whose name matches {kernel}"
        kept = " whose code was saved" if isinstance(what, Run) or Path(what).is_dir() else ""
        raise Error(f"{name}: no kernels{such}{kept}")
