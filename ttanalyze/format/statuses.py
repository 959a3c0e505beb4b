"""How the recording of a process ended: the values of `status` in process.json."""

from __future__ import annotations

RUNNING = "running"
KILLED = "killed"  # of a process that says "running", in a run that is over
COMPLETE = "complete"
TIMEOUT = "timeout"
WITH_THE_PROCESS = (COMPLETE, "signal", TIMEOUT)
OVER = (*WITH_THE_PROCESS, "failed")
