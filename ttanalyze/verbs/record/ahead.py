"""Starts programs before their recordings are asked for, and holds each where its recording begins.

What a program does before that, such as imports, is then over when it is its turn. Only one of them
uses the GPU at a time.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ttanalyze.output.files import private
from ttanalyze.verbs.record.series import Recording, Series
from ttanalyze.verbs.record.together import begin, finish

PATIENCE = 5  # seconds: of the end of a program that was asked to end


@dataclass(frozen=True)
class _Held:
    """A started program. descriptor: of the file by which the recorder is held."""

    process: subprocess.Popen[bytes]
    path: Path
    descriptor: int

    def let_go(self) -> None:
        self.path.unlink(missing_ok=True)
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # a forked process may have the file open, too
        os.close(self.descriptor)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Ends the program while it is held, and waits for its end."""
        assert self.process.stdout is not None
        self.process.terminate()
        select.select([self.process.stdout], [], [], PATIENCE)
        with self.process:  # the processes that it started
            self.kill()
        self.let_go()


class Ahead:
    """The recordings of a series, some of which are started ahead.

    Attributes:
        jobs: How many programs may have been started at once. With 1, each starts when it is asked
            for.
        alone: Whether programs must not be started ahead any more: one failed beside others, and
            not alone.
        usual: Exit statuses that are no failure.
    """

    def __init__(self, series: Series, jobs: int) -> None:
        self.jobs = jobs
        self.alone = False
        self.usual: Collection[int] = {0}
        self._series = series
        self._held: dict[str, _Held] = {}

    def expect(self, wanted: Mapping[str, Mapping[str, str]]) -> None:
        """Starts programs, and ends those that are not expected any more.

        Args:
            wanted: The TT_ variables of the recordings that may come next, by name, the likeliest
                first. Those that are finished are skipped.
        """
        for name in self._held.keys() - wanted.keys():
            self._held.pop(name).end()
            self._series.forget(name)
        if self.alone or self.jobs < 2:
            return
        for name, variables in wanted.items():
            if len(self._held) >= self.jobs:
                break
            if name not in self._held and self._series.finished(name) is None:
                self._held[name] = self._begin(name, variables)

    def _begin(self, name: str, variables: Mapping[str, str]) -> _Held:
        path = self._series.folder / f"{name}.hold"
        descriptor = private(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        held = {**variables, "TT_HOLD": str(path.absolute())}
        return _Held(begin(self._series, name, held, own_session=True), path, descriptor)

    def recording(self, name: str, variables: Mapping[str, str]) -> Recording:
        """Returns the recording of this name, as `Series.recording` does.

        A program that fails beside others runs again alone.

        Args:
            name: The name.
            variables: The TT_ variables.

        Raises:
            Error: Nothing can be recorded.
            KeyboardInterrupt: A signal ended the recording.
        """
        held = self._held.pop(name, None)
        if held is None:
            return self._series.recording(name, variables)
        held.let_go()
        with held.process:
            try:
                finish(held.process)
            except BaseException:
                held.kill()
                raise
        found = self._series.finished(name)
        if found is not None and found.status in self.usual:
            return found
        self.close()
        self._series.forget(name)
        again = self._series.recording(name, variables)
        self.alone = found is None or again.status != found.status
        return again

    def close(self) -> None:
        """Ends the programs that were not asked for."""
        self.expect({})
