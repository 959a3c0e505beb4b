"""Work on many parts of a run at once: a process for each processor."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from ttanalyze.util.memory_limit import limited
from ttanalyze.util.progress import Progress, counted, tell

T = TypeVar("T")
PARTS = 8  # that each process gets, so that all end at about the same time
_task: Callable[[int], Any] | None = None  # of this process, which its children inherit


def each(
    task: Callable[[int], T], count: int, parallel: bool = True, progress: Progress = None
) -> list[T]:
    """Returns task(0) to task(count - 1), in order.

    The task runs in forked processes. So it sees everything that this process has in memory, and
    its changes are lost. Its results are pickled.

    Args:
        task: The task.
        count: How often to run it.
        parallel: Whether it takes long enough for processes of its own. It must not be so if the
            task reads files elsewhere, whose connections belong to threads of this process. With
            limited memory, this process does all.
        progress: Called with the finished and the total number of runs.

    Raises:
        BaseException: What the task raised.
    """
    workers = min(len(os.sched_getaffinity(0)), count) if parallel and not limited() else 1
    if workers < 2:
        out = []
        for number in range(count):
            out.append(task(number))
            tell(progress, number + 1, count)
        return out
    return _in_processes(task, count, workers, progress)


def _in_processes(
    task: Callable[[int], T], count: int, workers: int, progress: Progress
) -> list[T]:
    global _task
    before, _task = _task, task
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin)
    try:
        size = max(1, count // (PARTS * workers))
        futures = [
            pool.submit(_run, range(first, min(first + size, count)))
            for first in range(0, count, size)
        ]
        advance = counted(progress, count)
        for future in as_completed(futures):
            advance(len(future.result()))
        return [one for future in futures for one in future.result()]
    finally:
        _task = before
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """An interrupt ends the parent alone, which then ends the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(numbers: range) -> list[Any]:
    assert _task is not None, "set before the fork"
    return [_task(number) for number in numbers]
