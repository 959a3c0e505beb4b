"""The lock by which tests on a GPU share it, or have it to themselves."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / f"ttanalyze-gpu-tests-{os.getuid()}.lock"


@contextmanager
def hold_device(exclusive: bool, lock: Path = LOCK) -> Iterator[None]:
    """Holds the device, shared with other processes or exclusively.

    Every process passes a turnstile first. A process that needs the device exclusively stays in the
    turnstile until the others have left, so that no other process enters meanwhile.
    """
    with open(lock, "w") as device:
        with open(lock.with_suffix(".turnstile"), "w") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(device, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
