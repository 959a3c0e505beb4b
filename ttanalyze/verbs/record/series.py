"""Records one program many times into one folder; a finished recording is never made again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ttanalyze.errors import Error
from ttanalyze.output.files import private, replacing
from ttanalyze.verbs.record.run import TIMED_OUT, record

OURS = (b"ttanalyze: ", b"ttanalyze simulator: ")


@dataclass(frozen=True)
class Recording:
    """A finished recording.

    Attributes:
        run: The run directory.
        status: The exit status of the program.
        log: The file with what the program printed.
        seconds: The duration in seconds, 0 if an older version of ttanalyze recorded it.
    """

    run: Path
    status: int
    log: Path
    seconds: float

    @property
    def output(self) -> bytes:
        """What the program printed, without the lines of the recorder and the simulator."""
        lines = self.log.read_bytes().splitlines(keepends=True)
        return b"".join(line for line in lines if not line.startswith(OURS))


@dataclass(frozen=True)
class Series:
    """The recordings of a command in a folder.

    Attributes:
        folder: The folder.
        command: The program and its arguments.
        sim: Whether to use the simulator.
        warn: Called with lines of warning.
    """

    folder: Path
    command: Sequence[str]
    sim: bool = False
    warn: Callable[[str], None] | None = None

    def finished(self, name: str) -> Recording | None:
        """Returns the recording of this name, None if it is not finished."""
        try:
            words = (self.folder / f"{name}.status").read_text().split()
            status, seconds = int(words[0]), float(words[1]) if words[1:] else 0.0
        except (FileNotFoundError, ValueError, IndexError):
            return None
        return Recording(self.folder / name, status, self._log(name), seconds)

    def recording(self, name: str, variables: Mapping[str, str]) -> Recording:
        """Records the program, unless the recording of this name is finished.

        Args:
            name: The name.
            variables: The TT_ variables.

        Raises:
            Error: Nothing can be recorded.
            KeyboardInterrupt: A signal ended the recording.
        """
        found = self.finished(name)
        if found is not None:
            return found
        with open(self._log(name), "wb", opener=private) as file:
            done = record(
                self.command,
                self.folder / name,
                variables,
                sim=self.sim,
                force=True,
                output=file,
                warn=self.warn,
            )
        if done.interrupted is not None:
            raise KeyboardInterrupt
        if not done.processes:
            log = self._log(name)
            raise NothingRecordedError(done.line(self.command[0]), done.status, log)
        with replacing(self.folder / f"{name}.status", private) as whole:
            whole.write(f"{done.status} {done.seconds:.6f}".encode())
        return Recording(self.folder / name, done.status, self._log(name), done.seconds)

    def rename(self, old: str, new: str) -> Recording:
        """Gives a finished recording a new name, and returns it.

        Args:
            old: Its name.
            new: The other name. Remains of a recording of that name are removed.
        """
        found = self.finished(old)
        assert found is not None, "it was recorded"
        self.forget(new)
        found.run.rename(self.folder / new)
        found.log.rename(self._log(new))
        (self.folder / f"{old}.status").rename(self.folder / f"{new}.status")
        return Recording(self.folder / new, found.status, self._log(new), found.seconds)

    def forget(self, name: str) -> None:
        """Removes a recording."""
        (self.folder / f"{name}.status").unlink(missing_ok=True)
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self._log(name).unlink(missing_ok=True)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


class NothingRecordedError(Error):
    """The program ran, but the recorder saw no CUDA context.

    Attributes:
        status: The exit status of the program.
    """

    def __init__(self, what: str, status: int, log: Path) -> None:
        ended = f"; the program {ending(status)}" if status else ""
        super().__init__(f"{what}{ended}; its output is in {log}")
        self.status = status


def ending(status: int) -> str:
    """Returns how a program ended, as the rest of a sentence about it.

    Args:
        status: Its exit status, as in `Recording`.
    """
    if status == TIMED_OUT:
        return "did not end in time"
    return f"ended with signal {status - 128}" if status > 128 else f"ended with status {status}"
