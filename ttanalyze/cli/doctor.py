"""The options of `ttanalyze doctor`."""

from __future__ import annotations

import typer

from ttanalyze.cli.common import (
    ERROR,
    SAME,
    JsonOption,
    print_text,
    progress_bar,
)
from ttanalyze.output import text

verbs = typer.Typer()


@verbs.command(epilog="\b\nExample:\n  ttanalyze doctor")
def doctor(json: JsonOption = False) -> int:
    """Say whether this machine is fit for recording, and what to do where it is not.

    Exit status 0: fit, on a GPU or on the simulator; 2: not fit.
    """
    from ttanalyze.verbs.doctor.checks import doctor as examine
    from ttanalyze.verbs.doctor.checks import doctor_text

    with progress_bar("looking", False) as progress:
        found = examine(progress=progress)
    print_text(found.to_json() if json else doctor_text(found, text.colours_wanted(1)))
    return SAME if found.fit else ERROR
