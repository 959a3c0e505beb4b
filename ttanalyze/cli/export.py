"""The options of `ttanalyze export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    ProcessOption,
    QuietOption,
    RunArgument,
    as_json,
    interruptible,
    print_text,
    progress_bar,
    say,
)
from ttanalyze.errors import Error

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze export run1 --launch 1234 -o bug/\n"
    "  make -C bug && bug/reproduce --times 100\n"
    "  ttanalyze export run1 --kernel layer_norm -o bug/ --python --max-size 20M"
)
def export(
    run: RunArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The folder that is made.")
    ],
    launch: Annotated[
        int | None, typer.Option(metavar="N", help="Which launch, by the number of its call.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="The first launch of a kernel of such a name that can."),
    ] = None,
    python: Annotated[
        bool, typer.Option("--python", help="Also write a script for NVIDIA's cuda-python.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all-memory", help="All memory of the context, not only what the kernel may reach."
        ),
    ] = False,
    max_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Warn where the folder is larger.")
    ] = "25M",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a folder that export made.")
    ] = False,
    process: ProcessOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a recorded launch as a program of its own, fit to be attached to a bug report.

    A short C program and a Makefile, with code, parameters and memory, which builds with a C
    compiler and the driver's library alone, launches, and compares what it leaves. Memory is what
    the kernel may reach: through its parameters and variables, and addresses that lie in memory.
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs import export as module

    try:
        limit = options.parse_size(max_size)
    except Error as e:
        raise Error(f"--max-size {max_size}: {e}") from None
    found = module.find(open_run(run).process(process), launch, kernel)
    with interruptible(), progress_bar("exporting", quiet) as progress:
        made = module.export(
            module.needs(found, everything), out, python=python, force=force, progress=progress
        )
    notes = made.notes(limit)
    if not json:
        for note in notes:
            say(note)
    said = {"run": str(run), **made.as_dict(), "notes": notes}
    print_text(as_json(said) if json else str(made))
