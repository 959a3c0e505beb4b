"""`pytest --tt-check`: each test runs alone, in processes of its own, under `ttanalyze check`."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttanalyze.errors import Error
from ttanalyze.integrations.pytest_items import CHILD, DifferentError, RecordedItem
from ttanalyze.output import text
from ttanalyze.verbs.check import CheckReport, Settings, check
from ttanalyze.verbs.check.check import choose
from ttanalyze.verbs.check.findings import CLEAN, FAILED, FOUND, NOT_COVERED, Finding
from ttanalyze.verbs.check.show import check_text

PROPERTY = "tt_check"


def replace_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replaces all tests.

    Raises:
        pytest.UsageError: There is no such check.
    """
    try:
        checks = choose(config.option.tt_check_only)
    except Error as e:
        raise pytest.UsageError(str(e).replace("--only", "--tt-check-only", 1)) from None
    for i, item in enumerate(items):
        if item.parent is not None:
            items[i] = CheckedItem.from_parent(
                item.parent, name=item.name, test=item, checks=checks
            )


class CheckedItem(RecordedItem):
    """Stands for a test, which runs under checks."""

    def __init__(self, *, checks: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._checks = checks

    def runtest(self) -> None:
        with self._folder() as folder, tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            told, order = scratch / "told", scratch / "order"
            order.write_bytes(pickle.dumps(self._order(scratch, told)))
            settings = Settings(
                (sys.executable, "-B", "-c", CHILD, str(order)),
                record={"epoch": self._epoch()},
                sim=self.config.option.tt_sim,
            )
            before = os.getcwd()
            os.chdir(self.config.invocation_params.dir)
            try:
                report = check(settings, folder / "check", self._checks)
            finally:
                os.chdir(before)
            lines = told.read_text().splitlines() if told.exists() else []
            self._add_output(folder / "check")
        if report.interrupted:
            raise KeyboardInterrupt
        self._judge([json.loads(line) for line in lines], 0, "a run under check")
        self._tell(report)

    def _add_output(self, folder: Path) -> None:
        """Adds what the test printed in the first run."""
        for log in sorted(folder.glob("plain.log")):
            if content := log.read_text(errors="replace"):
                self.add_report_section("call", "stdout", content)

    def _tell(self, report: CheckReport) -> None:
        """Fails with what was found, or notes what was covered."""
        statuses = {outcome.status for outcome in report.outcomes}
        if statuses & {FOUND, FAILED}:
            kept = bool(self.config.option.tt_keep)
            hint = "" if kept else "\n\nTo examine the runs: --tt-keep DIR."
            for outcome in report.outcomes:
                outcome.findings = [_shown(found, kept) for found in outcome.findings]
            raise DifferentError(f"{_first(report)}\n\n{check_text(report)}{hint}")
        clean = [outcome.check for outcome in report.outcomes if outcome.status == CLEAN]
        self.user_properties.append((PROPERTY, ", ".join(clean) or NOT_COVERED))


def _first(report: CheckReport) -> str:
    """A line for pytest's summary: the first finding, else why a check failed."""
    for found in report.findings:
        return f"{found.check}: {found.summary}"
    failed = next(outcome for outcome in report.outcomes if outcome.status == FAILED)
    return f"{failed.check} failed: {failed.reason}"


def _shown(found: Finding, kept: bool) -> Finding:
    """The finding without frames of pytest, and without runs that are gone."""
    call, step = found.call, found.step
    if call is not None:
        own = [i for i, frame in enumerate(call.stack) if "/_pytest/" in frame]
        call = replace(call, stack=call.stack[own[-1] + 1 :] if own else call.stack)
    if kept:
        return replace(found, call=call)
    return replace(found, call=call, step=step and step.partition(" of ")[0], command=[])


def summary(values: Sequence[str]) -> str:
    """Returns a line for the end of pytest's output: what was covered where nothing was found."""
    lacking = values.count(NOT_COVERED)
    line = f"ttanalyze: check found nothing in {text.count(len(values), 'test')}"
    return line + (f", of which it did not cover {lacking}" if lacking else "")
