"""The errors that a user sees as one line. Everything else that is raised is a bug."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


class Error(Exception):
    """Something is wrong with what was asked for or with what was found; str() is one line."""


class FormatError(Error):
    """A file of a run or a manifest isn't what the format says: "FILE: offset N: REASON"."""

    def __init__(self, path: str | os.PathLike[str], where: int | str, reason: str) -> None:
        """where: a byte offset, or the place within a JSON document."""
        place = f"offset {where}" if isinstance(where, int) else where
        super().__init__(f"{os.fspath(path)}: {place}: {reason}")
        self.path = os.fspath(path)
        self.where = where
        self.reason = reason


class UnreadWarning(UserWarning):
    """Contents are those of an earlier epoch: the one asked for did not read the region."""


class MissingFileError(Error):
    """There is no such file."""


def system_error(path: str | os.PathLike[str], error: OSError) -> Error:
    """An operating system's refusal, as "FILE: REASON"."""
    missing = isinstance(error, FileNotFoundError)
    kind = MissingFileError if missing else Error
    return kind(f"{os.fspath(path)}: {error.strerror or error}")


@contextlib.contextmanager
def system_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within it each OSError is raised as such an Error."""
    try:
        yield
    except OSError as e:
        raise system_error(path, e) from None
