"""The third door: CUPTI calls the recorder around each call of the program.

Without a GPU, a library before the simulator is both the driver and its CUPTI (cupti_entry_lib).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.support import Outcome

Program = Callable[..., Outcome]
ENTRY = support.ROOT / "interpose" / "entry"


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the driver that stands before the simulator, and its CUPTI."""
    folder = tmp_path_factory.mktemp("drivers")
    library = folder / "libcuda.so.1"
    source = support.PROGRAMS / "cupti_entry_lib.c"
    command = ["gcc", "-O1", "-w", "-shared", "-fPIC", f"-I{support.ROOT / 'interpose'}"]
    subprocess.run([*command, "-o", str(library), str(source), "-ldl"], check=True)
    (folder / "libcupti.so.13").symlink_to(library.name)
    return folder


@pytest.fixture
def followed(drivers: Path, built: Path, tmp_path: Path) -> Program:
    """Runs a program that CUPTI reports to the recorder; the run is tmp_path/run."""

    def run(name: str, variables: dict[str, str] | None = None, **options: str) -> Outcome:
        environment = support.simulator_environment(SIMULATOR=str(support.SIMULATOR))
        environment["LD_LIBRARY_PATH"] = str(drivers)
        environment |= {"CUDA_INJECTION64_PATH": str(support.SHIM), "TT_OUT": str(tmp_path / "run")}
        environment |= {f"TT_{key.upper()}": value for key, value in options.items()}
        return support.run(support.command(name, built), environment | (variables or {}))

    return run


PROGRAMS = ("example-vecadd", "example-training", "example-graph", "example-async")


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_cupti_sees_what_wrappers_see(
    name: str, followed: Program, built: Path, tmp_path: Path
) -> None:
    command, preloaded = support.command(name, built), tmp_path / "preloaded"
    bare = support.run(command, support.simulator_environment())
    support.run(command, support.recording(support.simulator_environment(), preloaded))
    assert followed(name, entry="cupti") == bare
    expected, run = tt.open(preloaded), tt.open(tmp_path / "run")
    columns = ["kind", "call", "stream", "region", "bytes", "result"]
    columns = [column for column in columns if column in expected.events]
    assert run.events[columns].equals(expected.events[columns])
    assert len(run.epochs) == len(expected.epochs) > 1
    assert tt.verify(run, preloaded / "manifest.json").same
    assert not run.warnings


def test_cupti_is_used_where_stubs_are_unknown(followed: Program, tmp_path: Path) -> None:
    outcome = followed("example-vecadd")
    assert outcome.status == 0
    assert outcome.stderr == (
        "ttanalyze: CUPTI reports the program's calls, without LD_PRELOAD: "
        "the entry points of this driver have an unknown form\n"
    )
    assert len(tt.open(tmp_path / "run").epochs) > 1


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"deterministic": "1"}, "TT_ENTRY=cupti needs TT_DETERMINISTIC=0"),
        ({"replayable": "1"}, "TT_ENTRY=cupti needs TT_DETERMINISTIC=0"),
        ({"delay": "2000"}, "TT_ENTRY=cupti needs TT_DELAY=0"),
        ({"timeline": "cupti"}, "TT_ENTRY=cupti needs another TT_TIMELINE than cupti"),
        (
            {"epoch": "graph-node:add"},
            "needs another TT_ENTRY than cupti: CUPTI can't change graphs",
        ),
        ({"cpu_callstack": "mixed"}, "needs another TT_ENTRY than cupti"),
    ],
)
@pytest.mark.parametrize("entry", ["auto", "cupti"])
def test_options_that_change_calls_are_refused(
    entry: str, options: dict[str, str], why: str, followed: Program, tmp_path: Path
) -> None:
    outcome = followed("example-vecadd", entry=entry, **options)
    assert outcome.status == 0 and why in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_cupti_that_another_tool_uses_is_not_taken(followed: Program, tmp_path: Path) -> None:
    outcome = followed("example-vecadd", {"TAKEN": "1"}, entry="cupti")
    assert outcome.status == 0
    assert outcome.stderr == (
        "ttanalyze: recording stopped: CUPTI can't be the way in: "
        "it is in use by the program or by another tool\n"
    )


@pytest.mark.parametrize("name", ["threads_own_streams", "threads_small_stack"])
def test_calls_of_each_thread_are_followed(
    name: str, followed: Program, built: Path, tmp_path: Path
) -> None:
    command, preloaded = support.command(name, built), tmp_path / "preloaded"
    bare = support.run(command, support.simulator_environment())
    support.run(command, support.recording(support.simulator_environment(), preloaded))
    assert followed(name, entry="cupti") == bare
    kinds, expected = (tt.open(run).events["kind"] for run in (tmp_path / "run", preloaded))
    assert sorted(kinds) == sorted(expected)


def test_arguments_are_those_of_the_header() -> None:
    """call_arguments.h is what its script makes of cuda.h."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import call_arguments as c; "
    command = [sys.executable, "-c", code + "print(c.header(), end='')", str(ENTRY)]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert made.stdout == (ENTRY / "call_arguments.h").read_text()
