"""A pytest plugin that finds nondeterministic GPU tests: `pytest --tt-verify`.

A test with the marker or the fixture `gpu_determinism` runs twice under the recorder, each time in
a process of its own. It fails if the two runs leave different memory. A golden manifest beside the
test, written by `--tt-update`, is compared too.

Pytest imports this module wherever ttanalyze is installed, so it imports other modules only when it
needs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ttanalyze.integrations.pytest_items import (
    CHILD,
    NAME,
    DifferentError,
    RecordedItem,
)

__all__ = ["Recording"]

# Besides what the comparison needs, what tells most of who wrote where.
RECORDED = {"deterministic": True, "params": True, "cpu_callstack": "auto"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ttanalyze", "GPU memory (ttanalyze)")
    group.addoption(
        "--tt-verify",
        action="store_true",
        help=f"run tests marked {NAME} twice under the recorder; fail where GPU memory differs",
    )
    group.addoption(
        "--tt-update",
        action="store_true",
        help="the same, and write the golden manifests that later runs are compared with",
    )
    group.addoption(
        "--tt-check",
        action="store_true",
        help="run each test alone under ttanalyze check; fail where a check finds a fault",
    )
    group.addoption(
        "--tt-check-only", metavar="CHECKS", help="with --tt-check: these checks, by commas"
    )
    group.addoption("--tt-sim", action="store_true", help="record on the simulator, without a GPU")
    group.addoption(
        "--tt-epoch",
        metavar="WHEN",
        default="sync,api",
        help="when to capture, as in ttanalyze record (default sync,api)",
    )
    group.addoption("--tt-keep", metavar="DIR", help="keep the recorded runs in this folder")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{NAME}(epoch=WHEN, golden=True): with --tt-verify, the test must leave the same GPU "
        "memory whenever it runs",
    )

    if config.option.tt_check and _wanted(config):
        raise pytest.UsageError("--tt-check cannot be combined with --tt-verify or --tt-update")


def _wanted(config: pytest.Config) -> bool:
    return bool(config.option.tt_verify or config.option.tt_update)


def pytest_report_header(config: pytest.Config) -> str | None:
    where = "on the simulator" if config.option.tt_sim else "on the GPU"
    if config.option.tt_check:
        return f"ttanalyze: each test runs alone under check, {where}"
    if not _wanted(config):
        return None
    return f"ttanalyze: tests marked {NAME} run twice, {where}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replaces the tests that are to be recorded."""
    if config.option.tt_check:
        from ttanalyze.integrations.pytest_check import replace_tests

        replace_tests(config, items)
    if not _wanted(config):
        return
    for i, item in enumerate(items):
        marked = item.get_closest_marker(NAME) or NAME in getattr(item, "fixturenames", ())
        if marked and item.parent is not None:
            items[i] = VerifiedItem.from_parent(item.parent, name=item.name, test=item)


@dataclass(frozen=True)
class Recording:
    """The value of the fixture `gpu_determinism`.

    Attributes:
        recorded: Whether this process is recorded.
    """

    recorded: bool

    def epoch(self, label: str, stream: int = 0) -> None:
        """Captures an epoch after all work that was submitted to a stream so far.

        It does nothing in a process that is not recorded.

        Args:
            label: The label of the epoch.
            stream: The CUstream.
        """
        import ctypes

        recorder = ctypes.CDLL(None)
        if hasattr(recorder, "tt_epoch"):
            recorder.tt_epoch(ctypes.c_void_p(stream), label.encode())


@pytest.fixture(name=NAME)
def _recording() -> Recording:
    """With --tt-verify, checks that the test leaves the same GPU memory in each run."""
    import ctypes

    return Recording(hasattr(ctypes.CDLL(None), "tt_epoch"))


class VerifiedItem(RecordedItem):
    """Stands for a test that runs twice, in processes of its own."""

    def runtest(self) -> None:
        with self._folder() as folder:
            first = self._run(folder / "first", "its first run")
            second = self._run(folder / "second", "its second run")
            self._compare(first, second, "two runs of the test leave different GPU memory", folder)
            self._golden(first, folder)

    # ---- running ----

    def _run(self, out: Path, which: str) -> Path:
        """Runs the test under the recorder. Fails, or is skipped, as the test does by itself."""
        with tempfile.TemporaryDirectory(prefix="ttanalyze-pytest-") as name:
            scratch = Path(name)
            order, told = scratch / "order", scratch / "told"
            order.write_bytes(pickle.dumps(self._order(scratch, told)))
            with self._environment(out) as environment:
                done = subprocess.run(
                    [sys.executable, "-c", CHILD, str(order)],
                    env=environment,
                    cwd=self.config.invocation_params.dir,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                )
            reports = [json.loads(line) for line in _lines(told)]
        for kind, content in (("stdout", done.stdout), ("stderr", done.stderr)):
            if content:
                self.add_report_section("call", kind, f"in {which}:\n{content}")
        if done.returncode == pytest.ExitCode.INTERRUPTED and not reports:
            raise KeyboardInterrupt
        self._judge(reports, done.returncode, which)
        if not (out / "run.json").exists() and not (out / "p0").exists():
            raise DifferentError("nothing was recorded: the test made no CUDA context current")
        return out

    @contextlib.contextmanager
    def _environment(self, out: Path) -> Iterator[dict[str, str]]:
        """The environment of a process that is recorded."""
        from ttanalyze import options
        from ttanalyze.errors import Error
        from ttanalyze.util import libraries
        from ttanalyze.verbs.record.run import driver_loads, launch_environment, without

        sim = self.config.option.tt_sim
        if not sim and not driver_loads():
            raise Error("no GPU driver (libcuda.so.1) here; add --tt-sim for the simulator")
        given = {"epoch": self._epoch(), **RECORDED}
        simulator = str(libraries.simulator()) if sim else None
        with contextlib.ExitStack() as stack:
            environment = launch_environment(
                os.environ,
                preload=stack.enter_context(without(str(libraries.shim()), " :")),
                simulator=stack.enter_context(without(simulator, " :;")) if simulator else None,
            )
            environment |= options.variables(given, os.environ)
            yield environment | {"TT_OUT": str(out), "PYTHONDONTWRITEBYTECODE": "1"}

    # ---- comparing ----

    def _compare(self, a: Path, b: Path, what: str, folder: Path) -> None:
        from ttanalyze.verbs.diff import diff
        from ttanalyze.verbs.diff.show import diff_text

        report = diff(a, b)
        compared = sum(process.common for process in report.processes)
        if report.same:
            self.user_properties.append((NAME, f"{compared} epochs are the same"))
            return
        if self.config.option.tt_keep:
            hint = f"The runs are in {folder}; examine them with ttanalyze diff or ttanalyze tui."
        else:
            hint = "To examine the runs, keep them with --tt-keep DIR."
        raise DifferentError(f"{what}\n\n{diff_text(report)}\n\n{hint}")

    def _golden(self, run: Path, folder: Path) -> None:
        """Compares with the golden manifest, or writes it."""
        marker = self.get_closest_marker(NAME)
        if marker is not None and not marker.kwargs.get("golden", True):
            return
        path = self.path.parent / "__gpu__" / self.path.stem / f"{self._file_name()}.json"
        if self.config.option.tt_update:
            self._update(path, run)
        elif path.exists():
            what = f"GPU memory differs from {path} (--tt-update accepts the new contents)"
            self._compare(path, run, what, folder)

    def _update(self, path: Path, run: Path) -> None:
        from ttanalyze.format import manifest, open_run

        text = manifest.text(open_run(run).manifest())
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        draft.write_text(text)
        draft.replace(path)
        self.user_properties.append(("gpu_golden", str(path)))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [r for found in terminalreporter.stats.values() for r in found]
    if config.option.tt_update:
        for path in sorted(set(_values(reports, "gpu_golden"))):
            terminalreporter.write_line(f"ttanalyze: wrote {path}")
    if config.option.tt_check:
        from ttanalyze.integrations.pytest_check import PROPERTY, summary

        terminalreporter.write_line(summary(_values(reports, PROPERTY)))


def _values(reports: list[Any], name: str) -> list[str]:
    """What tests noted under this name."""
    calls = [r for r in reports if getattr(r, "when", None) == "call"]
    return [value for r in calls for key, value in r.user_properties if key == name]


# ---- in the process of a test ----


class _Teller:
    """Writes down how the test went, a line of JSON for each step."""

    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell(report, "collection")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tell(report, report.when)

    def _tell(self, report: Any, when: str | None) -> None:
        skipped = report.outcome == "skipped" and isinstance(report.longrepr, tuple)
        words = report.longrepr[2] if skipped else report.longreprtext
        line = {
            "when": when,
            "outcome": report.outcome,
            "xfailed": report.outcome == "skipped" and hasattr(report, "wasxfail"),
            "text": words.removeprefix("Skipped: ") if skipped else words,
        }
        with open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")


def child() -> int:
    """Runs one test in a process of its own. The first argument names a file with its
    description.
    """
    order = pickle.loads(Path(sys.argv[1]).read_bytes())
    sys.path[:] = order["path"]
    config = pytest.Config.fromdictargs(order["options"], order["arguments"])
    config.pluginmanager.register(_Teller(order["told"]))
    return int(config.hook.pytest_cmdline_main(config=config))
