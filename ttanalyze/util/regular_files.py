"""Opens files whose names may come from a stranger's run.

It reads regular files only, and at most their size. A pipe could block forever, a device has no
end, and opening one may have effects.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ttanalyze.errors import Error, system_error, system_errors
from ttanalyze.util.remote import RemoteFile, Url


def open_regular(path: str | os.PathLike[str]) -> int:
    """Opens a regular file and returns its descriptor. Raises Error for anything else."""
    try:
        _check(path, os.stat(path))
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as e:
        raise system_error(path, e) from None
    except ValueError:
        raise Error(f"{os.fspath(path)!r}: not a valid file name") from None
    try:
        _check(path, os.fstat(fd))
    except Error:
        os.close(fd)
        raise
    return fd


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the contents of a regular file of at most `most` bytes. Raises Error for
    anything else.
    """
    if isinstance(path, Url):
        return _read_remote(path, most)
    with system_errors(path), open(open_regular(path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise Error(f"{Path(path)}: larger than {most:,} bytes")
        return file.read(size) or b""


def _read_remote(path: Url, most: int) -> bytes:
    file = RemoteFile(path)
    if file.size > most:
        raise Error(f"{path}: larger than {most:,} bytes")
    out = bytearray(file.size)
    file.into(0, memoryview(out))
    return bytes(out)


def _check(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Error(f"{Path(path)}: not a regular file")
