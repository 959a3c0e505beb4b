"""When the GPU did what calls asked for: by CUPTI's records, or by events around each call."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from bench.bed import Bed
from tests import support
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
TIMED = [layout.EVENT_KINDS.index(kind) for kind in ("launch", "graph-launch", "copy", "set")]
SYNC = layout.EVENT_KINDS.index("sync")
OWN = layout.constant("TT_ACTIVITYF_OWN")
IN_GRAPH = 1


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def record(command: list[str], run: Path, timeline: str, **more: str) -> tuple[Process, Any]:
    """Records, expects the program to do what it does without us, and gives its process."""
    bare = support.run(command, SIM)
    outcome = support.run(command, support.recording(SIM, run, timeline=timeline, **more))
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    process = tt.open(run).processes[0]
    return process, process.info["timeline"]


def submitted(process: Process) -> Array:
    """Calls that were to be timed."""
    events = np.array(process.events)
    ran = np.isin(events["kind"], TIMED) & (events["result"] == 0)
    return np.asarray(events[ran & (events["flags"] & IN_GRAPH == 0)])


def of_calls(process: Process) -> Array:
    return process.activities.between(0, 1 << 63)


@pytest.mark.parametrize("source", ["cupti", "events"])
@pytest.mark.parametrize("name", ["example-vecadd", "example-training", "example-graph"])
def test_every_call_has_a_time(name: str, source: str, built: Path, run: Path) -> None:
    process, said = record(support.command(name, built), run, source)
    calls, activities = submitted(process), of_calls(process)
    assert (said["source"], said["reason"], said["missed"]) == (source, None, 0)
    assert set(calls["seq"]) == set(activities["seq"][activities["kind"] != SYNC])
    at = dict(zip(calls["seq"].tolist(), calls["time_ns"].tolist(), strict=True))
    work = activities[activities["kind"] != SYNC]
    since = work["begin_ns"].astype("i8") - [at[seq] for seq in work["seq"].tolist()]
    assert since.min() >= -said["clock_error_ns"]
    assert (work["begin_ns"] <= work["end_ns"]).all()


@pytest.mark.parametrize("source", ["cupti", "events"])
def test_work_of_one_stream_does_not_overlap(source: str, built: Path, run: Path) -> None:
    process, _ = record(support.command("example-vecadd", built), run, source)
    launches = process.events["seq"][process.events["kind"] == layout.EVENT_KINDS.index("launch")]
    activities = of_calls(process)
    work = activities[np.isin(activities["seq"], launches)]
    assert len(work) == len(launches) == 8
    assert (np.diff(work["seq"].astype("i8")) > 0).all()
    assert (work["begin_ns"][1:] >= work["end_ns"][:-1]).all()


@pytest.mark.parametrize("source", ["cupti", "events"])
def test_host_waits_have_a_duration(source: str, built: Path, run: Path) -> None:
    """A kernel runs within the wait for it, as the simulator works only when somebody waits."""
    process, _ = record(support.command("example-vecadd", built), run, source, epoch="none")
    events = np.array(process.events)
    waits = events["seq"][events["kind"] == SYNC]
    activities = of_calls(process)
    timed = activities[activities["kind"] == SYNC]
    assert timed["seq"].tolist() == waits.tolist()
    assert (timed["end_ns"] > timed["begin_ns"]).all()
    began = events["time_ns"][events["kind"] == SYNC]
    assert (timed["begin_ns"] >= began).all()
    assert (timed["begin_ns"][1:] > timed["end_ns"][:-1]).all()
    kernels = activities[activities["kind"] == layout.EVENT_KINDS.index("launch")]
    error = process.info["timeline"]["clock_error_ns"] or 0
    assert timed["end_ns"][-1] + np.uint64(error) >= kernels["end_ns"].max()


def test_graph_kernels_belong_to_their_launch(built: Path, run: Path) -> None:
    process, _ = record(support.command("example-graph", built), run, "cupti")
    events = np.array(process.events)
    launches = events["seq"][events["kind"] == layout.EVENT_KINDS.index("graph-launch")]
    activities = of_calls(process)
    work = activities[np.isin(activities["seq"], launches)]
    names = {process.strings.get(int(name)) for name in work["name"]}
    assert {"diffuse", "square"} & names or len(names) > 1
    assert (np.unique(work["seq"], return_counts=True)[1] > 1).all()


def test_recorder_work_belongs_to_no_call(built: Path, run: Path) -> None:
    process, _ = record(support.command("example-vecadd", built), run, "cupti")
    of_none = np.concatenate([p[p["seq"] == 0] for p in process.activities.pieces()] or [])
    assert (of_none["flags"] & OWN != 0).all()
    kinds = {layout.EVENT_KINDS[kind] for kind in of_none["kind"].tolist()}
    assert {"launch", "copy"} <= kinds <= {"launch", "copy", "set"}
    names = {process.strings.get(int(n)) for n in of_none["name"] if n != layout.NO_ID}
    assert names == {"tt_capture_digest", "tt_capture_gather"}
    assert not (of_calls(process)["flags"] & OWN).any()


def test_recorder_kernels_inside_graphs(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs", built))]
    process, _ = record(command, run, "cupti", epoch="graph-node:fill|add")
    work = of_calls(process)
    own = work["flags"] & OWN != 0
    names = {process.strings.get(int(n)) for n in work["name"][own]}
    assert names == {f"tt_capture_{what}_at" for what in ("front", "digest", "gather", "turn")}
    others = {process.strings.get(int(n)) for n in work["name"][~own] if n != layout.NO_ID}
    assert others == {"fill", "add"}


@pytest.mark.parametrize("source", ["cupti", "events"])
@pytest.mark.parametrize(
    "name",
    [
        "context_teardown",
        "context_two",
        "copy_2d",
        "exit_quick",
        "fault_trap",
        "fork_child_after",
        "graph_capture",
        "graph_capture_errors",
        "graph_capture_threads",
        "host_functions",
        "launch_bad",
        "stream_per_thread",
        "stream_waits_for_host",
        "threads_own_streams",
        "threads_shared_stream",
    ],
)
def test_timeline_does_not_change_program_behaviour(
    name: str, source: str, built: Path, run: Path
) -> None:
    process, said = record(support.command(name, built), run, source)
    assert said["source"] == source
    activities = of_calls(process)
    assert set(activities["seq"]) <= set(process.events["seq"])


def test_every_thread_is_timed(built: Path, run: Path) -> None:
    process, said = record(support.command("threads_own_streams", built), run, "cupti")
    calls = submitted(process)
    assert len(set(calls["thread"])) > 1
    assert set(calls["seq"]) <= set(of_calls(process)["seq"])
    assert said["missed"] == 0


@pytest.mark.long
def test_times_that_come_too_late_are_counted(run: Path, tmp_path: Path) -> None:
    """More launches than are remembered between two looks at CUPTI's records: each has a time, in a
    buffer that is used again, or counts as missed.
    """
    program = str(Bed(True, False, tmp_path, tmp_path).program("latency"))
    environment = support.recording(SIM, run, timeline="cupti", epoch="none")
    assert support.run([program, "--launches", "200000"], environment).status == 0
    process = tt.open(run).processes[0]
    launches, timed = submitted(process)["seq"], of_calls(process)["seq"]
    assert len(launches) > 400_000
    assert len(np.setdiff1d(launches, timed)) <= process.info["timeline"]["missed"]


def test_a_record_takes_little_time_to_convert(run: Path, tmp_path: Path) -> None:
    """The kernel's name is not read from the file of strings for each."""
    program = str(Bed(True, False, tmp_path, tmp_path).program("latency"))
    environment = support.recording(SIM, run, timeline="cupti", epoch="none")
    assert support.run([program, "--launches", "40000"], environment).status == 0
    process = tt.open(run).processes[0]
    activities = of_calls(process)
    assert len(activities) > 80_000
    names = {
        process.strings.get(int(n)) for n in np.unique(activities["name"]) if n != layout.NO_ID
    }
    assert names == {"nothing"}
    took = {thread["name"]: thread["cpu_ns"] for thread in process.info["threads"]}
    assert took["tt-timeline"] < 1000 * len(activities)


def test_events_give_times_without_cupti(built: Path, run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(support.SIMULATOR, alone)
    environment = support.recording(SIM, run, timeline="cupti") | {"LD_LIBRARY_PATH": str(alone)}
    outcome = support.run(support.command("example-vecadd", built), environment)
    assert outcome.status == 0
    assert "CUDA events time the calls instead" in outcome.stderr
    process = tt.open(run).processes[0]
    said = process.info["timeline"]
    assert (said["asked"], said["source"]) == ("cupti", "events")
    assert "CUPTI" in said["reason"]
    activities = of_calls(process)
    assert set(submitted(process)["seq"]) == set(activities["seq"][activities["kind"] != SYNC])


@pytest.mark.parametrize("linked", [False, True])
def test_program_that_uses_cupti(linked: bool, run: Path, tmp_path: Path) -> None:
    """It gets its own records and none of ours, and from there on events are what times."""
    program = tmp_path / "program"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", f"-I{support.ROOT / 'interpose' / 'include'}"]
    command += ["-DLINKED"] if linked else []
    command += [str(support.PROGRAMS / "simonly_cupti.c"), "-o", str(program)]
    command += [str(support.SIMULATOR), "-ldl"]
    command += [str(support.SIMULATOR.with_name("libcupti.so.13"))] if linked else []
    subprocess.run(command, check=True)
    bare = support.run([program], SIM)
    assert "5 kernels, 0 others" in bare.stdout
    process, said = record([str(program)], run, "cupti", epoch="none")
    assert (said["source"], said["reason"]) == ("events", "the program uses CUPTI itself")
    activities = of_calls(process)
    calls = submitted(process)
    assert set(calls["seq"]) <= set(activities["seq"])
    coarse = activities["flags"] & layout.constant("TT_ACTIVITYF_COARSE") != 0
    assert not coarse[activities["seq"] < calls["seq"][4]].any()
    assert coarse[activities["seq"] > calls["seq"][4]].sum() == len(calls) - 5


@pytest.mark.parametrize(
    "options",
    [{"timeline": "events", "graph_stamps": ".", "no_progress": "60s"}, {"timeline": "cupti"}],
)
def test_long_capture_is_not_disturbed(options: dict[str, str], built: Path, run: Path) -> None:
    """Clocks are compared each second, in a thread that a capture in global mode restricts."""
    record([str(support.build_program("recorder_long_capture", built)), "1100"], run, **options)


def test_timeline_of_a_killed_process_is_readable(run: Path, built: Path) -> None:
    """What was written by then can be read."""
    command = support.command("loop_progress", built)
    environment = support.recording(SIM, run, timeline="events", epoch="none")
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as program:
        timeline = run / "p0" / "timeline.bin"
        until = time.monotonic() + 60
        while time.monotonic() < until and not _records(timeline):
            time.sleep(0.02)
        os.kill(program.pid, signal.SIGKILL)
    process = tt.open(run).processes[0]
    assert len(process.activities)
    assert set(of_calls(process)["seq"]) <= set(process.events["seq"])


def _records(timeline: Path) -> bool:
    return timeline.exists() and any(timeline.read_bytes()[64 : 64 + 80])


def test_invalid_options_are_refused(built: Path, run: Path) -> None:
    program = support.command("example-vecadd", built)
    outcome = support.run(program, support.recording(SIM, run, timeline="always"))
    assert "TT_TIMELINE=always: expected off, events or cupti" in outcome.stderr
    outcome = support.run(program, support.recording(SIM, run, timeline="cupti", events="0"))
    assert "TT_TIMELINE=cupti needs TT_EVENTS=1" in outcome.stderr
    refused = support.ttanalyze("record", "--sim", "--timeline", "x", "--", "true")
    assert refused.status == 2
    assert "--timeline x: expected off, events or cupti" in refused.stderr
    refused = support.ttanalyze(
        "record", "--sim", "--timeline", "events", "--no-events", "--", "true"
    )
    assert refused.status == 2
    assert "--timeline events needs --events" in refused.stderr


def test_no_times_by_default(built: Path, run: Path) -> None:
    process, said = record(support.command("example-vecadd", built), run, "off")
    assert said == {
        "asked": "off",
        "source": "none",
        "reason": None,
        "missed": 0,
        "clock_error_ns": None,
    }
    assert not (run / "p0" / "timeline.bin").exists()
    assert not process.activities.there
