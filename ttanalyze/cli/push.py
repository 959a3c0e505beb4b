"""The options of `ttanalyze push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from ttanalyze.cli import common

verbs = Typer()

EXAMPLES = """\b
Examples:
  Upload a run while the program is recorded:
    ttanalyze record -o run1 -- ./app &
    ttanalyze push run1 s3://runs/run1
  What is there now, as for a regular job:
    ttanalyze push run1 gs://runs/run1 --once
  Look at it from elsewhere meanwhile:
    ttanalyze info s3://runs/run1
"""


@verbs.command(epilog=EXAMPLES)
def push(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory on this machine.")],
    url: Annotated[str, Argument(metavar="URL", help="Where to: s3://... or gs://...")],
    every: float = Option(2.0, min=0.1, metavar="SECONDS", help="Time between two looks at RUN."),
    once: bool = Option(False, "--once", help="Upload what is there now, and end."),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Upload a run while it is recorded.

    Ends when the program has ended and all of its run is at the URL. Until then, what is there
    opens up to its last uploaded epoch. An interrupted upload goes on with the same command. A file
    that is removed from RUN is removed there. Needs `pip install 'ttanalyze[remote]'`.
    """
    from ttanalyze.verbs.push import push as upload

    with common.interruptible(), common.progress_bar("pushing", quiet) as progress:
        done = upload(run, url, every=every, follow=not once, progress=progress)
    common.print_text(done.to_json() if json else done.line())
    return common.INTERRUPTED if done.interrupted else common.SAME
