"""Work on many parts of a run at once, scheduled by dask: in a process for each processor of this
machine, or by the workers of a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from ttanalyze.errors import Error
from ttanalyze.util.cluster import chunks, each_on
from ttanalyze.util.cluster import workers as workers_of
from ttanalyze.util.memory_limit import limited
from ttanalyze.util.progress import Progress, counted, tell

P = TypeVar("P")
T = TypeVar("T")
ADDRESS = "DASK_SCHEDULER_ADDRESS"
_task: Callable[[Any], Any] | None = None  # what this process does, if another forked it
_parts: Sequence[Any] = ()


def address_of(cluster: str | None) -> str | None:
    """Returns the address of the dask scheduler to use: the given one, or that of the environment.
    None if this machine does all.
    """
    return cluster or os.environ.get(ADDRESS) or None


def workers(cluster: str | None) -> int:
    """Returns how many parts a cluster, or this machine, works on at once."""
    if cluster is not None:
        return workers_of(cluster)
    return 1 if limited() else len(os.sched_getaffinity(0))


def each(
    task: Callable[[P], T],
    parts: Sequence[P],
    parallel: bool = True,
    progress: Progress = None,
    cluster: str | None = None,
) -> list[T]:
    """Returns what the task makes of each part, in order.

    On this machine the task runs in forked processes. So it sees everything that this process has
    in memory, and its changes are lost. Its results are pickled. On a cluster, the task and the
    parts are pickled, too. Recorded processes travel as their paths.

    Args:
        task: The task.
        parts: What it is called with.
        parallel: Whether it takes long enough for processes of its own. It must not be so if the
            task reads files elsewhere, whose connections belong to threads of this process. With
            limited memory, this process does all.
        progress: Called with the finished and the total number of parts.
        cluster: The address of the dask scheduler whose workers do it.

    Raises:
        Error: A process was killed, or the cluster cannot be used.
        BaseException: What the task raised.
    """
    if cluster is not None:
        return each_on(cluster, task, parts, progress)
    count = len(parts)
    processes = min(workers(None), count) if parallel else 1
    if processes < 2:
        out = []
        for part in parts:
            out.append(task(part))
            tell(progress, len(out), count)
        return out
    return _in_processes(task, parts, processes, progress)


def _in_processes(
    task: Callable[[P], T], parts: Sequence[P], processes: int, progress: Progress
) -> list[T]:
    from dask.multiprocessing import get

    advance = counted(progress, len(parts))

    def finished(_: int, found: list[T] | Exception, *__: Any) -> None:
        if isinstance(found, Exception):
            raise found
        advance(len(found))

    work = dict(enumerate((_run, some) for some in chunks(len(parts), processes)))
    forked = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, forked, _begin, (task, parts))
    try:
        # Not registered with dask: other threads may call this meanwhile.
        told = [(None, None, None, finished, None)]
        found = get(work, list(work), pool=pool, chunksize=1, callbacks=told)
        return [one for some in found for one in some]
    except BrokenProcessPool:
        why = "a process that did a part of the work was killed, perhaps for lack of memory"
        raise Error(f"{why}; start fewer with `taskset -c 0 ttanalyze …`") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(task: Callable[[Any], Any], parts: Sequence[Any]) -> None:
    """An interrupt ends the parent alone, which then ends the pool."""
    global _task, _parts
    _task, _parts = task, parts
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(numbers: range) -> list[Any] | Exception:
    """Returns what was found, or what was raised, to whose text dask would add."""
    assert _task is not None, "set before the fork"
    try:
        return [_task(_parts[number]) for number in numbers]
    except Exception as e:
        return e
