"""diff of programs recorded on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.diff_runs import compared
from ttanalyze.core import values
from ttanalyze.verbs.diff.show import diff_text

Record = Callable[..., Path]


@pytest.fixture(scope="module")
def record(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Records a program, each command once; again: one more time."""
    folder = tmp_path_factory.mktemp("recorded")
    known: dict[tuple[object, ...], Path] = {}

    def run(name: str, *arguments: str, options: tuple[str, ...] = (), again: int = 0) -> Path:
        key = (name, arguments, options, again)
        if key not in known:
            path = folder / str(len(known))
            program = [*support.command(name, built), *arguments]
            done = support.ttanalyze("record", "--sim", "-q", "-o", path, *options, "--", *program)
            assert done.status == 0, done.stderr
            known[key] = path
        return known[key]

    return run


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["vecadd", "pipeline", "training", "graph", "async", "managed"])
def test_program_recorded_twice_is_the_same(record: Record, name: str) -> None:
    first, again = (record(f"example-{name}", again=i) for i in (0, 1))
    report = compared(first, again)
    assert report.same, diff_text(report)
    assert report.processes[0].region_epochs > 0


def test_perturbed_sum_is_found(record: Record) -> None:
    first = record("example-vecadd", "--steps", "8", options=("--params",))
    second = record("example-vecadd", "--steps", "8", "--perturb", "5", options=("--params",))
    report = compared(first, second, types=values.parse("f32"), every=True)
    assert report.first is not None
    process, found = report.first
    assert (found.epoch_a, found.equal_a, found.region_a, found.until_a) == (5, 4, 0, None)
    assert found.bytes is not None and found.values is not None
    assert found.bytes.first % 4 == 0 and found.bytes.count <= 4
    assert found.values.first == [found.bytes.first // 4]
    copy, add = found.suspects
    assert (copy.kind, copy.bytes, copy.seq_a, copy.alone) == ("copy", 4, None, True)
    assert (add.kernel, add.parameters, add.how) == ("add", "same", "is given a pointer to it")
    assert [d.region_a for d in process.divergences] == [0, 1], "the sum differs as well"
    launches = process.launches
    assert launches is not None and (launches.same, launches.others_b) == (8, 1)


@pytest.mark.long
def test_perturbed_training_is_found_by_step_and_by_launch(record: Record) -> None:
    """At waits the step is found, at launches the very one."""
    name, perturb = "example-training", ("--perturb", "3")
    fine = ("--epoch", "launch", "--params")
    coarse = compared(record(name), record(name, *perturb))
    assert coarse.first is not None
    exact = compared(record(name, options=fine), record(name, *perturb, options=fine))
    assert exact.first is not None
    assert coarse.first[1].suspect_count > exact.first[1].suspect_count == 2
    assert exact.first[1].suspects[0].kind == "copy"
    assert exact.first[1].bytes is not None and exact.first[1].bytes.count <= 4
    mixed = compared(record(name, options=fine), record(name, *perturb))
    assert mixed.first is not None
    assert mixed.first[1].epoch_b == coarse.first[1].epoch_b
    assert mixed.processes[0].common == coarse.processes[0].common
    assert mixed.first[1].digest_b == coarse.first[1].digest_b


def test_tolerance_accepts_small_training_differences(record: Record) -> None:
    first, second = record("example-training"), record("example-training", "--perturb", "3")
    types = values.parse("f32")
    wide = compared(first, second, types=types, tolerance=values.Tolerance(abs=10.0))
    assert wide.memory_same and wide.processes[0].tolerated > 0
    assert wide.processes[0].others_differ, "the copy that perturbs it is only in one"
    assert not wide.processes[0].launches_differ
    narrow = compared(first, second, types=types, tolerance=values.Tolerance(abs=1e-3))
    assert narrow.first is not None
    exact = compared(first, second, types=types)
    assert exact.first is not None
    assert narrow.first[1].epoch_a >= exact.first[1].epoch_a


def test_extra_steps_are_in_one_run_only(record: Record) -> None:
    shorter, longer = (record("example-vecadd", "--steps", str(n)) for n in (5, 8))
    report = compared(shorter, longer)
    assert report.memory_same and not report.same
    launches = report.processes[0].launches
    assert launches is not None
    assert (launches.same, launches.alone_a, launches.alone_b) == (5, 0, 3)
    assert report.processes[0].common == 5


def test_different_programs_differ(record: Record) -> None:
    report = compared(record("example-vecadd"), record("example-training"))
    launches = report.processes[0].launches
    assert launches is not None and launches.same == 0
    assert not report.same


@pytest.mark.long
def test_race_changes_sums_only(record: Record) -> None:
    """Sums differ, or they don't, but the launches are the same; without the race all is."""
    raced = compared(*(record("example-race", again=i) for i in (0, 1)))
    launches = raced.processes[0].launches
    assert launches is not None and launches.alone_a == launches.alone_b == 0
    fixed = compared(*(record("example-race", "--fixed", again=i) for i in (0, 1)))
    assert fixed.same


@pytest.mark.long
@pytest.mark.parametrize("name", ["threads_own_streams", "threads_allocate"])
def test_thread_order_is_no_difference(record: Record, name: str) -> None:
    """Each thread does the same every time, in whatever order they come.

    Memory is zero from the start: epochs of one thread see what another has yet to write.
    """
    options = ("--deterministic",)
    report = compared(*(record(name, options=options, again=i) for i in (0, 1)))
    assert report.same, diff_text(report)
    assert report.processes[0].common > 0


def test_run_equals_its_own_manifest(record: Record) -> None:
    run = record("example-pipeline")
    assert compared(run, run / "manifest.json").same
    assert compared(run / "manifest.json", tt.open(run).path / "manifest.json").same


def test_suspects_have_call_stacks(record: Record) -> None:
    """Where call stacks were recorded, they are shown of suspects and of the allocation."""
    runs = [
        record("example-vecadd", *more, options=("--cpu-callstack", "backtrace"))
        for more in ((), ("--perturb", "5"))
    ]
    report = compared(*runs)
    assert report.first is not None
    stacks = [suspect.stack for suspect in report.first[1].suspects]
    assert stacks and all(stacks)
    assert all(any(function == "main" for function, _, _ in stack or ()) for stack in stacks)
    shown = diff_text(report)
    assert "  from " in shown
    assert "main (" in shown
