"""Searches for races: records a program repeatedly with different delays, and compares the
recordings.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ttanalyze import options
from ttanalyze.core import delays
from ttanalyze.core.values import Tolerance, Type
from ttanalyze.errors import Error, system_errors
from ttanalyze.format import open_run
from ttanalyze.format.files import expect_list, read_json
from ttanalyze.output import text
from ttanalyze.output.files import private, replacing
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.diff import DiffReport, Divergence, ProcessDiff, diff
from ttanalyze.verbs.race import pairs, suspects
from ttanalyze.verbs.race.instructions import late
from ttanalyze.verbs.race.report import Finding, RaceReport
from ttanalyze.verbs.record.program import find
from ttanalyze.verbs.record.series import Recording, Series
from ttanalyze.verbs.reduce import name_delays, reduce
from ttanalyze.verbs.reduce.search import Answers, NothingError

STATE = "race.json"
RECORDED = {"TT_PARAMS": "1", "TT_DETERMINISTIC": "1"}
MOST = 0xFFFFFFFF
SCALES = (10, 1)  # of the delay, by seed
REFERENCE, AGAIN = "reference", "again"
OnFinding = Callable[[RaceReport, Finding], None] | None


@dataclass(frozen=True)
class Settings:
    """What to search.

    Attributes:
        command: The program and its arguments.
        runs: The number of recordings with delays.
        first: The seed of the first one.
        stop: The number of findings after which the search stops, 0 for no limit.
        delay: The delay of instructions in nanoseconds. Every other seed uses ten times as much,
            because the delay that shows a race depends on the work that hides it.
        launch_delay: The delay of calls in nanoseconds, 0 for none.
        record: Further options of `record`, by variable. Without parameters the accesses of
            launches are unknown.
        sim: Whether to use the simulator.
        keep: Whether to keep recordings that do not differ.
        reduce: Whether to find the fewest delays with which a recording still differs.
        confidence: The maximal number of tries of each set of delays.
        tests: The maximal number of tests of the reduction.
        reduce_time: No test of a reduction begins after this many seconds, 0 for no limit.
    """

    command: tuple[str, ...]
    runs: int = 20
    first: int = 1
    stop: int = 1
    delay: int = 10_000
    launch_delay: int = 500_000
    record: Mapping[str, str] = field(default_factory=lambda: dict(RECORDED))
    sim: bool = False
    keep: bool = False
    reduce: bool = True
    confidence: int = 1
    tests: int = 200
    reduce_time: float = 40

    def check(self) -> None:
        """Checks the settings.

        Raises:
            Error: A value is out of range.
        """
        if not self.command:
            raise Error("expected a program")
        for option, value, least in (
            ("runs", self.runs, 1),
            ("seed", self.first, 0),
            ("stop", self.stop, 0),
            ("confidence", self.confidence, 1),
            ("tests", self.tests, 1),
        ):
            if not least <= value <= MOST:
                raise Error(f"--{option} {value}: expected a number from {least} to {MOST}")
        if not self.delay and not self.launch_delay:
            raise Error("--delay 0 and --launch-delay 0: nothing would be delayed")


class Race:
    """A search in a folder with its recordings. An interrupted search continues.

    Args:
        settings: What to search.
        out: The folder.
        types: The type of the items of a region by id or label; None: of all other regions.
        tolerance: Items this close do not count as different.
        on_finding: Called with each finding as soon as it is found, before its reduction.

    Raises:
        Error: The folder has something else in it.
    """

    def __init__(
        self,
        settings: Settings,
        out: Path,
        *,
        types: Mapping[str | int | None, Type] | None = None,
        tolerance: Tolerance | None = None,
        on_finding: OnFinding = None,
    ) -> None:
        settings.check()
        self.settings, self.out = settings, out
        self._series = Series(out, settings.command, settings.sim)
        self._types = dict(types) if types else None
        self._tolerance = tolerance
        self._varying: set[tuple[int, int]] = set()  # process and region
        self._incomparable: list[str] = []
        self._prints_the_same = True
        self._endings: set[int] = set()
        self._progress: Progress = None
        self._on_finding = on_finding
        self._same: list[int] = []
        self._other: list[int] = []
        self._prepare()

    def _prepare(self) -> None:
        wanted = _plain(self.settings)
        state = self.out / STATE
        with system_errors(self.out):
            if state.exists():
                known = read_json(state)
                if known.get("settings") == wanted:
                    for name, seeds in (("same", self._same), ("other", self._other)):
                        expect_list(state, "", known, name, int)
                        seeds += known.get(name, [])
                elif any(self.out.glob("*.status")):  # something was recorded
                    raise Error(f"{self.out} has a search with other options: --force replaces it")
            elif self.out.exists() and any(self.out.iterdir()):
                raise Error(f"{self.out} exists; choose another name, or replace it with --force")
            if not self.out.exists():
                find(self.settings.command[0])  # a wrong name leaves no folder
            self.out.mkdir(0o700, exist_ok=True)
        self._note()

    def _note(self) -> None:
        state = {"settings": _plain(self.settings), "same": self._same, "other": self._other}
        with replacing(self.out / STATE, private) as file:
            file.write(orjson.dumps(state, option=orjson.OPT_INDENT_2))

    # ---- recording ----

    def recording(self, name: str, variables: Mapping[str, str]) -> Recording:
        """Records the program, or returns the finished recording.

        Args:
            name: The name of the recording.
            variables: Variables of the recorder.

        Raises:
            Error: The program cannot be recorded.
        """
        return self._series.recording(name, {**self.settings.record, **NO_DELAYS, **variables})

    def variables(self, seed: int) -> dict[str, str]:
        """Returns the variables of the recorder for a seed.

        Args:
            seed: The seed.
        """
        delay = min(
            self.settings.delay * SCALES[seed % len(SCALES)], int(options.TABLE["delay"].limit)
        )
        given = {"TT_DELAY": delay, "TT_LAUNCH_DELAY": self.settings.launch_delay}
        return {"TT_DELAY_SEED": str(seed)} | {k: str(v) for k, v in given.items() if v}

    # ---- comparing ----

    def compare(self, reference: Recording, other: Recording) -> Finding | None:
        """Compares a recording with the reference, without regions that vary.

        Args:
            reference: The reference.
            other: The recording.

        Returns:
            What differs, None if nothing does.
        """
        report = self._diff(reference, other, every=bool(self._varying))
        divergence = self._first(report) if report is not None else None
        found = Finding(seed=-1, run=str(other.run), delays="")
        if other.status not in self._endings:
            found.status = other.status
        if divergence is not None:
            assert report is not None
            found.diff = report
        found.output = self._prints_the_same and other.output != reference.output
        differs = found.output or found.status is not None or found.diff
        return found if differs else None

    def _diff(self, a: Recording, b: Recording, *, every: bool) -> DiffReport | None:
        """Compares two recordings. Returns None if that is not possible."""
        try:
            return diff(a.run, b.run, every=every, types=self._types, tolerance=self._tolerance)
        except Error:
            self._incomparable.append(b.run.name)
            return None

    def _first(self, report: DiffReport) -> tuple[ProcessDiff, Divergence] | None:
        """Returns the first divergence that counts, and removes the others from the report."""
        for process in report.processes:
            process.divergences = [
                d
                for d in process.divergences
                if not d.leftover and (process.process_a, d.region_a) not in self._varying
            ]
        return report.first

    # ---- the search ----

    def run(self, progress: Progress = None) -> RaceReport:
        """Records and compares until enough recordings differ, or all are made.

        Args:
            progress: Called with the finished and the total number of recordings, then of delays of
                a reduction.

        Raises:
            Error: The program cannot be recorded, or there is nothing to compare.
        """
        self._progress = progress
        began = time.monotonic()
        settings = self.settings
        report = RaceReport(list(settings.command), str(self.out / REFERENCE), settings.sim)
        report.wanted = settings.runs
        reference = self._undelayed(report)
        for done, seed in enumerate(range(settings.first, settings.first + settings.runs)):
            tell(progress, done, settings.runs)
            report.runs = done + 1
            if seed in self._same:
                continue
            found = self._try(report, reference, seed)
            if found is not None:
                report.findings.append(found)
            if settings.stop and len(report.findings) >= settings.stop:
                break
        if self._incomparable:
            names = ", ".join(dict.fromkeys(self._incomparable))
            report.notes.append(f"memory can't be compared with the reference: {names}")
        report.seconds = round(time.monotonic() - began, 3)
        return report

    def _undelayed(self, report: RaceReport) -> Recording:
        """Returns the reference, and notes what differs without delays."""
        reference, again = (self.recording(name, {}) for name in (REFERENCE, AGAIN))
        self._prints_the_same = reference.output == again.output
        self._endings = {reference.status, again.status}
        found = self._diff(reference, again, every=True)
        if found is not None and not found.memory_same:
            meant = [(p, d) for p in found.processes for d in p.divergences if not d.leftover]
            self._varying = {(p.process_a, d.region_a) for p, d in meant}
            report.varies = sorted({d.label or f"region {d.region_a}" for _, d in meant})
            report.unsteady = found if meant else None
        if any(self._endings):
            statuses = " and ".join(map(str, dict.fromkeys((reference.status, again.status))))
            report.notes.append(f"runs without delays end with status {statuses}")
        if not self._prints_the_same:
            report.notes.append("output differs between runs without delays: it is not compared")
        return reference

    def _try(self, report: RaceReport, reference: Recording, seed: int) -> Finding | None:
        name = f"seed-{seed}"
        found = self.compare(reference, self.recording(name, self.variables(seed)))
        if found is None:
            self._same.append(seed)
            self._note()
            if not self.settings.keep:
                self._series.forget(name)
            return None
        if seed not in self._other:
            self._other.append(seed)
            self._note()
        found.seed = seed
        self._explain(found)
        config = None
        with contextlib.suppress(Error):
            config = delays.of_run(Path(found.run))
            path = self.out / f"{name}.json"
            _write(path, config)
            found.delays = str(path)
            points, calls = config.count_on()
            found.before = points + calls
            found.notes.append(
                f"delayed: {text.count(calls, 'call')} and "
                f"{text.count(points, 'instruction')} in kernels"
            )
        if self._on_finding is not None:
            self._on_finding(report, found)
        if self.settings.reduce and config is not None:
            with contextlib.suppress(Error):
                self._reduce(reference, found, config)
        return found

    def _explain(self, found: Finding) -> None:
        """Adds the unordered calls to a finding."""
        first = self._first(found.diff) if found.diff is not None else None
        if first is None:
            return
        process, divergence = first
        side = open_run(Path(found.run)).process(process.process_b)
        found.pairs = pairs.find(side, divergence.region_b, divergence.equal_b, divergence.epoch_b)

    # ---- the fewest delays ----

    def _with(self, reference: Recording, name: str, config: delays.Config) -> Finding | None:
        """Runs the program with exactly these delays, and returns the differences."""
        path = self.out / f"{name}.json"
        _write(path, config)
        self._series.forget(name)
        return self.compare(reference, self.recording(name, {"TT_DELAY_LOAD": str(path)}))

    def _reduce(self, reference: Recording, found: Finding, config: delays.Config) -> None:
        """Finds the fewest delays, and replaces the finding by a recording with only these."""
        name = f"seed-{found.seed}-trial"
        try:
            reduction = reduce(
                config,
                lambda tried: self._with(reference, name, tried) is not None,
                confidence=self.settings.confidence,
                limit=self.settings.tests + self.settings.confidence,  # of `known`
                seconds=self.settings.reduce_time,
                first=suspects.likely(config, found),
                # The recordings without delays are the same.
                known={frozenset(): Answers(0, self.settings.confidence)},
                progress=self._progress,
            )
        except NothingError as e:
            found.notes.append(f"not reduced: {e}")
            return
        finally:
            self._series.forget(name)
            (self.out / f"{name}.json").unlink(missing_ok=True)
        found.tests, found.reduced = reduction.runs - self.settings.confidence, True
        fewest = f"seed-{found.seed}-fewest"
        alone = self._with(reference, fewest, reduction.minimal)
        if reduction.status != "reduced" or alone is None:
            found.notes.append(
                f"with the delays that are left it differs only sometimes, or more "
                f"tests or time (--tests, --reduce-time) were needed ({reduction.status})"
            )
        if alone is not None:
            found.run, found.diff = alone.run, alone.diff
            found.status, found.output = alone.status, alone.output
            found.delays = str(self.out / f"{fewest}.json")
            self._explain(found)
        run = open_run(Path(found.run))
        found.late = late(name_delays(reduction.minimal, reduction.points, run), run)
        if all(one.instruction is not None for one in found.late):
            found.pairs = []  # it is within a kernel


# In place of what the environment says.
NO_DELAYS = {"TT_DELAY": "", "TT_LAUNCH_DELAY": "", "TT_DELAY_LOAD": ""}


def race(
    settings: Settings,
    out: Path,
    *,
    types: Mapping[str | int | None, Type] | None = None,
    tolerance: Tolerance | None = None,
    progress: Progress = None,
    on_finding: OnFinding = None,
) -> RaceReport:
    """Searches for races in a program.

    Args:
        settings: What to search.
        out: The folder of the recordings. An interrupted search continues there.
        types: The type of the items of a region by id or label; None: of all other regions.
        tolerance: Items this close do not count as different.
        progress: Called with the finished and the total number of recordings, then of delays of a
            reduction.
        on_finding: Called with each finding as soon as it is found, before its reduction.

    Raises:
        Error: The folder has something else in it, the program cannot be recorded, or there is
            nothing to compare.
    """
    search = Race(settings, out, types=types, tolerance=tolerance, on_finding=on_finding)
    return search.run(progress)


def _plain(settings: Settings) -> dict[str, Any]:
    """Returns the settings that recordings depend on, as JSON returns them."""
    names = ("command", "delay", "launch_delay", "record", "sim")
    known = asdict(settings)
    return orjson.loads(orjson.dumps({name: known[name] for name in names}))


def _write(path: Path, config: delays.Config) -> None:
    with replacing(path, private) as file:
        file.write(config.to_json().encode())


def remove(folder: Path) -> None:
    """Removes a search. Raises Error if the folder has none."""
    if not folder.exists():
        return
    if not (folder / STATE).is_file():
        raise Error(f"{folder} exists, but has no search; choose another name")
    with system_errors(folder):
        shutil.rmtree(folder)
