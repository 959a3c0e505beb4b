"""The options of `ttanalyze shim`."""

from __future__ import annotations

from typer import Typer

from ttanalyze.cli.common import JsonOption, as_json, print_text

verbs = Typer()


@verbs.command(epilog="\b\nExample:\n  LD_PRELOAD=$(ttanalyze shim) TT_OUT=run1 ./vecadd")
def shim(json: JsonOption = False) -> None:
    """Print the path of the recorder, for LD_PRELOAD."""
    from ttanalyze.util import libraries

    path = str(libraries.shim())
    print_text(as_json({"shim": path}) if json else path)
