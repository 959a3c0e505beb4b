"""Fixtures: the native libraries, where programs are built, runs to read.

TT_LIB names a folder of libraries other than the package's, such as a sanitizer build. With
--sample N a test runs with each Nth of its parameters if it has many and is not marked whole, or is
marked native or sampled. With --part I/N only each Nth test from the Ith runs. Tests that need the
GPU to themselves come last: the others need not stop for each of them.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import shutil
import signal
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests import drain_run, forked, support
from tests.rundir import Writer, small_run
from ttanalyze.cli import run_command

ID_LENGTH = 60  # characters of a value in the name of a case
MANY = 8  # parameters

# Their failures show what differs.
pytest.register_assert_rewrite("tests.recordings", "tests.graph_epochs", "tests.graph_memory")
BUILT = support.ROOT / "build" / "tests"
IN_USE_SECONDS = 3600


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Returns the name of a case: its options or items. None lets pytest choose."""
    if isinstance(val, bool):
        return f"{argname}={val}"
    if isinstance(val, dict):
        shown = " ".join(f"{key}={value}" for key, value in val.items())
    elif isinstance(val, (list, tuple)):
        shown = " ".join(map(str, val))
    elif isinstance(val, str) and len(val) > ID_LENGTH:
        shown = val
    else:
        return None
    readable = shown.isprintable() and " at 0x" not in shown
    return (shown[:ID_LENGTH] or f"no {argname}") if readable else None


def pytest_configure() -> None:
    """Programs begin with the signals of a terminal, even where the tests were begun without."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    forked.build_commands_once()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        type=int,
        default=1,
        help=f"each Nth of the parameters of tests with over {MANY}, or marked so",
    )
    parser.addoption("--part", type=part, default=(1, 1), metavar="I/N", help="each Nth test")


def part(text: str) -> tuple[int, int]:
    """I and N of "I/N"."""
    which, of = map(int, text.split("/"))
    if not 1 <= which <= of:
        raise ValueError(f"there is no part {text}")
    return which, of


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test begins elsewhere, so that together they see most parameters."""
    step = config.getoption("--sample")
    of: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    kept: set[pytest.Item] = set()
    for item in items:
        of[item.nodeid.partition("[")[0]].append(item)
    for name, some in of.items():
        marks = {mark.name for mark in some[0].iter_markers()}
        many = len(some) > MANY and "whole" not in marks
        each = step if many or marks & {"native", "sampled"} else 1
        kept.update(some[zlib.crc32(name.encode()) % min(each, len(some)) :: each])
    which, parts = config.getoption("--part")
    ordered = sorted(items, key=lambda item: item.get_closest_marker("exclusive") is not None)
    chosen = [item for item in ordered if item in kept][which - 1 :: parts]
    kept &= set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def pytest_collection_finish() -> None:
    """Garbage collections need not visit the modules and the tests again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def built() -> Path:
    """Where support.command and support.build_program put what they compile.

    Processes share it. It is kept from one run of the tests to the next as long as no source
    changes; what another run may still be using stays too.
    """
    digest = hashlib.sha256()
    headers = [support.ROOT / "interpose" / "include" / "cuda.h"]
    sources = [*support.PROGRAMS.glob("*.[ch]"), *support.EXAMPLES.glob("*.[ch]"), *headers]
    for path in sorted(sources):
        digest.update(path.read_bytes())
    folder = BUILT / digest.hexdigest()[:16]
    for old in BUILT.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process of this run was quicker
            if old != folder and time.time() - old.stat().st_mtime > IN_USE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Where a run may be written."""
    return tmp_path / "run"


@pytest.fixture
def small(run_path: Path) -> Writer:
    """A small run of one process, with everything in it."""
    return small_run(run_path)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> support.Cli:
    """Runs a command line in this process."""

    def run(*arguments: str | Path) -> support.Outcome:
        status = run_command([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return support.Outcome(out, support.PROGRESS.sub("", err), status)

    return run


@pytest.fixture(scope="session")
def drain_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources that write run directories, as a library of their own."""
    return drain_run.build_library(tmp_path_factory.mktemp("drain"))


@pytest.fixture(scope="session")
def drain(drain_path: Path) -> Any:
    """The same, loaded."""
    return drain_run.FFI.dlopen(str(drain_path))


@pytest.fixture(scope="session")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses them from many threads, built with sanitizers."""
    target = tmp_path_factory.mktemp("stress") / "stress"
    sources = [drain_run.STRESS, *drain_run.SOURCES]
    return drain_run.build(target, sources, *drain_run.SANITIZE)
