"""How those who wait learn how far something is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None] | None  # called with what is done, and with all of it


def tell(progress: Progress, done: int, total: int) -> None:
    if progress:
        progress(done, total)


def counted(progress: Progress, total: int) -> Callable[[int], None]:
    """What is called with each part that is done, and tells progress."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        tell(progress, done, total)

    return advance
