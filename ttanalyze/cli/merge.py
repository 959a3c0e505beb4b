"""The options of `ttanalyze merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.cli.record_options import ForceOption

verbs = Typer()

EXAMPLES = """\b
Examples:
  Join what two nodes recorded, then compare all ranks:
    ttanalyze merge node0.tt node1.tt -o job.tt
    ttanalyze replicas job.tt
"""


@verbs.command(epilog=EXAMPLES)
def merge(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Run directories on this machine.")],
    out: Annotated[Path, Option("--out", "-o", metavar="DIR", help="The new run directory.")],
    force: ForceOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Join run directories of one job, such as one per node, into one.

    Record files become hard links where that is possible, else copies; the runs stay as they are.
    Processes are numbered anew, by rank. Runs that have the same process, or the same rank of one
    job, are refused, as is a process that still runs.
    """
    from ttanalyze.format.run import open_run
    from ttanalyze.verbs.merge import merge as join

    opened = [open_run(run) for run in runs]
    with common.progress_bar("merging", quiet) as progress:
        done = join(opened, out, force=force, progress=progress)
    common.print_text(done.to_json() if json else done.line())
    return common.SAME
