"""Runs the checks of a program, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.check import bounds, determinism, guard, order, uninitialized, values
from ttanalyze.verbs.check.findings import (
    CLEAN,
    FAILED,
    FOUND,
    NOT_COVERED,
    CheckReport,
    Outcome,
)
from ttanalyze.verbs.check.session import PLAIN, Plan, Session, Settings
from ttanalyze.verbs.record.series import NothingRecordedError


class Check(Protocol):
    """A module with one check.

    Attributes:
        NAME: The name, as in --only.
        DESCRIPTION: What the check looks for, in a few words.
    """

    NAME: str
    DESCRIPTION: str

    def recordings(self, settings: Settings) -> Plan:
        """Returns the recordings that the check makes."""

    def examine(self, session: Session) -> Outcome:
        """Looks for faults.

        Raises:
            Error: The check cannot look at the program.
        """


MODULES: tuple[Check, ...] = (bounds, determinism, order, uninitialized, values, guard)
ALL = {module.NAME: module for module in MODULES}
CHECKS = tuple(name for name in ALL if name != guard.NAME)  # guards change the alignment


def choose(names: str | None, guards: bool = False) -> list[str]:
    """Returns the names of the chosen checks.

    Args:
        names: Names separated by commas, None for all checks but the guard check.
        guards: Whether to add the guard check.

    Raises:
        Error: There is no such check.
    """
    if names is None:
        return [*CHECKS, guard.NAME] if guards else list(CHECKS)
    wanted = {name.strip() for name in names.split(",")}
    try:
        _named(wanted)
    except Error as e:
        raise Error(f"--only {names}: {e}") from None
    return [name for name in ALL if name in wanted or (guards and name == guard.NAME)]


def _named(names: Iterable[str]) -> list[Check]:
    """Returns checks by name.

    Raises:
        Error: There is no such check.
    """
    for name in names:
        if name not in ALL:
            raise Error(f"unknown check {name!r}; expected {', '.join(ALL)}")
    return [ALL[name] for name in names]


def check(
    settings: Settings,
    folder: Path,
    checks: Iterable[str] = CHECKS,
    *,
    say: Callable[[str], None] | None = None,
    progress: Progress = None,
) -> CheckReport:
    """Records a program as often as the checks need, and returns what they find.

    A second call with the same folder uses the finished recordings. KeyboardInterrupt ends the
    checks; the report then has what was found so far.

    Args:
        settings: What to check.
        folder: The folder of the recordings.
        checks: The names of the checks. Default: "bounds", "determinism", "order", "uninitialized"
            and "values"; there is "guard", too.
        say: Called with lines about the progress.
        progress: Called with the finished and the planned number of recordings.

    Raises:
        Error: The program cannot be run, the folder cannot be used, or there is no such check.

    Example:
        >>> settings = tt.check.Settings(("./vecadd",), sim=True)
        >>> report = tt.check(settings, Path("vecadd.check"), ["determinism"])
        >>> [(one.check, one.status, one.findings) for one in report.outcomes]
        [('determinism', 'clean', [])]
    """
    began = time.monotonic()
    chosen = _named(checks)
    session = Session(settings, folder, say=say, progress=progress)
    session.announce([one.recordings(settings) for one in chosen])
    session.known = _known
    try:
        outcomes, interrupted = _examine(session, chosen)
    finally:
        session.close()
    seconds = round(time.monotonic() - began, 3)
    command = list(settings.command)
    return CheckReport(command, str(folder), outcomes, session.runs, interrupted, seconds)


def _known(session: Session) -> dict[str, dict[str, Any]]:
    """The recordings that several checks share, as far as finished ones say how to make them."""
    plain = session.finished("plain")
    if plain is None:
        return {"plain": PLAIN}
    options = values.sampled(plain)
    return {"again": PLAIN, "values": options, **uninitialized.filled(session, options)}


def _examine(session: Session, checks: Sequence[Check]) -> tuple[list[Outcome], bool]:
    """The outcomes of all checks, and whether a signal ended one of them."""
    outcomes: list[Outcome] = []
    interrupted = False
    # Of the checks that look at contents, one does so while the fills of the other are recorded.
    alone = session.settings.jobs == 1
    for one in sorted(checks, key=lambda one: alone and one is uninitialized):
        if interrupted:
            outcomes.append(Outcome(one.NAME, NOT_COVERED, "interrupted before it began"))
            continue
        session.begin()
        since = time.monotonic()
        try:
            outcome = one.examine(session)
        except KeyboardInterrupt:
            interrupted = True
            outcome = session.partial or Outcome(one.NAME, NOT_COVERED)
            outcome.status = NOT_COVERED
            outcome.reason = "; ".join(filter(None, [outcome.reason, "interrupted"]))
        except NothingRecordedError as e:
            outcome = Outcome(one.NAME, FAILED if e.status else NOT_COVERED, str(e))
        except Error as e:
            outcome = session.partial or Outcome(one.NAME, FAILED)
            outcome.status = FAILED
            outcome.reason = "; ".join(filter(None, [outcome.reason, str(e)]))
        outcomes.append(_judged(session, outcome))
        outcome.seconds = round(time.monotonic() - since, 3)
        session.say(_line(outcome))
    names = [one.NAME for one in checks]
    return sorted(outcomes, key=lambda outcome: names.index(outcome.check)), interrupted


def _judged(session: Session, outcome: Outcome) -> Outcome:
    """The outcome without ignored findings: found if any are left, else what the check says of the
    rest. It is not clean if a recording failed. Otherwise it says so if all of them did.
    """
    every, outcome.findings = outcome.findings, session.kept(outcome.findings)
    if outcome.findings:
        outcome.status = FOUND
    elif every:
        outcome.status = CLEAN if outcome.status == FOUND else outcome.status
        outcome.reason = "; ".join(filter(None, [outcome.reason, "all findings are ignored"]))
    every_fault = [session.fault(one) for one in session.used.values()]
    faults = [fault for fault in every_fault if fault]
    if faults and outcome.status == CLEAN:
        outcome.status, outcome.reason = FAILED, faults[0]
    elif faults and outcome.status != FAILED and len(faults) == len(every_fault):
        outcome.reason = "; ".join(filter(None, [outcome.reason, faults[0]]))
    return outcome


def _line(outcome: Outcome) -> str:
    if outcome.status == FOUND:
        return f"{outcome.check}: {text.count(len(outcome.findings), 'finding')}"
    return f"{outcome.check}: {outcome.status}" + (f": {outcome.reason}" if outcome.reason else "")
