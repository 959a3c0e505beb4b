"""The locks by which tests share GPUs, or have one to themselves."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet


def on_gpus(count: int) -> ParameterSet:
    """A parameter of a test that needs so many GPUs, and has their number."""
    return pytest.param(count, marks=pytest.mark.gpus(count))


def lock_of(gpu: str) -> Path:
    """The lock of the GPU with this name in CUDA_VISIBLE_DEVICES."""
    name = f"ttanalyze-gpu-tests-{os.getuid()}-{gpu.replace('/', '_')}.lock"
    return Path(tempfile.gettempdir()) / name


@contextmanager
def hold_devices(locks: Iterable[Path], exclusive: bool) -> Iterator[None]:
    """Holds devices, shared with other processes or exclusively.

    Every process passes a turnstile before each device. A process that needs the device exclusively
    stays in the turnstile until the others have left, so that no other process enters meanwhile.
    All processes take locks in one order, so none waits for another that waits for it.
    """
    with ExitStack() as held:
        for lock in sorted(locks):
            device = held.enter_context(open(lock, "w"))
            with open(lock.with_suffix(".turnstile"), "w") as turnstile:
                fcntl.flock(turnstile, fcntl.LOCK_EX)
                fcntl.flock(device, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
