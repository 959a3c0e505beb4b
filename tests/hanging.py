"""Programs whose work never ends, recorded: on the simulator, and on a GPU."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support

AGO = r"\d+(\.\d)? s ago"
ENDS_WITHIN = 20  # seconds; it takes less than one, and a finish that hangs is given up


def hang(
    command: list[str], environment: dict[str, str], number: int = 0, after: float = 0.2
) -> support.Outcome:
    """Runs a program, and sends it a signal, if any, some time (seconds) after it says that it
    hangs, and not before its main thread waits, or works for half of that.
    """
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            begun = process.stdout.readline()
            if number:
                said = _worked(process.pid)[0]
                time.sleep(after)
                until = time.monotonic() + 10  # some systems don't say
                while not _waits_or_worked(process.pid, said + after / 2):
                    if time.monotonic() > until:
                        break
                    time.sleep(0.005)
                process.send_signal(number)
            began = time.monotonic()
            out, err = process.communicate(timeout=60)
            assert time.monotonic() - began < ENDS_WITHIN
        finally:
            process.kill()
    return support.Outcome(begun + out, err, process.returncode)


def in_some_limit(*limits: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test with each of some times until it passes; with the last one it has to. Its
    argument `limit` is the time: one after which something is given up. A busy machine may keep
    a program from working for so long, which looks as if it hangs. What is in the folder that the
    test calls `run` is deleted between two attempts.
    """

    def of_test(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**given: Any) -> None:
            for limit in limits[:-1]:
                with suppress(Exception, pytest.fail.Exception):
                    return test(limit=limit, **given)
                if "run" in given:
                    shutil.rmtree(given["run"], ignore_errors=True)
            test(limit=limits[-1], **given)

        signature = inspect.signature(test)
        fixtures = [p for name, p in signature.parameters.items() if name != "limit"]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return of_test


def _worked(pid: int) -> tuple[float, bool]:
    """Seconds of processor time that a process's main thread has had, and whether it sleeps."""
    words = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), words[0] != "R"


def _waits_or_worked(pid: int, seconds: float) -> bool:
    worked, sleeps = _worked(pid)
    return sleeps or worked >= seconds


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
    assert tt.verify(opened, run / "manifest.json").same
    assert len(opened.epochs) >= 1
