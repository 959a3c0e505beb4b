"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ttanalyze.errors import system_error


def replace_in(folder: int, name: str, data: bytes) -> None:
    """Replaces a file in an open directory as a whole, for its owner alone: what a run holds is the
    program's memory. No link is followed. Raises OSError, also where the directory is another
    user's, who could read it.
    """
    draft = f".{name}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as file:
        try:
            if os.fstat(file.fileno()).st_uid != os.fstat(folder).st_uid:
                raise PermissionError(errno.EPERM, "the directory belongs to another user")
            file.write(data)
            file.flush()
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(draft, dir_fd=folder)
            raise


@contextlib.contextmanager
def directory(name: Path | str, below: int | None = None) -> Iterator[int]:
    """A descriptor of a directory, which is no link. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(name, flags, dir_fd=below)
    try:
        yield folder
    finally:
        os.close(folder)


Opener = Callable[[str, int], int]


def private(path: str | Path, flags: int) -> int:
    """For `open`: a file that is made is for its owner alone."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def replacing(path: Path, opener: Opener | None = None) -> Iterator[BinaryIO]:
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
            with open(draft, "wb", opener=opener) as file:
                yield file
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as e:
        raise system_error(path, e) from None
