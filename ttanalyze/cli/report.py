"""The options of `ttanalyze report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    QuietOption,
    RunArgument,
    as_json,
    check_output,
    print_text,
    progress_bar,
    write_file,
)

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze report run1\n"
    "  ttanalyze report run1 --against run2 -o where-they-part.html"
)
def report(
    run: RunArgument,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN2", help="Show as well where this run parts from the first."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
    json: Annotated[bool, typer.Option("--json", help="Say where it is as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Make one web page of a run: calls, memory and its changes over time, kernels, allocations.

    The page needs nothing but a browser: no server, no network. Making it needs the extra
    [report].
    """
    from ttanalyze.format import open_run
    from ttanalyze.output import text
    from ttanalyze.verbs.report import report as page

    check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with progress_bar("looking", quiet) as progress:
        made = page(opened, other, progress)
    write_file(out, made)
    size = len(made.encode())
    print_text(as_json({"page": str(out), "bytes": size}) if json else f"{out}: {text.size(size)}")
