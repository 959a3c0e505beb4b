"""Searches for races: records a program repeatedly with different delays, and compares the
recordings.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
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
from ttanalyze.verbs.race.settings import Settings
from ttanalyze.verbs.race.streams import late_streams
from ttanalyze.verbs.record.ahead import Ahead
from ttanalyze.verbs.record.program import find
from ttanalyze.verbs.record.series import Recording, Series
from ttanalyze.verbs.reduce import reduce
from ttanalyze.verbs.reduce.delayed_instructions import name_delays
from ttanalyze.verbs.reduce.search import Answers, NothingError

STATE = "race.json"
SCALES = (10, 1)  # of the delay, by seed
REFERENCE, AGAIN = "reference", "again"
OnFinding = Callable[[RaceReport, Finding], None] | None


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
        self.settings, self.out = settings, out
        self._series = Series(out, settings.command, settings.sim)
        self._ahead = Ahead(self._series, settings.jobs)
        self._seed = settings.first
        self._tests = 1  # the next of all reductions
        self._reducing = False
        self._streams: list[delays.Config] | None = None  # the first seeds' delays, once known
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
        for test in self.out.glob("test-*.status"):
            self._series.forget(test.stem)
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
        self._expect()
        return self._ahead.recording(name, self._whole(variables))

    def _whole(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {**self.settings.record, **NO_DELAYS, **variables}

    def _expect(self) -> None:
        """Says which recordings may come next: those without delays first, then tests of delays and
        those of seeds by turns. While delays are reduced, there are only tests.
        """
        settings = self.settings
        expected = [
            self._test(number) for number in range(self._tests, self._tests + settings.jobs)
        ]
        if not self._reducing:
            left = range(self._seed, settings.first + settings.runs)
            new = [n for n in left if n not in self._same and self._late(n) is None]
            known = new[: settings.jobs] if self._streams is not None else []
            seeds = [(f"seed-{n}", self.variables(n)) for n in known]
            turns = itertools.chain(*itertools.zip_longest(expected, seeds))
            expected = [(REFERENCE, {}), (AGAIN, {}), *filter(None, turns)]
        self._ahead.expect({name: self._whole(given) for name, given in expected})

    def _late(self, seed: int) -> delays.Config | None:
        """Returns the delays of a stream, None if this seed has random delays."""
        known, number = self._streams or [], seed - self.settings.first
        return known[number] if number < len(known) else None

    def _test(self, number: int) -> tuple[str, dict[str, str]]:
        name = f"test-{number}"
        return name, {"TT_DELAY_LOAD": str(self.out / f"{name}.json")}

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
        with contextlib.closing(self._ahead):
            self._search(report)
        if self._incomparable:
            names = ", ".join(dict.fromkeys(self._incomparable))
            report.notes.append(f"memory can't be compared with the reference: {names}")
        if self._ahead.alone:
            report.notes.append("the program fails beside other runs: each was made alone")
        report.seconds = round(time.monotonic() - began, 3)
        return report

    def _search(self, report: RaceReport) -> None:
        settings = self.settings
        reference = self._undelayed(report)
        late = settings.launch_delay and settings.record.get("TT_LAUNCH_DELAY_MODE") != "host"
        run = open_run(reference.run)
        self._streams = late_streams(run, settings.launch_delay) if late else []
        for done, seed in enumerate(range(settings.first, settings.first + settings.runs)):
            tell(self._progress, done, settings.runs)
            report.runs, self._seed = done + 1, seed
            if seed in self._same:
                continue
            found = self._try(report, reference, seed)
            if found is not None:
                report.findings.append(found)
            if settings.stop and len(report.findings) >= settings.stop:
                break

    def _undelayed(self, report: RaceReport) -> Recording:
        """Returns the reference, and notes what differs without delays."""
        reference, again = (self.recording(name, {}) for name in (REFERENCE, AGAIN))
        self._prints_the_same = reference.output == again.output
        self._endings = {reference.status, again.status}
        self._ahead.usual = self._endings
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
        found = self.compare(reference, self._delayed(name, seed))
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

    def _delayed(self, name: str, seed: int) -> Recording:
        late = self._late(seed)
        if late is None or self._series.finished(name) is not None:
            return self.recording(name, self.variables(seed))
        return self._series.rename(self._tested(late).run.name, name)

    def _explain(self, found: Finding) -> None:
        """Adds the unordered calls to a finding."""
        first = self._first(found.diff) if found.diff is not None else None
        if first is None:
            return
        process, divergence = first
        side = open_run(Path(found.run)).process(process.process_b)
        found.pairs = pairs.find(side, divergence.region_b, divergence.equal_b, divergence.epoch_b)

    # ---- the fewest delays ----

    def _tested(self, config: delays.Config) -> Recording:
        """Runs the program with exactly these delays."""
        name, given = self._test(self._tests)
        path = self.out / f"{name}.json"
        _write(path, config)
        try:
            return self.recording(name, given)
        finally:
            self._tests += 1
            path.unlink()

    def _reduce(self, reference: Recording, found: Finding, config: delays.Config) -> None:
        """Finds the fewest delays, and replaces the finding by a recording with only these."""
        kept: list[tuple[str, str]] = []  # the last test that differed: its name and its delays

        def fails(tried: delays.Config) -> bool:
            test = self._tested(tried)
            differs = self.compare(reference, test) is not None
            if differs:
                kept.append((test.run.name, tried.to_json()))
            for name in [name for name, _ in kept[:-1]] if differs else [test.run.name]:
                self._series.forget(name)
            del kept[:-1]
            return differs

        self._reducing = True
        try:
            reduction = reduce(
                config,
                fails,
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
            self._reducing = False
        found.tests, found.reduced = reduction.runs - self.settings.confidence, True
        fewest = f"seed-{found.seed}-fewest"
        alone = self._alone(reference, fewest, reduction.minimal, kept)
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

    def _alone(
        self,
        reference: Recording,
        name: str,
        minimal: delays.Config,
        kept: list[tuple[str, str]],
    ) -> Finding | None:
        """Returns how a recording with these delays differs. A kept test with them is taken."""
        path = self.out / f"{name}.json"
        _write(path, minimal)
        self._series.forget(name)
        for test, delayed in kept:
            if delayed == minimal.to_json():
                self._series.rename(test, name)
            else:
                self._series.forget(test)
        given = self._whole({"TT_DELAY_LOAD": str(path)})
        return self.compare(reference, self._ahead.recording(name, given))


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

    Example:
        >>> settings = tt.race.Settings(("./vecadd",), runs=2, delay=0, sim=True)
        >>> report = tt.race(settings, Path("vecadd.race"))
        >>> report.found, report.runs
        (False, 2)
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
