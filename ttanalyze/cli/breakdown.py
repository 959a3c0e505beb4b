"""The options of `ttanalyze breakdown`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

EXAMPLES = """\b
Examples:
  Record the GPU times of a training, and see where they went:
    ttanalyze record -o ddp --timeline cupti --contents none -- torchrun ... train.py
    ttanalyze breakdown ddp
  Steps are the NVTX ranges or epochs with other names; only some ranks:
    ttanalyze breakdown ddp --step '^train/' --rank 0-3
  All steps as JSON:
    ttanalyze breakdown ddp --json
"""


@verbs.command(epilog=EXAMPLES)
def breakdown(
    run: common.RunArgument,
    step: str | None = Option(
        None,
        metavar="REGEX",
        help="NVTX ranges, or else epochs, that are steps (default: names such as step 12).",
    ),
    top: int = Option(20, metavar="N", help="Number of steps to print, the slowest.", min=1),
    rank: common.RanksOption = None,
    cluster: common.ClusterOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Show where the GPU time of each rank and step went.

    Compute, communication and its exposed part, copies, idle because the host was late, idle
    because the GPU waited. The definitions are those of Holistic Trace Analysis. Needs a run with
    --timeline cupti.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.breakdown import breakdown as find
    from ttanalyze.verbs.breakdown.show import breakdown_text

    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar("adding up", quiet) as progress:
        found = find(opened, step, progress, cluster)
    colour, width = text.colours_wanted(1), common.screen_width()
    common.print_text(found.to_json() if json else breakdown_text(found, top, colour, width))
