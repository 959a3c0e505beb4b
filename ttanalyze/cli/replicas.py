"""The options of `ttanalyze replicas`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

EXAMPLES = """\b
Examples:
  Record digests of the state that the ranks of a training have, and compare them:
    ttanalyze record -o ddp --contents none --regions named --epoch nvtx:^step -- torchrun train.py
    ttanalyze replicas ddp
  Only some ranks, every place that differs, as JSON:
    ttanalyze replicas ddp --rank 0,4-7 --all --json
"""


@verbs.command(epilog=EXAMPLES)
def replicas(
    run: common.RunArgument,
    rank: common.RanksOption = None,
    every: bool = Option(
        False, "--all", help="Describe all places that differ, not only those of the first epoch."
    ),
    out: common.ReportOption = None,
    cluster: common.ClusterOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Find memory that all ranks should hold alike, and where a rank first differs.

    Parameters and optimizer state of data-parallel training are equal on all ranks. Memory counts
    as such once it was: with one content if the program named its tensors, else with three. Names
    the step, the tensor, the rank that most others differ from, and the calls between; with
    contents also the element. Exit status 0: nothing differs; 1: something does; 2: nothing could
    be compared.
    """
    from ttanalyze.format.run import open_run
    from ttanalyze.verbs.replicas import replicas as compare
    from ttanalyze.verbs.replicas.show import replicas_text

    chosen = common.parse_ranks(rank)
    common.check_output(out)
    with common.progress_bar("comparing", quiet) as progress:
        report = compare(open_run(run), chosen, every=every, progress=progress, cluster=cluster)
    if out is not None:
        common.write_file(out, report.to_json() + "\n")
    shown = report.to_json()
    if not json:
        shown = replicas_text(report, text.colours_wanted(1), common.screen_width())
    common.print_text(shown)
    return common.SAME if report.same else common.DIFFERS
