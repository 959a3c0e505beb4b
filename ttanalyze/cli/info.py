"""The options of `ttanalyze info`."""

from __future__ import annotations

from typer import Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()


@verbs.command(epilog="\b\nExample:\n  ttanalyze info run1")
def info(
    run: common.RunArgument,
    rank: common.RanksOption = None,
    max_memory: common.MaxMemoryOption = None,
    json: common.JsonOption = False,
) -> None:
    """Summarise a run on one screen."""
    common.limit_memory(max_memory)
    from ttanalyze.format import open_run
    from ttanalyze.verbs.info import info as summarise
    from ttanalyze.verbs.info.show import info_text

    summary = summarise(open_run(run, common.parse_ranks(rank)))
    common.print_text(
        common.as_json(summary) if json else info_text(summary, text.colours_wanted(1))
    )
