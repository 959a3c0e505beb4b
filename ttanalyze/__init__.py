"""Time travel for GPU memory: open what `ttanalyze record` recorded.

import ttanalyze as tt
run = tt.open("run1")
run.epochs, run.regions, run.events   # DataFrames
run.read(epoch=3, region=0, dtype="f4")
tt.verify.verify(run).same
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttanalyze import verify
    from ttanalyze.errors import Error, FormatError
    from ttanalyze.model import Run
    from ttanalyze.model import open_run as open  # noqa: A004

__version__ = "0.1.0"
__all__ = ["Error", "FormatError", "Run", "open", "verify"]

_PLACES = {
    "FormatError": ("ttanalyze.errors", "FormatError"),
    "Error": ("ttanalyze.errors", "Error"),
    "Run": ("ttanalyze.model", "Run"),
    "open": ("ttanalyze.model", "open_run"),
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that the command line starts without numpy and pandas."""
    from importlib import import_module

    if name == "verify":
        return import_module("ttanalyze.verify")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value
