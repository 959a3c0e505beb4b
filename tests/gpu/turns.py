"""Tests on a GPU run side by side, but for those that need it alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / f"ttanalyze-gpu-tests-{os.getuid()}.lock"


@contextmanager
def turn(alone: bool, lock: Path = LOCK) -> Iterator[None]:
    """With the device, to itself or shared with other processes that take turns by this lock.

    All come through a turnstile. Who needs the device alone stands in it until those inside have
    left, so that nobody else enters and keeps the device busy.
    """
    with open(lock, "w") as device:
        with open(lock.with_suffix(".turnstile"), "w") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(device, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
