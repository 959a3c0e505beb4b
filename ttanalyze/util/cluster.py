"""Work on the workers of a dask cluster, which must see the files of the runs.

A task whose worker is lost runs again on another one. Its results are fetched as they come.
"""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import ttanalyze
from ttanalyze.errors import Error
from ttanalyze.util.progress import Progress, counted

P = TypeVar("P")
T = TypeVar("T")
PARTS = 8  # that each worker gets, so that all end at about the same time
CONNECTING = 10  # seconds for the scheduler to answer, and for a first worker to come


def chunks(count: int, workers: int) -> list[range]:
    """Returns the numbers of parts that a worker gets at once."""
    size = max(1, count // (PARTS * workers))
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def each_on(
    address: str, task: Callable[[P], T], parts: Sequence[P], progress: Progress = None
) -> list[T]:
    """Returns what the task makes of each part, in order. The workers of the scheduler do it.

    Args:
        address: The address of the scheduler, such as tcp://node0:8786.
        task: The task; it and the parts are pickled.
        parts: What it is called with.
        progress: Called with the finished and the total number of parts.

    Raises:
        Error: The scheduler or the workers cannot be used.
        BaseException: What the task raised.
    """
    with _connected(address) as client:
        import distributed

        as_completed: Any = distributed.as_completed
        numbers = chunks(len(parts), _threads(client, address))
        common = client.submit(bytes, pickle.dumps(task), pure=False)
        futures = {
            client.submit(_run, common, pickle.dumps([parts[i] for i in some]), pure=False): some
            for some in numbers
        }
        found: dict[int, T] = {}
        advance = counted(progress, len(parts))
        for future, results in as_completed(futures, loop=client.loop, with_results=True):
            found.update(zip(futures[future], results, strict=True))
            advance(len(results))
            future.release()  # so that its worker need not keep them
        return [found[i] for i in range(len(parts))]


def workers(address: str) -> int:
    """Returns the number of threads that all workers of a scheduler have. Raises Error."""
    with _connected(address) as client:
        return _threads(client, address)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Yields a client. Raises what goes wrong with the cluster as an Error of one line."""
    try:
        import distributed
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
    except ImportError:
        raise Error("a cluster needs dask: pip install 'ttanalyze[cluster]'") from None
    if not re.fullmatch(r"((tcp|tls|wss?|ucx)://)?[^/]+:\d+", address):
        raise Error(f"{address}: not an address, such as tcp://node0:8786")
    connect: Any = distributed.Client
    try:
        with ThreadPoolExecutor(1) as beside:  # the loop of a notebook runs in this thread
            beside.submit(asyncio.run, _answer(address)).result()
        client = connect(address, timeout=CONNECTING, set_as_default=False)
    except TypeError:  # of TLS, of which dask's configuration says nothing
        todo = "configure distributed.comm.tls of dask, or use tcp://"
        raise Error(f"{address}: no certificates; {todo}") from None
    except (OSError, TimeoutError, asyncio.TimeoutError):
        todo = "start it with `dask scheduler`, or check the address"
        raise Error(f"{address}: no dask scheduler answers; {todo}") from None
    try:
        with client:
            yield client
    except distributed.KilledWorker as e:
        said = "workers died again and again; give them more memory (dask worker --memory-limit)"
        raise Error(f"{address}: {said}: {' '.join(str(e).split())[:200]}") from None
    except (CommClosedError, FutureCancelledError):
        raise Error(f"{address}: the scheduler went away; start it and this again") from None


async def _answer(address: str) -> None:
    """Asks a scheduler for its name. A client waits for ever for a server of another kind.

    Raises OSError, TimeoutError or asyncio.TimeoutError if none answers.
    """
    from distributed.core import rpc
    from distributed.security import Security

    security: Any = Security
    connection: Any = rpc
    arguments = security().get_connection_args("client")
    async with connection(address, timeout=CONNECTING, connection_args=arguments) as scheduler:
        await asyncio.wait_for(scheduler.identity(n_workers=0), CONNECTING)


def _threads(client: Any, address: str) -> int:
    """Returns the number of threads of all workers, which must have this version of ttanalyze."""
    try:
        client.wait_for_workers(1, timeout=CONNECTING)
    except TimeoutError:
        todo = f"start some with `dask worker {address} --nthreads 1`"
        raise Error(f"{address}: the scheduler has no workers; {todo}") from None
    try:
        versions = client.run(_version)
    except (ImportError, AttributeError):
        versions = {"a worker": "no ttanalyze"}
    for worker, version in versions.items():
        if version != ttanalyze.__version__:
            todo = f"install ttanalyze {ttanalyze.__version__} there"
            raise Error(f"{worker}: the worker has {version}; {todo}")
    return sum(client.nthreads().values())


def _version() -> str:
    return ttanalyze.__version__


def where() -> str | None:
    """Returns the name of this worker's machine, None outside of workers."""
    try:
        from distributed import get_worker

        return f"{socket.gethostname()} ({get_worker().address})"
    except (ImportError, ValueError):
        return None


@functools.lru_cache(maxsize=4)
def _task(pickled: bytes) -> Callable[[Any], Any]:
    task: Callable[[Any], Any] = pickle.loads(pickled)
    return task


def _run(task: bytes, parts: bytes) -> list[Any]:
    """Runs in a worker."""
    os.environ.pop("DASK_SCHEDULER_ADDRESS", None)  # it does its part alone
    return [_task(task)(part) for part in pickle.loads(parts)]
