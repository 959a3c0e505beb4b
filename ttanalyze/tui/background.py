"""Runs work in a thread, so that the screen never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from textual.widget import Widget
from textual.worker import Worker

from ttanalyze.errors import Error


class Background:
    """Runs one task at a time. Of the tasks that are requested meanwhile only the last runs, and
    outdated results are dropped.
    """

    def __init__(self, owner: Widget) -> None:
        self._owner = owner
        self._waiting: tuple[Callable[[], Any], Callable[[Any], None]] | None = None
        self._busy = False

    def ask(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Requests a task. work: called in a thread. done: called with its result, or with an
        Error.
        """
        self._waiting = work, done
        if not self._busy:
            self._busy = True
            # The method, not its coroutine: a worker that ends before it begins leaves none behind.
            _: Worker[None] = self._owner.run_worker(self._run, exit_on_error=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                work, done = self._waiting
                self._waiting = None
                result = await asyncio.to_thread(_result, work)
                if not self._waiting and self._owner.is_attached:
                    done(result)
        finally:
            self._busy = False


def _result(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Error as e:
        return e
    except OSError as e:
        return Error(f"{e.filename or 'the run'}: {e.strerror or e}")
    except MemoryError:
        return Error("out of memory")
