"""Programs whose work never ends, recorded: on the simulator, and on a GPU."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import ttanalyze as tt
from tests import support

AGO = r"\d+(\.\d)? s ago"
ENDS_WITHIN = 8  # seconds


def hang(
    command: list[str], environment: dict[str, str], number: int = 0, after: float = 0.2
) -> support.Outcome:
    """Runs a program, and sends it a signal, if any, once it says that it hangs."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            begun = process.stdout.readline()
            if number:
                time.sleep(after)
                process.send_signal(number)
            began = time.monotonic()
            out, err = process.communicate(timeout=60)
            assert time.monotonic() - began < ENDS_WITHIN
        finally:
            process.kill()
    return support.Outcome(begun + out, err, process.returncode)


def report(outcome: support.Outcome) -> list[str]:
    """What the recorder reported, without times."""
    own = [line for line in outcome.stderr.splitlines() if line.startswith("ttanalyze: ")]
    return [re.sub(AGO, "AGO", line.removeprefix("ttanalyze: ")) for line in own]


def check_whole(run: Path, status: str, reason: str | None) -> None:
    """The run was ended in order, with the one epoch in front of the hang."""
    opened = tt.open(run)
    (process,) = opened.processes
    assert (process.status, process.info["reason"]) == (status, reason)
    assert process.info["ended_ns"] > process.info["started_ns"]
    assert tt.verify.verify(opened, run / "manifest.json").same
    assert len(opened.epochs) >= 1
