"""The options of `ttanalyze sass`."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option, Typer

from ttanalyze.cli import common

verbs = Typer()

SASS_EXAMPLES = """\b
Examples:
  Show a recorded kernel, with its source if it was compiled with -lineinfo:
    ttanalyze sass run1 --kernel softmax
  Show the instructions that can be delayed:
    ttanalyze sass run1 --kernel softmax --points
  Write the code of a program for an H200 as CSV:
    ttanalyze sass ./app --arch sm_90 --format csv -o app.csv
  Print the instructions of a cubin, one JSON object each:
    ttanalyze sass kernel.cubin --format ndjson
"""


def _architecture(name: str | None) -> int:
    """Parses sm_90, 90 or 90a. 0 without a name."""
    from ttanalyze.errors import Error

    if name is None:
        return 0
    digits = name.removeprefix("sm_").rstrip("af")
    if not digits.isdecimal() or not 50 <= int(digits) < 1000:
        raise Error(f"--arch {name}: not an architecture; example: sm_90")
    return int(digits)


@verbs.command(epilog=SASS_EXAMPLES)
def sass(
    what: Path = Argument(
        ..., metavar="RUN", help="A run directory, a cubin, a fatbin, PTX, or a CUDA program."
    ),
    kernel: str | None = Option(None, metavar="REGEX", help="Only kernels whose name matches."),
    arch: str | None = Option(
        None,
        metavar="SM",
        help="The code that a GPU of this architecture uses, for example sm_90 (default: the "
        "GPUs of the run; all code of a file).",
    ),
    points: bool = Option(False, "--points", help="Only instructions that can be delayed."),
    patterns: str = Option(
        "",
        metavar="LIST",
        help="Mnemonics of the instructions to delay, for example UTMALDG,SYNCS; *: all "
        "(default: those of `record --delay`).",
    ),
    form: str = Option(
        "text", "--format", metavar="FORMAT", help="text (default), json, csv or ndjson."
    ),
    out: common.OutOption = None,
    rank: common.RanksOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Disassemble kernels: each instruction, its inputs and outputs, its waits, its source line.

    The verb needs NVIDIA's nvdisasm (pip install 'ttanalyze[sass]', or the CUDA toolkit). It keeps
    the tables in the run. REGEX matches any part of a mangled or demangled name.
    """
    from ttanalyze import options
    from ttanalyze.disassembly.find import find_tables
    from ttanalyze.format import open_run
    from ttanalyze.verbs.sass import show

    form = "json" if json else form
    if patterns:
        options.check("--patterns", "delay_patterns", patterns)
    refused: list[str] = []
    common.check_output(out)
    with (
        common.interruptible(),
        common.progress_bar("disassembling", quiet or out is None) as progress,
    ):
        of = what if rank is None else open_run(what, common.parse_ranks(rank))
        tables = find_tables(of, kernel, _architecture(arch), progress, refused)
        parts = show.written(tables, form, patterns if points or patterns else None)
        if out is not None:
            with common.output_file(out) as file:
                file.writelines(parts)
        else:
            for part in parts:
                common.print_text(part.decode(), end="", exact=form == "csv")
    for reason in refused:
        common.say(reason)
