"""The paths of the native libraries of this package."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from ttanalyze._format import ffi
from ttanalyze.errors import Error

__all__ = ["shim", "simulator"]

STATIC_RUNTIME = "libttstatic.so"  # beside the simulator: for programs that contain a CUDA runtime


def library_folder() -> Path:
    """Returns the folder of the native libraries. The variable TT_LIB names another folder."""
    chosen = os.environ.get("TT_LIB")
    return Path(chosen).absolute() if chosen else Path(__file__).resolve().parent.parent / "lib"


def shim() -> Path:
    """Returns the path of the recorder, for LD_PRELOAD.

    Raises:
        Error: The package was not built.

    Example:
        >>> tt.paths.shim().name
        'libttshim.so'
    """
    return _built(library_folder() / "libttshim.so")


def simulator() -> Path:
    """Returns the folder of the simulator's libcuda.so.1, for LD_LIBRARY_PATH.

    Raises:
        Error: The package was not built.

    Example:
        >>> tt.paths.simulator().name
        'sim'
    """
    return _built(library_folder() / "sim" / "libcuda.so.1").parent


def loader() -> Path:
    """Returns the path of the library that the toolkit loads.

    Raises:
        Error: The package was not built.
    """
    return _built(library_folder() / "libttload.so")


def demo() -> Path:
    """Returns the folder of the programs that `demo` records.

    Raises:
        Error: The package was not built.
    """
    return _built(library_folder() / "demo" / "vecadd").parent


@functools.cache
def toolkit() -> Any:
    """Loads the library of the toolkit, with the functions that _format declares.

    Raises:
        Error: The library cannot be loaded.
    """
    path = loader()
    try:
        return ffi.dlopen(str(path))
    except OSError as e:
        raise Error(f"{path}: cannot be loaded: {e}") from None


def _built(path: Path) -> Path:
    if not path.is_file():
        raise Error(f"{path}: missing; build the project first (make build, or pip install .)")
    return path
