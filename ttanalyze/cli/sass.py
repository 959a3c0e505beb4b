"""The options of `ttanalyze sass`."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option, Typer

from ttanalyze.cli import common

verbs = Typer()

SASS_EXAMPLES = """\b
Examples:
  A recorded kernel, beside its source where it was compiled with -lineinfo:
    ttanalyze sass run1 --kernel softmax
  Where delays may be put:
    ttanalyze sass run1 --kernel softmax --points
  What a program has for an H200, for a spreadsheet:
    ttanalyze sass ./app --arch sm_90 --format csv -o app.csv
  A cubin's instructions, one JSON object each:
    ttanalyze sass kernel.cubin --format ndjson
"""


def _architecture(name: str | None) -> int:
    """sm_90, 90 or 90a; 0 where nothing was asked for."""
    from ttanalyze.errors import Error

    if name is None:
        return 0
    digits = name.removeprefix("sm_").rstrip("af")
    if not digits.isdecimal() or not 50 <= int(digits) < 1000:
        raise Error(f"--arch {name}: an architecture such as sm_90 is expected")
    return int(digits)


@verbs.command(epilog=SASS_EXAMPLES)
def sass(
    what: Path = Argument(
        ..., metavar="RUN", help="A run directory, a cubin, a fatbin, PTX, or a program with code."
    ),
    kernel: str | None = Option(None, metavar="REGEX", help="Only kernels of such a name."),
    arch: str | None = Option(
        None,
        metavar="SM",
        help="What a device of that architecture would take, such as sm_90 (default: the "
        "devices of the run; of files, all there is).",
    ),
    points: bool = Option(False, "--points", help="Only instructions that delays may come before."),
    patterns: str = Option(
        "",
        metavar="LIST",
        help="Which those are: mnemonics such as UTMALDG,SYNCS, or * (default: what `record "
        "--delay` takes).",
    ),
    form: str = Option(
        "text", "--format", metavar="FORMAT", help="text (default), json, csv or ndjson."
    ),
    out: common.OutOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Disassemble kernels: every instruction, what it reads, writes and waits for, its source.

    NVIDIA's nvdisasm does it (pip install 'ttanalyze[sass]', or the CUDA toolkit), once for each
    kernel of a run, which keeps the tables. REGEX is searched in mangled and demangled names.
    """
    from ttanalyze import options
    from ttanalyze.verbs.sass import find_tables, show

    form = "json" if json else form
    if patterns:
        options.check("--patterns", "TT_DELAY_PATTERNS", patterns)
    refused: list[str] = []
    common.check_output(out)
    with (
        common.interruptible(),
        common.progress_bar("disassembling", quiet or out is None) as progress,
    ):
        tables = find_tables(what, kernel, _architecture(arch), progress, refused)
        parts = show.written(tables, form, patterns if points or patterns else None)
        if out is not None:
            with common.output_file(out) as file:
                file.writelines(parts)
        else:
            for part in parts:
                common.print_text(part.decode(), end="", exact=form == "csv")
    for reason in refused:
        common.say(reason)
