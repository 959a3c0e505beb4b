"""The options of `ttanalyze collectives`."""

from __future__ import annotations

from typer import Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

EXAMPLES = """\b
Examples:
  Match the collectives of all ranks, with GPU times:
    ttanalyze record -o ddp --timeline cupti --contents none -- torchrun ... train.py
    ttanalyze collectives ddp
  Compare also what each all-reduce left in memory:
    ttanalyze record -o ddp --contents none --epoch 'nvtx:^ncclAllReduce' -- torchrun ... train.py
    ttanalyze collectives ddp
  List them:
    ttanalyze query ddp --table collectives
"""


@verbs.command(epilog=EXAMPLES)
def collectives(
    run: common.RunArgument,
    rank: common.RanksOption = None,
    out: common.ReportOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Match NCCL's collectives across ranks: mismatches, hangs, stragglers, wrong results.

    Finds collectives that ranks called differently, that not all ranks called, and that did not
    end; says which rank comes last, and by how much; compares the memory that all-reduces left.
    Exit status 0: nothing is wrong; 1: something is; 2: nothing could be matched.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.collectives import collectives as match
    from ttanalyze.verbs.collectives.show import collectives_text

    common.check_output(out)
    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar("matching", quiet) as progress:
        report = match(opened, progress)
    if out is not None:
        common.write_file(out, report.to_json() + "\n")
    shown = report.to_json()
    if not json:
        shown = collectives_text(report, text.colours_wanted(1), common.screen_width())
    common.print_text(shown)
    return common.SAME if report.same else common.DIFFERS
