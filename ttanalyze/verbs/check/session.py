"""Runs the program for the checks, and keeps what it recorded.

Invariant: a finished recording of the folder was made with the settings that the folder's state
says, of the same program files; it is never made again. One session uses a folder at a time.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ttanalyze import options
from ttanalyze.code.demangle import readable
from ttanalyze.errors import Error, system_errors
from ttanalyze.format import open_run
from ttanalyze.format.files import read_json
from ttanalyze.output import text
from ttanalyze.output.files import directory, private, replacing
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.check.findings import Finding, Outcome
from ttanalyze.verbs.check.spacing import ALLOWANCE, EPOCHS, affordable
from ttanalyze.verbs.record import program
from ttanalyze.verbs.record.run import TIMED_OUT, driver_loads
from ttanalyze.verbs.record.series import NothingRecordedError, Recording, Series, ending
from ttanalyze.verbs.record.together import Behind, together

STATE, LOG, SETTINGS = "check.json", "log", ".settings"
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
LEAST, PATIENCE = 300, 50  # a recording ends after so many seconds, or times the slowest other one
# The recording with zones may skip epochs: it is compared with no other.
BUDGET = {"epoch": EPOCHS, "max_overhead": "2%", "overhead_allowance": f"{ALLOWANCE * 1000:.0f}ms"}
PLAIN = {
    "contents": "none",
    "deterministic": True,
    "fill": "zero",
    "params": True,
    "host_writes": True,
    "cpu_callstack": "auto",
}


@checked
@dataclass(frozen=True)
class Settings:
    """What to check, and how.

    Attributes:
        command: The program and its arguments.
        record: Options of `record` by name, for all recordings.
        before: A shell command that runs before each recording, to restore files.
        ignore: Regular expressions. Findings with a matching kernel, memory or line are left out.
        runs: The number of recordings that the determinism check compares.
        seconds: The time in seconds for which it makes further recordings.
        quick: Whether to make no recordings that only explain what was found.
        every: Whether to list also findings that are only a guess.
        sim: Whether to use the simulator.
        jobs: How many runs of the program may be under way at once. More than one needs that
            `before` is None.
    """

    command: tuple[str, ...]
    record: Mapping[str, Any] = field(default_factory=dict)
    before: str | None = None
    ignore: tuple[str, ...] = ()
    runs: int = 2
    seconds: float = 0
    quick: bool = False
    every: bool = False
    sim: bool = False
    jobs: int = 1


@dataclass(frozen=True)
class Plan:
    """The recordings that a check makes.

    Attributes:
        names: The names of those that it always makes.
        more: How many more it makes at most to explain what it finds.
        either: Names of recordings of which it needs one: the first that another check makes, else
            the last.
    """

    names: tuple[str, ...]
    more: int = 0
    either: tuple[str, ...] = ()


class Session:
    """A folder of recordings of one program.

    Attributes:
        settings: What to check.
        folder: The folder.
        used: The recordings that the present check used, by name.
        partial: What the present check knows so far. It counts if the check is interrupted.
        known: What returns recordings that checks will need in any case, with their options. They
            are made one after the other, while checks look at finished ones.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        say: Callable[[str], None] | None = None,
        progress: Progress = None,
    ) -> None:
        """Takes up the folder.

        Args:
            settings: What to check.
            folder: The folder, which is made if it does not exist.
            say: Called with lines about the progress. The file `log` gets them too.
            progress: Called with the finished and the planned number of recordings.

        Raises:
            Error: The program cannot be run, another session has the folder, or it has other
                recordings.
        """
        if not settings.command:
            raise Error("expected a program")
        self.settings, self.folder = settings, folder
        self.partial: Outcome | None = None
        self.used: dict[str, Recording] = {}
        self.durations: dict[str, float] = {}
        self._say, self._progress = say, progress
        self._ignore = [_expression(one) for one in settings.ignore]
        self._series = Series(folder, settings.command, settings.sim, self.say)
        self._planned: set[str] = set()
        self._nothing: NothingRecordedError | None = None
        self._behind: Behind | None = None
        self._lock = ExitStack()
        self.known: Callable[[Session], Mapping[str, Mapping[str, Any]]] | None = None
        self._prepare()

    def _prepare(self) -> None:
        wanted, state = _plain(self.settings), self.folder / STATE
        if self.settings.jobs > 1 and self.settings.before is not None:
            raise Error("--before restores what runs at the same time would share; omit --jobs")
        if not self.settings.sim and not driver_loads():
            raise Error("no GPU driver (libcuda.so.1) found; add --sim to use the simulator")
        options.variables(self.settings.record, os.environ)
        with system_errors(self.folder):
            if state.exists():
                if read_json(state) != wanted:
                    raise Error(
                        f"{self.folder} has a check of another program or with other options; "
                        "--force replaces it"
                    )
            elif self.folder.exists() and any(self.folder.iterdir()):
                raise Error(f"{self.folder} exists; choose another folder for -o")
            self.folder.mkdir(0o700, exist_ok=True)
            _lock(self.folder, self._lock)
        with replacing(state, private) as file:
            file.write(orjson.dumps(wanted, option=orjson.OPT_INDENT_2))

    # ---- what is said ----

    def say(self, line: str) -> None:
        """Prints a line, and adds it to the log.

        Args:
            line: The line.
        """
        if self._say:
            self._say(line)
        stamp = time.strftime("%H:%M:%S")
        with open(self.folder / LOG, "a", opener=private) as log:
            log.write(f"{stamp} {text.printable(line)}\n")

    def begin(self) -> None:
        """Begins a check."""
        self.partial = None
        self.used = {}

    def announce(self, plans: list[Plan]) -> None:
        """Says how often the program will run.

        Args:
            plans: The recordings of all checks. Recordings with the same name are one recording.
        """
        self._planned = {name for plan in plans for name in plan.names}
        self._planned |= {self.either(*plan.either) for plan in plans if plan.either}
        done = [one for name in self._planned if (one := self._series.finished(name)) is not None]
        left = len(self._planned) - len(done)
        line = f"check runs the program {text.count(left, 'time')}"
        if done and left:
            line += f", about {sum(one.seconds for one in done) / len(done) * left:.1f} s"
        elif left > 1:
            line += " (how long that takes, it says after the first one)"
        if done:
            line += f" ({text.count(len(done), 'recording')} of an earlier call can be used)"
        if more := sum(plan.more for plan in plans):
            line += f", and at most {text.count(more, 'time')} more to explain what it finds"
        if self.settings.seconds:
            line += f"; it repeats the program for {self.settings.seconds:.10g} s"
        self.say(f"{line}; recordings and log are in {self.folder}")

    def either(self, *names: str) -> str:
        """Returns the first of these recordings that is planned or finished, else the last.

        Args:
            names: Names of recordings.
        """
        known = (name for name in names if name in self._planned or self._series.finished(name))
        return next(known, names[-1])

    # ---- recording ----

    @functools.cached_property
    def epochs(self) -> str:
        """Where recordings have epochs, if a check does not say otherwise.

        These are the epochs of the plain recording, if there is one. If epochs at each
        synchronisation cost the program too much in the recording with zones, they are after so
        many launches.
        """
        chosen = epochs_of_user(self.settings)
        if chosen is None and self._series.finished("plain") is not None:
            return str(self._variables("plain")["TT_EPOCH"])
        measured = self._series.finished("zones")
        if chosen is None and measured is not None and measured.run.exists():
            chosen = affordable(open_run(measured.run).processes)
            if chosen is not None:
                self.say(f"epochs cost much, so there are fewer: --epoch {chosen}")
        return chosen or EPOCHS

    def _variables(self, name: str) -> dict[str, str]:
        """The variables of a finished recording."""
        found: dict[str, str] = orjson.loads((self.folder / f"{name}{SETTINGS}").read_bytes())
        return found

    @property
    def budget(self) -> dict[str, Any]:
        """Options that measure and limit what epochs cost, for a recording that is compared with no
        other; none if the user says where epochs are.
        """
        return {} if epochs_of_user(self.settings) else dict(BUDGET)

    def record(
        self, name: str, environment: Mapping[str, str] | None = None, /, **given: Any
    ) -> Recording:
        """Records the program, unless this recording is finished already.

        The program may have failed: see `fault`.

        Args:
            name: The name of the recording, which is its folder.
            environment: Further variables of the program.
            **given: Options of `record`. They override those of the settings, and these the epochs
                at each synchronisation and after so many launches.

        Raises:
            Error: The program cannot be recorded, or the recording has other options.
        """
        variables = self._resolved(environment or {}, given)
        found = self._series.finished(name)
        if found is None:
            self._await()
            found = self._series.finished(name)
        if found is None and self._nothing is not None:
            raise self._nothing
        if found is None:
            self._prepare_recording(name, variables)
            self._run_before(name)
            try:
                found = self._series.recording(name, {**self._limit(), **variables})
            except NothingRecordedError as e:
                self._nothing = e
                raise
            self.durations[name] = found.seconds
            self._tell_time(name, found)
        elif self._variables(name) != variables:
            raise Error(f"{found.run}: recorded with other options; --force replaces it")
        self.used[name] = found
        with suppress(Error):  # `record` says it when the recording is needed
            self._begin_next()
        return found

    def finished(self, name: str) -> Recording | None:
        """Returns the recording of this name, None if it is not finished.

        Args:
            name: The name of the recording.
        """
        return self._series.finished(name)

    def _begin_next(self) -> None:
        """Begins the next recording that is known to be needed, unless earlier ones have faults."""
        if self.known is None or self._behind is not None or self.settings.jobs > 1:
            return
        if any(map(self.fault, self.used.values())):
            return
        for name, given in self.known(self).items():
            if name in self._planned and self._series.finished(name) is None:
                variables = self._resolved({}, given)
                self._prepare_recording(name, variables)
                self._run_before(name)
                self._behind = Behind(self._series, name, {**self._limit(), **variables})
                return

    def _await(self) -> None:
        """Waits for a recording that was begun. One that failed is made again, to say why."""
        behind, self._behind = self._behind, None
        if behind is None:
            return
        for line in behind.lines():
            self.say(line)
        found = self._series.finished(behind.name)
        if found is not None:
            self.durations[behind.name] = found.seconds
            self._tell_time(behind.name, found)

    def close(self) -> None:
        """Ends a recording that was begun, and leaves the folder to others."""
        if self._behind is not None:
            self._behind.end()
        self._lock.close()

    def ahead(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Makes those recordings that are not finished, several at once if the settings allow it.

        One that fails beside others is not kept: `record` makes it again, alone.

        Args:
            wanted: The options of each recording, by its name, as `record` takes them.

        Raises:
            Error: The program cannot be recorded.
        """
        made = {name: self._resolved({}, given) for name, given in wanted.items()}
        made = {name: made[name] for name in made if self._series.finished(name) is None}
        if self.settings.jobs < 2 or len(made) < 2 or self._nothing is not None:
            return
        limit = self._limit()
        for name, variables in made.items():
            self._prepare_recording(name, variables)
        each = {name: {**limit, **variables} for name, variables in made.items()}
        for found in together(self._series, each, self.settings.jobs):
            self.durations[found.run.name] = found.seconds
            self._tell_time(found.run.name, found)
        failed = [name for name in made if self._series.finished(name) is None]
        if failed:
            self.say(f"{', '.join(failed)}: failed beside other runs; recorded again alone")

    def _resolved(self, environment: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
        """The variables of a recording."""
        # Guards need no epochs: the program ends at the access.
        own = os.environ.get("TT_EPOCH") or "guard" in given or "epoch" in given
        usual = {} if own else {"epoch": self.epochs}
        given = {k: v for k, v in given.items() if v is not None}
        given = {**usual, **self.settings.record, **given}
        return {**NO_DELAYS, **environment, **options.variables(given, os.environ)}

    def _prepare_recording(self, name: str, variables: Mapping[str, str]) -> None:
        done = self.runs
        tell(self._progress, done, max(done + 1, len(self._planned)))
        self._check_disk()
        with replacing(self.folder / f"{name}{SETTINGS}", private) as file:
            file.write(orjson.dumps(variables))

    def plain(self, name: str = "plain", **given: Any) -> Recording:
        """Makes a recording with digests, parameters and call stacks, at the user's epochs.

        Args:
            name: The name. All checks share the recording "plain".
            **given: Further options of `record`.
        """
        return self.record(name, **PLAIN, **given)

    def forget(self, name: str) -> None:
        """Removes the run directory of a recording. The recording stays finished.

        Args:
            name: The name of the recording.
        """
        shutil.rmtree(self.folder / name, ignore_errors=True)

    @property
    def runs(self) -> int:
        """The number of finished recordings."""
        return len(list(self.folder.glob("*.status")))

    def _limit(self) -> dict[str, str]:
        """Ends a program that hangs, unless the user says when to end it."""
        known = [*self.durations.values(), *(one.seconds for one in self.used.values())]
        if os.environ.get("TT_TIMEOUT") or not known:
            return {}
        return options.variables({"timeout": str(max(LEAST, round(PATIENCE * max(known))))}, {})

    def _check_disk(self) -> None:
        if not os.access(self.folder, os.W_OK):
            raise Error(f"{self.folder}: not writable")

    def _run_before(self, name: str) -> None:
        command = self.settings.before
        if command is None:
            return
        with open(self.folder / f"{name}.before.log", "wb", opener=private) as log:
            done = subprocess.run(
                command, shell=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        if done.returncode:
            status = done.returncode if done.returncode > 0 else 128 - done.returncode
            raise Error(f"--before {command}: ended with status {status}; see {log.name}")

    def _tell_time(self, name: str, found: Recording) -> None:
        left = [one for one in self._planned if self._series.finished(one) is None]
        line = f"recorded {name} in {found.seconds:.1f} s"
        if left:
            runs, rounds = text.count(len(left), "run"), -(-len(left) // self.settings.jobs)
            line += f"; {runs} to go, about {found.seconds * rounds:.1f} s"
        self.say(line)

    # ---- what became of the program ----

    def fault(self, recording: Recording) -> str | None:
        """Returns why a recording does not show what the program does, else None.

        The program failed, hung or ran out of memory, or the recorder failed.

        Args:
            recording: The recording.
        """
        short = f"see {recording.log}"
        if not recording.run.exists():  # it was without fault, else it would not have been removed
            return None
        run = open_run(recording.run)
        limits = [process.info["options"].get("TT_TIMEOUT") for process in run.processes]
        limit = next(filter(None, limits), None)
        if recording.status == TIMED_OUT and limit:
            return f"the program did not end within {limit} s (--timeout); {short}"
        if recording.status:
            ended = ending(recording.status)
            results = [process.event_columns("result")["result"] for process in run.processes]
            if any((result == OUT_OF_MEMORY).any() for result in results):
                return f"the program ran out of GPU memory and {ended}; {short}"
            return f"the program {ended}; {short}"
        for process in run.processes:
            if process.failure is not None:
                return f"recording failed: {process.failure}"
        return None

    def sound(self, recording: Recording) -> Recording:
        """Returns the recording itself.

        Args:
            recording: The recording.

        Raises:
            Error: It has a fault.
        """
        fault = self.fault(recording)
        if fault:
            raise Error(fault)
        return recording

    # ---- findings ----

    def ignored(self, *names: str | None) -> bool:
        """Returns whether `--ignore` leaves out findings with one of these names.

        Args:
            names: Names of kernels, memory or source lines. None is skipped.
        """
        if not self._ignore:
            return False
        known = [name for name in names if name]
        known += [readable(name) for name in known if name.startswith("_Z")]
        return any(one.search(name) for one in self._ignore for name in known)

    def kept(self, findings: list[Finding]) -> list[Finding]:
        """Returns the findings that `--ignore` does not leave out.

        Args:
            findings: The findings.
        """
        return [finding for finding in findings if not self.ignored(*finding.names())]


def epochs_of_user(settings: Settings) -> str | None:
    """Returns where the user wants epochs, None if he does not say.

    Args:
        settings: What to check.
    """
    return str(settings.record.get("epoch") or os.environ.get("TT_EPOCH") or "") or None


# In place of what the environment says.
NO_DELAYS = {"TT_DELAY": "", "TT_LAUNCH_DELAY": "", "TT_DELAY_LOAD": ""}


def _expression(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as e:
        raise Error(f"--ignore {value}: {e}") from None


def _plain(settings: Settings) -> dict[str, Any]:
    """What recordings depend on, as it comes back from JSON: the settings, and the program and the
    Python scripts that the command names, as they are now.
    """
    known = asdict(settings)
    names = ("command", "record", "before", "sim")
    scripts = [word for word in settings.command[1:] if word.endswith(".py")]
    paths = [program.find(settings.command[0]), *filter(os.path.isfile, scripts)]
    stats = {path: os.stat(path) for path in paths}
    files = {path: [stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()}
    return orjson.loads(orjson.dumps({**{name: known[name] for name in names}, "files": files}))


def remove(folder: Path) -> None:
    """Removes the recordings of a check.

    Raises:
        Error: The folder has something else in it, or another check uses it.
    """
    if not folder.exists():
        return
    if not (folder / STATE).is_file():
        raise Error(f"{folder} exists, but has no check; choose another folder for -o")
    with system_errors(folder), ExitStack() as lock:
        _lock(folder, lock)
        shutil.rmtree(folder)


def _lock(folder: Path, until: ExitStack) -> None:
    """Keeps other sessions from the folder. Does nothing where the file system has no locks.

    Raises:
        Error: Another session has it.
    """
    descriptor = until.enter_context(directory(folder.resolve()))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        until.close()
        raise Error(f"{folder}: another check uses it; wait for it, or choose another -o") from None
    except OSError:
        pass
