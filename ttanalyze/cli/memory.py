"""The options of `ttanalyze memory`."""

from __future__ import annotations

from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    QuietOption,
    RunArgument,
    as_json,
    print_text,
    progress_bar,
    screen_width,
)
from ttanalyze.output import text

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze memory run1\n"
    "  ttanalyze memory run1 --at epoch:12 --top 50\n"
    "  ttanalyze memory run1 --json > memory.json"
)
def memory(
    run: RunArgument,
    at: Annotated[
        str,
        typer.Option(
            metavar="MOMENT",
            help="What to look at closely: peak (default), end, epoch:N or seq:N, a call's number.",
        ),
    ] = "peak",
    process: Annotated[
        int | None, typer.Option(metavar="N", help="Only this process (default: all).")
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="Rows of each table.", min=1)] = 10,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say how much was allocated when, by which calls, and what was never freed."""
    from ttanalyze.format import open_run
    from ttanalyze.verbs.memory import memory as analyse
    from ttanalyze.verbs.memory.show import memory_text, to_object

    opened = open_run(run)
    with progress_bar("reading calls", quiet) as progress:
        found = analyse(opened, at, process, progress)
    if json:
        print_text(as_json(to_object(found, top)))
    else:
        print_text(memory_text(opened, found, top, screen_width(), text.colours_wanted(1)))
