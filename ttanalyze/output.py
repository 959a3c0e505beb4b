"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ttanalyze.errors import system_error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of what is there once the `with` ends in order.

    Devices and pipes are written to as they are. Raises Error where the system refuses, but lets
    BrokenPipeError through.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = path.resolve()
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with draft.open("wb") as file:
                yield file
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as e:
        raise system_error(path, e) from None
