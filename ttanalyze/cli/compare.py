"""The options of `ttanalyze compare`."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze compare before.ndjson after.ndjson.zst\n"
    "  ttanalyze compare kernel_trace.ndjson kernel_trace.log --json\n"
    "  ttanalyze compare run1 run2"
)
def compare(
    a: Path = Argument(..., metavar="A", help="An instruction trace: a file or a run."),
    b: Path = Argument(..., metavar="B", help="Another, or the same in another format."),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Compare two instruction traces: of runs, or files of CUTracer (JSON lines, zstd, text).

    Compares the records of each warp in their order: instructions, registers, addresses, values,
    transfers. Shows counts, and the first difference with its line in both files.

    Exit status 0: the same; 1: different; 2: error, or nothing was compared.
    """
    from ttanalyze.verbs.compare import compare as compare_traces
    from ttanalyze.verbs.compare import compare_text, to_object

    with common.progress_bar("comparing", quiet) as progress:
        found = compare_traces(a, b, progress)
    common.print_text(common.as_json(to_object(found)) if json else compare_text(found))
    return common.SAME if found.same else common.DIFFERS
