"""`replay --instrument`: a run with the trace of one recorded launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support

pytestmark = pytest.mark.native
SIM = support.simulator_environment()


def recorded(folder: Path, command: list[str], **options: str) -> Path:
    environment = support.recording(SIM, folder / "recorded", **options)
    assert support.run(command, environment, cwd=folder).status == 0
    return folder / "recorded"


@pytest.fixture(scope="module")
def run(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    command = support.command("recorder_single_launches", built)
    return recorded(folder, command, replayable="1")


def launches(run: Path, kernel: str) -> list[int]:
    events = tt.open(run).events
    found = events[(events["kind"] == "launch") & (events["kernel"] == kernel)]
    return [int(seq) for seq in found["seq"]]


def replay(run: Path, seq: int, *options: str | Path) -> support.Outcome:
    words: list[str | Path] = ["replay", run, "--launch", str(seq), "--sim", *options]
    return support.ttanalyze(*words, environment=SIM)


def test_trace_of_a_launch_is_a_run(run: Path, tmp_path: Path) -> None:
    (seq,) = launches(run, "fill")
    done = replay(run, seq, "--instrument", "opcode,values", "-o", tmp_path / "out")
    assert done.status == 0 and f"launch {seq} of fill: leaves 9 regions as recorded" in done.stdout
    assert f"traced 1 launch, 7.0 KiB: ttanalyze query {tmp_path}/out --table traced" in done.stdout
    traced = tt.open(tmp_path / "out").traced
    assert traced["kernel"].tolist() == ["fill"] and traced["records"].tolist() == [184]
    table = support.ttanalyze("query", tmp_path / "out", "--table", "trace", "--format", "csv")
    assert table.status == 0 and len(table.stdout.splitlines()) == 185


@pytest.mark.long
def test_filters_limit_the_trace(run: Path, tmp_path: Path) -> None:
    (seq,) = launches(run, "fill")
    filters = ("--category", "memory", "--blocks", "2:3", "--json")
    done = replay(run, seq, "--instrument", "opcode", *filters, "-o", tmp_path / "out")
    answer = json.loads(done.stdout)
    assert (done.status, answer["not_traced"], answer["out"]) == (0, None, f"{tmp_path}/out")
    assert [one["status"] for one in answer["launches"]] == ["same"]
    parts = [one.heads for one in tt.open(tmp_path / "out").trace_records(kinds=["opcode"])]
    found = np.concatenate(parts)
    assert set(found["block_x"].tolist()) == {2, 3}
    assert len(set(found["instruction"].tolist())) == 4  # three load parameters, one stores


@pytest.mark.long
def test_launch_behind_others_of_its_kernel(built: Path, tmp_path: Path) -> None:
    """These are replayed as well, because no epoch lies between."""
    command = support.command("recorder_pointer_in_memory", built)
    of = recorded(tmp_path, command, epoch="launch:6", params="1", deterministic="1")
    seq = launches(of, "follow")[5]
    done = replay(of, seq, "--instrument", "count", "--no-verify", "-o", tmp_path / "out")
    assert done.status == 0, done.stderr + done.stdout
    followed = launches(tmp_path / "out", "follow")
    assert tt.open(tmp_path / "out").traced["seq"].tolist() == followed[-1:]
    assert len(followed) > 1


def memcheck(run: Path) -> tuple[int, Any]:
    done = support.ttanalyze("memcheck", run, "--json")
    return done.status, json.loads(done.stdout)["launches"][0] if done.stdout else done.stderr


@pytest.mark.long
def test_memcheck_takes_the_recorded_allocations(built: Path, tmp_path: Path) -> None:
    """Those of a replay are larger."""
    steps = ("a:1000", "a:1000", "w:1:1000:1:7", "s")
    of = recorded(
        tmp_path, [*support.command("recorder_out_of_bounds", built), *steps], replayable="1"
    )
    (seq,) = launches(of, "fill")
    done = replay(of, seq, "--instrument", "addresses", "-o", tmp_path / "out")
    assert done.status in (0, 1), done.stderr
    status, launch = memcheck(tmp_path / "out")
    (one,) = launch["found"]
    assert (status, launch["replays"]) == (1, seq)
    assert (one["what"], one["distance"], one["access"]) == ("outside", 0, "store")
    of.rename(tmp_path / "elsewhere")
    status, said = memcheck(tmp_path / "out")
    assert status == 2 and said.startswith(
        f"ttanalyze: {tmp_path}/out: a replay of launch {seq} of"
    )
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--category", "memory"), "--category needs --instrument"),
        (("-o", "out"), "--out needs --instrument"),
        (("--instrument", "all"), "--instrument all: words are separated by commas; expected"),
        (("--instrument", "count", "--times", "3"), "--times cannot be combined with --instrument"),
        (("--instrument", "count", "--launch", "2"), "--instrument needs one launch: --launch N"),
        (("--instrument", "count", "--blocks", "x"), "--blocks x: expected a number, or a range"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_named(run: Path, options: tuple[str, ...], message: str) -> None:
    done = replay(run, 1, *options)
    assert done.status == 2 and done.stderr.startswith(f"ttanalyze: {message}")
    assert len(done.stderr.splitlines()) == 1
