"""Writes files that are complete or do not exist."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ttanalyze.errors import system_error, system_errors


def replace_in(folder: int, name: str, data: bytes) -> None:
    """Replaces a file in an open directory. Only its owner can read it, because a run holds the
    program's memory.

    Follows no link. Raises OSError, also if the directory belongs to another user, who could read
    the file.
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
    """Opens a directory that is no link and returns its descriptor. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(name, flags, dir_fd=below)
    try:
        yield folder
    finally:
        os.close(folder)


def make_folders(path: Path) -> None:
    """Makes a folder and those above it. Raises Error that names what is no folder."""
    with system_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


Opener = Callable[[str, int], int]


def private(path: str | Path, flags: int) -> int:
    """Opens a file. Only its owner can read a file that this creates."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def replacing(path: Path, opener: Opener | None = None) -> Iterator[BinaryIO]:
    """Opens a file that replaces the existing one when the `with` block ends without an exception.

    Devices and pipes are written directly. Raises Error if the system refuses; BrokenPipeError
    passes through.
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
