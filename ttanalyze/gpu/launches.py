"""Host arrays that running graph launches read or write.

Invariant: they live until the driver reports these launches complete. No call waits for that.
"""

from __future__ import annotations

import collections
import contextlib
import os
from typing import Any

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu.device import Context

NO_TIMING = 2
NOT_READY = 600


class Launches:
    """The launches of one executable graph. They run one after the other, so the last stands
    for all.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.event: Any = None

    def note(self, stream: int) -> None:
        """Notes a launch in a stream."""
        _let_go()
        raw = ffi.cast("CUstream", stream)
        with self.context.use() as driver:
            status = ffi.new("CUstreamCaptureStatus *")
            driver.call("cuStreamIsCapturing", raw, status)
            if status[0]:
                return  # it became a part of another graph
            if self.event is None:
                self.event = driver.get("cuEventCreate", "CUevent", NO_TIMING)
                destroy = self.context.give_back(self, "cuEventDestroy_v2", self.event)
                destroy.atexit = False  # graphs that end then still ask it
            driver.call("cuEventRecord", self.event, raw)

    def through(self) -> bool:
        """Returns whether no launch is running."""
        if self.event is None:
            return True
        with self.context.use() as driver:
            return driver.result("cuEventQuery", self.event) != NOT_READY

    def keep(self, things: object) -> None:
        """Keeps objects until the launches are complete."""
        if self.event is not None:
            _kept.append((os.getpid(), self, things))
        _let_go()


# Changed by single operations only: garbage collection in any thread may interrupt.
_kept: collections.deque[tuple[int, Launches, object]] = collections.deque()


def _let_go() -> None:
    for _ in range(len(_kept)):
        try:
            kept = _kept.popleft()
        except IndexError:
            return
        process, launches, _ = kept
        with contextlib.suppress(Error):
            if process != os.getpid() or launches.through():
                continue
        _kept.append(kept)
