"""Where the package keeps its native libraries."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from ttanalyze._format import ffi
from ttanalyze.errors import Error


def library_folder() -> Path:
    """The folder of the native libraries; TT_LIB names another one, such as a sanitizer build."""
    chosen = os.environ.get("TT_LIB")
    return Path(chosen).absolute() if chosen else Path(__file__).resolve().parent.parent / "lib"


def shim() -> Path:
    """The library that LD_PRELOAD takes. Raises Error where the package was not built."""
    return _built(library_folder() / "libttshim.so")


def simulator() -> Path:
    """The folder that LD_LIBRARY_PATH takes, with the simulator's libcuda.so.1 in it."""
    return _built(library_folder() / "sim" / "libcuda.so.1").parent


def loader() -> Path:
    """The library that the toolkit itself loads."""
    return _built(library_folder() / "libttload.so")


@functools.cache
def toolkit() -> Any:
    """What _format declares of that library. Raises Error where it can't be loaded."""
    path = loader()
    try:
        return ffi.dlopen(str(path))
    except OSError as e:
        raise Error(f"{path}: cannot be loaded: {e}") from None


def _built(path: Path) -> Path:
    if not path.is_file():
        raise Error(f"{path}: missing; build the project first (make build, or pip install .)")
    return path
