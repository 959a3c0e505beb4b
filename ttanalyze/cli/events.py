"""The options of `ttanalyze events`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    QuietOption,
    RunArgument,
    check_output,
    output_file,
    print_text,
    progress_bar,
    say_what_is_missing,
    screen_width,
)

verbs = typer.Typer()

EVENTS_EXAMPLES = """\b
Examples:
  Every launch, with the stacks that they refer to:
    ttanalyze events run1 -o events.ndjson
  One kernel's, each with the stack of who launched it:
    ttanalyze events run1 --kernel softmax --kernel-events full
  For a spreadsheet, and for a look:
    ttanalyze events run1 --format csv -o events.csv
    ttanalyze events run1 --format table
"""


@verbs.command(epilog=EVENTS_EXAMPLES)
def events(
    run: RunArgument,
    form: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="ndjson (default), json, csv or table."),
    ] = "ndjson",
    kernel: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only launches of kernels with such a name."),
    ] = None,
    kernel_events: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Call stacks once each, and by id (dedup), with each launch (full), or not at all "
            "(nostack); by default what `record` was told.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a record of every kernel launch: which code, how large, by whom.

    Records are of the types kernel_launch, kernel_node (recorded into a graph), graph_launch,
    behind which come the launches of its kernels, and callstack_def, with the members of
    CUTracer's kernel-event files, and more. REGEX is searched in mangled and demangled names.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.events import written

    form = "json" if json else form
    check_output(out)
    opened = open_run(run)
    with progress_bar("reading launches", quiet or (out is None and form != "table")) as progress:
        width = screen_width() if out is None else 0
        parts = written(opened, form, kernel, kernel_events, width, progress)
        if out is not None:
            with output_file(out) as file:
                file.writelines(parts)
    if out is None:
        for part in parts:
            print_text(part.decode(), end="", exact=form == "csv")
    say_what_is_missing()
