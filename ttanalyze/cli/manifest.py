"""The options of `ttanalyze manifest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    QuietOption,
    RunArgument,
    check_output,
    print_text,
    progress_bar,
    write_file,
)

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze manifest run1 -o golden.json\n"
    "  ttanalyze verify run2 --manifest golden.json"
)
def manifest(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Print the manifest of a run from its recorded digests."""
    from ttanalyze.format import manifest as manifests
    from ttanalyze.format import open_run

    check_output(out)
    opened = open_run(run)
    with progress_bar("reading digests", quiet) as progress:
        made = manifests.text(opened.manifest(progress))
    if out is None:
        print_text(made, end="")
    else:
        write_file(out, made)
