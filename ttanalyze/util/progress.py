"""Progress: the type of the functions that report how far a task is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None] | None  # called with what is done, and with all of it


def tell(progress: Progress, done: int, total: int) -> None:
    if progress:
        progress(done, total)


def counted(progress: Progress, total: int) -> Callable[[int], None]:
    """Returns a function that takes a number of finished steps and reports their sum."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        tell(progress, done, total)

    return advance
