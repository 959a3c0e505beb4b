"""The modules of a process and their saved images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.util.regular_files import read_regular

LARGEST = 1 << 32  # bytes of an image

MISSING = {  # why an image is not in the run
    "nothing": "the image of its module was not saved",
    "unseen": "its module was loaded before the recorder could see it",
    "unknown": "the image of its module has an unknown format",
    "unreadable": "the file of its module could not be read",
    "large": "the image of its module was too large to be kept",
    "unused": "the image of its module is saved with its first launch recorded with --replayable, "
    "and there was none",
    "gone": "the image of its module was not in memory any more",
}


def _by_id(records: Array, number: int) -> Any:
    at = int(np.searchsorted(records["id"], number))
    return records[at] if at < len(records) and records["id"][at] == number else None


def function(process: Process, number: int) -> Any:
    """Returns a tt_function by its id, None if it does not exist."""
    return _by_id(process.functions, number)


def of_kernel(process: Process, number: int) -> Any:
    """Returns the tt_module of a kernel by its tt_function.id, None if it is unknown."""
    record = function(process, number)
    return None if record is None else _by_id(process.modules, int(record["module"]))


def by_number(process: Process, number: int) -> Any:
    """Returns a tt_module by its id, None if it does not exist."""
    return _by_id(process.modules, number)


def path_of(process: Process, image: int) -> Path:
    """Returns the path of a saved image by its digest."""
    return process.path / "modules" / f"{image:016x}"


def read(process: Process, image: int) -> bytes:
    """Returns a saved image by its digest.

    Raises FormatError if the file has other contents, and Error if it cannot be read.
    """
    path = path_of(process, image)
    contents = read_regular(path, LARGEST)
    if xxhash.xxh3_64_intdigest(contents) != image:
        raise FormatError(path, 0, "the digest of the image is not its name")
    return contents


def image_for(process: Process, module: Any, what: str) -> bytes:
    """Returns the image of a tt_module for a purpose (`what`).

    Raises Error with the reason if it was not saved, and errors as read() does.
    """
    if module is None or not module["image"]:
        why = "nothing" if module is None else layout.MISSING[int(module["missing"])]
        raise Error(f"{what} can't be loaded: {MISSING[why]}")
    return read(process, int(module["image"]))
