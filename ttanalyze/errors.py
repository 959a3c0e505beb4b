"""The exceptions of ttanalyze. The message of each is one line; any other exception is a bug."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


class Error(Exception):
    """The base class of all errors of ttanalyze.

    A request cannot be fulfilled or an input is wrong. `str(error)` is one line that names the file
    or the argument and the reason.
    """


class FormatError(Error):
    """A file does not follow its format: a file of a run, a manifest, a delay configuration.

    `str(error)` is "FILE: offset N: REASON", or "FILE: PLACE: REASON" for a JSON document.

    Attributes:
        path: The file, as a string.
        where: The byte offset, or the place within a JSON document.
        reason: The reason, one line.
    """

    def __init__(self, path: str | os.PathLike[str], where: int | str, reason: str) -> None:
        location = f"offset {where}" if isinstance(where, int) else where
        super().__init__(f"{os.fspath(path)}: {location}: {reason}")
        self.path = os.fspath(path)
        self.where = where
        self.reason = reason

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, int | str, str]]:
        """Says how another process makes this error, as pickle asks."""
        return FormatError, (self.path, self.where, self.reason)


class UnreadWarning(UserWarning):
    """A warning: an epoch did not read a region. Its contents are those of an earlier epoch."""


class MissingFileError(Error):
    """A file does not exist."""


def system_error(path: str | os.PathLike[str], error: OSError) -> Error:
    """Returns an OSError as an Error with the message "FILE: REASON"."""
    missing = isinstance(error, FileNotFoundError)
    kind = MissingFileError if missing else Error
    return kind(f"{os.fspath(path)}: {error.strerror or error}")


@contextlib.contextmanager
def system_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises each OSError of the block as the Error that `system_error` returns."""
    try:
        yield
    except OSError as e:
        raise system_error(path, e) from None
