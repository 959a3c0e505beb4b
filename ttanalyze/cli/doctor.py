"""The options of `ttanalyze doctor`."""

from __future__ import annotations

from typer import Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()


@verbs.command(epilog="\b\nExample:\n  ttanalyze doctor")
def doctor(json: common.JsonOption = False) -> int:
    """Check whether this machine can record, and say what to do if it cannot.

    Exit status 0: it can record on a GPU or on the simulator; 2: it cannot.
    """
    from ttanalyze.verbs.doctor.checks import doctor as examine
    from ttanalyze.verbs.doctor.checks import doctor_text

    with common.progress_bar("checking", False) as progress:
        found = examine(progress=progress)
    common.print_text(found.to_json() if json else doctor_text(found, text.colours_wanted(1)))
    return common.SAME if found.fit else common.ERROR
