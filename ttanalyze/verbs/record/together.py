"""Records one program several times at once, each time from a process of its own: a recording takes
the signals of its process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.verbs.record.series import NothingRecordedError, Recording, Series


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

    def run(name: str) -> dict[str, Any]:
        words = {"folder": str(series.folder), "command": list(series.command), "sim": series.sim}
        asked = json.dumps({**words, "name": name, "variables": dict(wanted[name])}).encode()
        line = [sys.executable, "-m", __name__]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            running.add(process)
            answer, _ = process.communicate(asked)
            running.discard(process)
        said: dict[str, Any] = json.loads(answer) if answer else {"interrupted": True}
        return said

    with ThreadPoolExecutor(min(jobs, len(wanted))) as pool:
        names = {pool.submit(run, name): name for name in wanted}
        try:
            for one in as_completed(names):
                _check(one.result())
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


def _check(said: Mapping[str, Any]) -> None:
    if said.get("interrupted"):
        raise KeyboardInterrupt
    if "error" in said:
        raise Error(said["error"])


def main() -> None:
    """Makes the recording that the input describes, and prints what became of it."""
    asked = json.loads(sys.stdin.buffer.read())
    said: dict[str, Any] = {}
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
