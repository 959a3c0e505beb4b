"""How the recording of a process ended: `status` of process.json."""

from __future__ import annotations

TIMEOUT = "timeout"
WITH_THE_PROCESS = ("complete", "signal", TIMEOUT)
OVER = (*WITH_THE_PROCESS, "failed")
