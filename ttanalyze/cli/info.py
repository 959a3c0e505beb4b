"""The options of `ttanalyze info`."""

from __future__ import annotations

import typer

from ttanalyze.cli.common import (
    JsonOption,
    RunArgument,
    as_json,
    print_text,
)
from ttanalyze.output import text

verbs = typer.Typer()


@verbs.command(epilog="\b\nExample:\n  ttanalyze info run1")
def info(run: RunArgument, json: JsonOption = False) -> None:
    """Say what was recorded, on one screen."""
    from ttanalyze.format import open_run
    from ttanalyze.verbs.info import info as summarise
    from ttanalyze.verbs.info import info_text

    summary = summarise(open_run(run))
    print_text(as_json(summary) if json else info_text(summary, text.colours_wanted(1)))
