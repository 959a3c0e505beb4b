"""The terminal browser: shows epochs, regions and memory of a run."""

from __future__ import annotations

import os

from ttanalyze.errors import Error
from ttanalyze.format.run import Run, open_run


def tui(
    run: Run,
    process: int = 0,
    epoch: int | None = None,
    region: int | str | None = None,
    offset: int = 0,
    dtype: str = "hex",
    follow: bool = False,
) -> None:
    """Shows a run until the user quits.

    epoch, region (id or label), offset, dtype: where to begin. Default: the last epoch, and a
    region that changed in it, as hexadecimal digits. Raises Error if there is no terminal, no such
    place, or if textual is not installed.

    follow: first show a live view of a recording that still runs. It ends when the program ends.
    """
    if not all(map(os.isatty, range(3))):
        raise Error("tui: standard input, output and error must be a terminal")
    try:
        import textual  # noqa: F401
    except ImportError:
        raise Error("tui needs textual: pip install 'ttanalyze[tui]'") from None
    from ttanalyze.tui.app import Browser
    from ttanalyze.tui.follow import Follow

    ended = ""
    if follow:
        live = Follow(run.path)
        outcome = live.run()
        _check(live.return_code)
        if outcome is None:
            return
        run, ended = open_run(run.path), outcome
    browser = Browser(run, process, epoch, region, offset, dtype, ended)
    browser.run()
    _check(browser.return_code)


def _check(return_code: int | None) -> None:
    if return_code:
        raise Error("tui: ended by the error above")
