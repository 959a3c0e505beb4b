"""Records one program beside this process, once or several times at once, each time from a process
of its own: a recording takes the signals of its process.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.verbs.record.series import NothingRecordedError, Recording, Series

PR_SET_PDEATHSIG = 1


class Behind:
    """A recording in a forked process, while this one does something else.

    Attributes:
        name: The name of the recording. It is finished, or nothing was recorded, when `lines`
            returns.
    """

    def __init__(self, series: Series, name: str, variables: Mapping[str, str]) -> None:
        """Begins it.

        Args:
            series: The recordings of the program.
            name: The name of the recording, which is not finished.
            variables: The TT_ variables.
        """
        self.name = name
        context = multiprocessing.get_context("fork")
        self._lines, told = context.Pipe(duplex=False)
        self._process = context.Process(target=_record, args=(series, name, variables, told))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: see _record
            self._process.start()
        told.close()

    def lines(self) -> list[str]:
        """Waits for it, and returns the lines of warning."""
        try:
            told: list[str] = self._lines.recv()
        except EOFError:
            told = []
        except BaseException:
            self.end()
            raise
        self._process.join()
        return told

    def end(self) -> None:
        """Ends the program as SIGTERM does, and waits."""
        self._process.terminate()
        self._process.join()


def _record(series: Series, name: str, variables: Mapping[str, str], told: Connection) -> None:
    """Makes a recording in a forked process. Nobody but this thread may print: others, whose locks
    were taken, are not there.
    """
    lines: list[str] = []
    with suppress(Error, KeyboardInterrupt):
        replace(series, warn=lines.append).recording(name, variables)
    told.send(lines)


def together(
    series: Series, wanted: Mapping[str, Mapping[str, str]], jobs: int
) -> Iterator[Recording]:
    """Makes recordings, and yields each as soon as it is finished.

    Those that fail beside others are forgotten: what they show may come from the others.

    Args:
        series: The recordings of the program.
        wanted: The TT_ variables of each recording, by its name. None of them is finished.
        jobs: How many may run at once.

    Raises:
        Error: The program cannot be recorded.
        KeyboardInterrupt: A signal ended the recordings.
    """
    running: set[subprocess.Popen[bytes]] = set()

    def run(name: str) -> None:
        with begin(series, name, wanted[name]) as process:
            running.add(process)
            finish(process)
            running.discard(process)

    with ThreadPoolExecutor(min(jobs, len(wanted))) as pool:
        names = {pool.submit(run, name): name for name in wanted}
        try:
            for one in as_completed(names):
                one.result()
                recording = series.finished(names[one])
                if recording is not None and recording.status:
                    series.forget(names[one])
                elif recording is not None:
                    yield recording
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)


def begin(
    series: Series, name: str, variables: Mapping[str, str], own_session: bool = False
) -> subprocess.Popen[bytes]:
    """Starts the process of one recording.

    Args:
        series: The recordings of the program.
        name: The name of the recording.
        variables: The TT_ variables.
        own_session: Whether it gets a session of its own, and no signals of the terminal. It ends
            when this thread does.
    """
    words = {"folder": str(series.folder), "command": list(series.command), "sim": series.sim}
    parent = os.getpid() if own_session else None
    told = {**words, "name": name, "variables": dict(variables), "parent": parent}
    asked = json.dumps(told).encode()
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=own_session,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(asked)
    return process


def finish(process: subprocess.Popen[bytes]) -> None:
    """Waits for the end of a recording.

    Args:
        process: Its process.

    Raises:
        Error: The program cannot be recorded.
        KeyboardInterrupt: A signal ended the recording.
    """
    assert process.stdout is not None
    answer = process.stdout.read()
    process.wait()
    said: dict[str, Any] = json.loads(answer) if answer else {"interrupted": True}
    if said.get("interrupted"):
        raise KeyboardInterrupt
    if "error" in said:
        raise Error(said["error"])


def main() -> None:
    """Makes the recording that the input describes, and prints what became of it."""
    asked = json.loads(sys.stdin.buffer.read())
    said: dict[str, Any] = {}
    if asked["parent"] is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != asked["parent"]:  # it ended before
            return
    series = Series(Path(asked["folder"]), asked["command"], asked["sim"])
    try:
        series.recording(asked["name"], asked["variables"])
    except KeyboardInterrupt:
        said["interrupted"] = True
    except NothingRecordedError:
        pass  # a recording alone will say so
    except Error as e:
        said["error"] = str(e)
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(said).encode())


if __name__ == "__main__":
    main()
