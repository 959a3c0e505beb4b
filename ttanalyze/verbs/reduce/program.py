"""Reduces delays by running a command with one configuration after the other.

The answers are kept in a file until the search is over, so an interrupted search continues.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import xxhash

from ttanalyze.core import delays
from ttanalyze.errors import Error, FormatError, system_errors
from ttanalyze.format import open_run
from ttanalyze.format.files import read_json
from ttanalyze.format.run import Run
from ttanalyze.output.files import replacing
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.reduce.delayed_instructions import name_delays
from ttanalyze.verbs.reduce.report import ReduceReport
from ttanalyze.verbs.reduce.search import Answers, NothingError, points_of, reduce

STATE = {"format": "ttanalyze-reduce-state", "version": 1}
CONFIG = "{config}"
VARIABLE = "TT_DELAY_LOAD"
NOT_RUN = (126, 127)  # what shells say of a program that could not be run


@checked
@dataclass(frozen=True)
class Settings:
    """What `reduce_test` does.

    Attributes:
        config: The file with the delays.
        test: A command. {config} in it is replaced by the file with the delays to try;
            TT_DELAY_LOAD names this file too.
        strategy: "bisect" or "linear".
        confidence: The maximal number of runs of each set of delays.
        limit: The maximal number of runs, 0 for no limit.
        timeout: The time limit of a run in seconds, 0 for none. A run that exceeds it fails.
        run: The run with the code of the kernels. Default: the run of the configuration.
        fails_with_0: Whether a test that fails has the exit status 0 and every other test has
            another status. Default: the other way round.
    """

    config: Path
    test: str
    strategy: str = "bisect"
    confidence: int = 1
    limit: int = 0
    timeout: float = 0
    run: Path | None = None
    fails_with_0: bool = False


def _words(test: str) -> list[str]:
    """Returns the words of a command. Raises Error if it is empty or its quotes are wrong."""
    if os.path.isfile(test):
        return [os.path.abspath(test)]
    try:
        words = shlex.split(test)
    except ValueError as e:
        raise Error(f"--test {test}: {e}") from None
    if not words:
        raise Error("--test: expected a command")
    return words


@checked
def reduce_test(
    settings: Settings, state: Path | None = None, progress: Progress = None, anew: bool = False
) -> ReduceReport:
    """Finds the fewest delays with which a command still fails.

    Args:
        settings: What to do.
        state: The file with the answers. It is used if it exists, and removed at the end.
        progress: Called with the settled and the total number of delays.
        anew: Whether to ignore the answers in the file.

    Raises:
        Error: The command cannot be run, or there is nothing to reduce.

    Example:
        >>> delay = {"stream": 1, "delay": 50_000, "on": True, "where": "stream"}
        >>> calls = {f"1:{i}": delay | {"number": i} for i in range(8)}
        >>> document = {"version": "1.0", "delay_ns": 0, "kernels": {}, "launches": calls}
        >>> _ = Path("delays.json").write_text(tt.delays.Config(document).to_json())
        >>> test = "sh -c 'grep -q true {config}'"  # fails with any delay, with the status 0
        >>> settings = tt.reduce.Settings(Path("delays.json"), test, fails_with_0=True)
        >>> report = tt.reduce.reduce_test(settings)
        >>> len(report.delayed), report.found.status
        (1, 'reduced')
    """
    config = delays.read(settings.config)
    known = _Known(state, settings, config)
    if anew:
        known.forget()
    known.load()
    run = _run(settings)
    with tempfile.TemporaryDirectory(prefix="ttanalyze-") as folder:
        test = _Test(settings, Path(folder, "delays.json"))

        def fails(candidate: delays.Config) -> bool:
            known.save()  # what was answered before
            return test.fails(candidate)

        try:
            found = reduce(
                config,
                fails,
                strategy=settings.strategy,
                confidence=settings.confidence,
                limit=settings.limit,
                known=known.answers,
                progress=progress,
            )
        except NothingError:
            known.forget()
            raise
        finally:
            known.save()
    if found.status != "stopped":
        known.forget()
    named = name_delays(config, found.points, run)
    return ReduceReport(
        str(settings.config),
        _words(settings.test),
        settings.strategy,
        settings.confidence,
        found,
        named,
    )


def _run(settings: Settings) -> Run | None:
    """Returns the run with the kernels. Raises Error if the given run cannot be read."""
    if settings.run is not None:
        return open_run(settings.run)
    for folder in settings.config.resolve().parents[:2]:
        if (folder / "run.json").is_file():
            with contextlib.suppress(Error):
                return open_run(folder)
    return None


class _Test:
    def __init__(self, settings: Settings, file: Path) -> None:
        self._settings, self._file = settings, file

    def fails(self, candidate: delays.Config) -> bool:
        """Runs the test. Raises Error if that is not possible."""
        self._file.write_text(candidate.to_json())
        words = [word.replace(CONFIG, str(self._file)) for word in _words(self._settings.test)]
        with system_errors(words[0]):
            child = subprocess.Popen(
                words,
                env={**os.environ, VARIABLE: str(self._file)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            status = child.wait(self._settings.timeout or None)
        except subprocess.TimeoutExpired:
            return True
        finally:
            _end(child)
        if status in NOT_RUN:
            raise Error(f"{shlex.join(words)}: it can't be run (status {status})")
        return (status == 0) == self._settings.fails_with_0


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends what is left of a test, which has its own process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _answers(failed: Any, runs: Any) -> Answers:
    """Returns answers. Raises ValueError if they are impossible."""
    if not (isinstance(failed, int) and isinstance(runs, int) and 0 <= failed <= runs):
        raise ValueError
    return Answers(failed, runs)


class _Known:
    """Answers by sets of delays (bits of a number), and their file."""

    def __init__(self, path: Path | None, settings: Settings, config: delays.Config) -> None:
        self._path = path
        digest = xxhash.xxh3_64_hexdigest(config.to_json().encode())
        asked = {"test": _words(settings.test), "confidence": settings.confidence}
        asked |= {"fails_with_0": True} if settings.fails_with_0 else {}
        self._of = {**STATE, "config": digest, "strategy": settings.strategy, **asked}
        self._count = len(points_of(config))
        self.answers: dict[frozenset[int], Answers] = {}

    def load(self) -> None:
        """Reads the file. Raises Error if it belongs to another search."""
        if self._path is None or not self._path.exists():
            return
        try:
            state = read_json(self._path)
            tried = state.pop("tried")
            same = state == self._of
            for bits, (failed, runs) in tried.items():
                self.answers[self._set(int(bits, 16))] = _answers(failed, runs)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise FormatError(self._path, "tried", "not the state of a search") from None
        if not same:
            raise Error(f"{self._path} belongs to another search; --force starts again")

    def _set(self, bits: int) -> frozenset[int]:
        if not 0 <= bits < 1 << self._count:
            raise ValueError
        return frozenset(i for i in range(self._count) if bits >> i & 1)

    def save(self) -> None:
        if self._path is None or not self.answers:
            return
        tried = {
            f"{sum(1 << i for i in points):x}": [answers.failed, answers.runs]
            for points, answers in self.answers.items()
        }
        with replacing(self._path) as file:
            file.write(orjson.dumps(self._of | {"tried": tried}))

    def forget(self) -> None:
        self.answers.clear()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
