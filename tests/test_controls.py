"""What is recorded of a graph changes from one of its replays to the next."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.controls import OPTIONS, check_controls
from tests.hanging import in_some_limit
from ttanalyze.verbs.query import Query, query

pytestmark = [pytest.mark.native]
SIM = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="3")


@pytest.fixture(scope="module")
def command(built: Path) -> list[str]:
    return [str(support.build_program("recorder_graph_controls", built))]


@pytest.fixture(scope="module")
def run(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten of the replays are launched while their stream waits for the host."""
    run = tmp_path_factory.mktemp("controls") / "run"
    bare = support.run(command, SIM)
    assert support.run(command, support.recording(SIM, run, **OPTIONS)) == bare
    return run


def test_controls_apply_to_each_graph_launch(run: Path) -> None:
    check_controls(run)


@pytest.mark.large
def test_trace_has_stamped_kernels(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    assert support.ttanalyze("trace", str(run), "-o", str(out)).status == 0
    events = json.loads(out.read_text())["traceEvents"]
    stamped = [e for e in events if e.get("args", {}).get("stamped")]
    assert sorted({e["name"] for e in stamped}) == ["add", "mix"]
    assert {e["args"]["node"] for e in stamped} == {0, 1}
    said = [e["args"]["controls"] for e in events if e.get("args", {}).get("controls")]
    assert said[0] == "points=off;stamps=on;snapshot=64;regions=all"


@pytest.mark.large
def test_events_have_times_of_stamped_kernels(run: Path) -> None:
    out = support.ttanalyze("events", str(run))
    kernels = [r for r in map(json.loads, out.stdout.splitlines()) if r.get("graph") is not None]
    timed = [r for r in kernels if r.get("gpu_begin_ns") is not None and "kernel_name" in r]
    assert {r["kernel_name"] for r in timed} == {"add", "mix"}


def test_initial_setting_applies(command: list[str], tmp_path: Path) -> None:
    """The program turns on what is off at first; what it names is taken with what was there."""
    run = tmp_path / "run"
    options = {**OPTIONS, "control": "points=off;stamps=off;regions=touched"}
    support.run(command, support.recording(SIM, run, **options))
    opened = tt.open(run)
    points = opened.epochs.query("trigger == 'graph-node'")
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert points["seq"].min() == launches[4]
    assert points["controls"].iloc[0] == "points=on;stamps=off;snapshot=64;regions=^weights"
    stamped = opened.activities.query("stamped")
    assert stamped["seq"].min() == launches[8]
    made = query(opened, Query(filter='kind == "graph-launch"', fields=["controls"]))["controls"]
    assert made[0] == "points=off;stamps=off;snapshot=64;regions=touched"
    assert made[5] == "points=on;stamps=off;snapshot=64;regions=1"
    assert tt.verify(opened, run / "manifest.json").same


@in_some_limit(0.8, 8, 20)
def test_long_blocked_graph_launches(limit: float, command: list[str], tmp_path: Path) -> None:
    """Their epochs are cancelled. Recording goes on with a snapshot once they are complete."""
    run, said = tmp_path / f"run{limit}", tmp_path / f"said{limit}"
    recorded = support.recording(SIM, run, **OPTIONS, stall_ms=f"{limit}s")
    outcome = support.run(["sh", "-c", f"exec {command[0]} {said} 2>{said}"], recorded)
    told = said.read_text()
    waited = f"was cancelled: it waited more than {limit * 1000:g} ms for work of the program"
    assert waited in told
    assert outcome == support.run([*command, str(said)], SIM)
    opened = tt.open(run)
    points = opened.epochs.query("trigger == 'graph-node'")
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert points[points["seq"].isin(launches[8:18])]["refused"].all()
    last = points[points["seq"].isin(launches[-3:])]
    assert len(last) == 3 * 2
    assert not last["refused"].any()
    a = opened.regions.query("label == 'weights.a'")["region"].iloc[0]
    assert (opened.read(int(last["epoch"].iloc[0]), a, dtype="u4") == len(launches) - 2).all()
    assert tt.verify(opened, run / "manifest.json").same


@pytest.mark.large
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("points=maybe", "'maybe': expected on or off"),
        ("snapshot=-1", "'-1': expected a whole number"),
        ("regions=(", "regions=(: Unmatched ( or \\("),
        ("regions=6-4", "'6-4': expected region ids such as 0,4-6"),
        ("regions=1,", "'1,': expected region ids such as 0,4-6"),
        ("what=1", "'what=1': expected points=on|off"),
    ],
)
def test_invalid_controls_are_reported(given: str, reason: str) -> None:
    refused = support.ttanalyze("record", "--sim", "--control", given, "--", "true")
    assert refused.status == 2
    assert reason in refused.stderr


SCRIPT = """
import ctypes
from ttanalyze.control import control
from ttanalyze.gpu import DeviceBuffer
buffers = [DeviceBuffer(size) for size in (64, 128, 256)]
print(control(regions=[0, 2]))
print(control(points=False, regions="^x"), control(snapshot=3), control(regions="("))
recorder = ctypes.CDLL(None)
if hasattr(recorder, "tt_epoch"):
    part = ctypes.c_ulonglong(buffers[1].address + 32), ctypes.c_ulonglong(16)
    for name in (None, b"x.weight"):
        if name:
            recorder.tt_label_range(*part, name, None)
        for value in (1, 2):
            for buffer in buffers:
                buffer.write(bytes([value]) * buffer.size)
            with buffers[0].device.use():
                recorder.tt_epoch(None, name)
"""


@pytest.mark.large
def test_python_controls(tmp_path: Path) -> None:
    """What can't be understood is said, and changes nothing; unrecorded, nothing happens. Memory
    counts by the names of its parts.
    """
    python = [sys.executable, "-c", SCRIPT]
    assert support.run(python, SIM, cwd=support.ROOT).stdout == "False\nFalse False False\n"
    recorded = support.recording(SIM, tmp_path / "run", epoch="api", control="snapshot=9")
    outcome = support.run(python, recorded, cwd=support.ROOT)
    assert outcome.stdout == "True\nTrue True False\n"
    assert outcome.stderr == "ttanalyze: tt_control: regions=(: Unmatched ( or \\(\n"
    opened = tt.open(tmp_path / "run")
    said = [opened.process(0).strings.get(n) for n in opened.process(0).controls[1].tolist()]
    settings = [(9, "all"), (9, "0,2"), (9, "^x"), (3, "^x")]
    assert said == [
        f"points={p};stamps=on;snapshot={n};regions={r}"
        for p, (n, r) in zip(("on", "on", "off", "off"), settings, strict=True)
    ]
    epochs = opened.epochs.query("trigger == 'api'")
    assert epochs["full"].tolist() == [True, False, False, True]
    assert epochs["bytes_read"].tolist() == [64 + 128 + 256, 0, 128, 64 + 128 + 256]
