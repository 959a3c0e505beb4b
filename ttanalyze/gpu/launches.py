"""Arrays of the host that launches under way still read or write.

Invariant: they live until the driver says that these launches are through, whoever lets go of
them before, and nobody waits for that.
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
    """Those of one executable graph, which come one after the other: the last stands for all."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.event: Any = None

    def note(self, stream: int) -> None:
        """One was submitted to a stream."""
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
        """Whether none is under way."""
        if self.event is None:
            return True
        with self.context.use() as driver:
            return driver.result("cuEventQuery", self.event) != NOT_READY

    def keep(self, things: object) -> None:
        """Until they are through."""
        if self.event is not None:
            _kept.append((os.getpid(), self, things))
        _let_go()


# Changed by single operations only: whatever thread collects garbage may come in between.
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
