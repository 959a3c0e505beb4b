"""Ends a program at its time limit, with the processes that it started.

The recorder ends a recorded process itself and reports its in-flight work. Other processes are
ended from here, after the recorded ones.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson

from ttanalyze.format import statuses

GRACE_SECONDS = 10  # for the recorder to end a process, and then for a process to end by SIGTERM
LOOK_SECONDS = 0.3

# Processes by number, each with when it began: the number may be another's later.
Family = dict[int, str]


class TimeLimit:
    """A time limit in seconds for a process, its descendants, and what is recorded of them in out.

    tell: called with one line when something is ended from here.
    """

    def __init__(self, seconds: float, child: int, out: Path, tell: Callable[[], None]) -> None:
        self.child = child
        self.out = out
        self.tell = tell
        self.family: Family = {}
        self.signals = [signal.SIGKILL, signal.SIGTERM]
        self.recorders = False
        self.due = time.monotonic() + seconds
        self.recorders_until = self.due + GRACE_SECONDS

    @property
    def enforced(self) -> bool:
        """Whether the launcher ended a process."""
        return len(self.signals) < 2

    def wait(self) -> float:
        """Returns the seconds until look() has something to do."""
        return max(0.0, self.due - time.monotonic())

    def look(self) -> None:
        """Ends the processes past their time limit."""
        now = time.monotonic()
        if now < self.due:
            return
        self.family = _living(self.family) | _family([self.child, *self.family])
        before, self.recorders = self.recorders, self._recorders_at_work()
        if (before or self.recorders) and not self.enforced and now < self.recorders_until:
            self.due = now + LOOK_SECONDS  # the second: who waits for such a process ends by itself
            return
        if not self.family:
            self.due = math.inf
            return
        if not self.enforced:
            self.tell()
        number = self.signals.pop()
        for pid in _living(self.family):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        self.due = now + GRACE_SECONDS if self.signals else math.inf

    def finish(self) -> None:
        """Ends what an ended child left behind, if it was over its limit."""
        while self.due < math.inf and _living(self.family):
            time.sleep(min(self.wait(), 0.02))
            self.look()

    def _recorders_at_work(self) -> bool:
        for path in self.out.glob("p*/process.json"):
            with contextlib.suppress(OSError, orjson.JSONDecodeError):
                told = orjson.loads(path.read_bytes())
                if told.get("pid") in self.family and told.get("status") != statuses.COMPLETE:
                    return True
        return False


def _read(pid: int) -> tuple[int, str] | None:
    """Returns the parent and the start time of a process, None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else (int(words[1]), words[19].decode())


def _living(family: Family) -> Family:
    return {pid: began for pid, began in family.items() if (now := _read(pid)) and now[1] == began}


def _family(roots: Iterable[int]) -> Family:
    """Returns these processes and their living descendants."""
    found = {int(n): told for n in os.listdir("/proc") if n.isdigit() and (told := _read(int(n)))}
    members = {pid for pid in roots if pid in found}
    more = members
    while more:
        more = {pid for pid, (parent, _) in found.items() if parent in more} - members
        members |= more
    return {pid: found[pid][1] for pid in members}
