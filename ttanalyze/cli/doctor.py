"""The options of `ttanalyze doctor`."""

from __future__ import annotations

from typer import Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()


@verbs.command(epilog="\b\nExample:\n  ttanalyze doctor")
def doctor(json: common.JsonOption = False) -> int:
    """Say whether this machine is fit for recording, and what to do where it is not.

    Exit status 0: fit, on a GPU or on the simulator; 2: not fit.
    """
    from ttanalyze.verbs.doctor.checks import doctor as examine
    from ttanalyze.verbs.doctor.checks import doctor_text

    with common.progress_bar("looking", False) as progress:
        found = examine(progress=progress)
    common.print_text(found.to_json() if json else doctor_text(found, text.colours_wanted(1)))
    return common.SAME if found.fit else common.ERROR
