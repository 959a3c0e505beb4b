"""--max-overhead skips epochs and says so; --thread-cores and --thread-priority place threads."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record

SIM = support.simulator_environment()
pytestmark = pytest.mark.native


def many_waits(built: Path) -> list[str]:
    return support.command("recorder_many_waits", built)


@pytest.fixture(scope="module")
def runs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same program with all epochs, with few, and with few again."""
    folder = tmp_path_factory.mktemp("budget")
    out = {}
    for name, options in (("all", []), ("few", ["1%"]), ("again", ["0.5%"])):
        limit = [word for value in options for word in ("--max-overhead", value)]
        out[name] = folder / name
        outcome = record(many_waits(built), SIM, out[name], *limit)
        assert outcome.status == 0, outcome.stderr
    return out


def test_skipped_epochs_keep_their_numbers(runs: dict[str, Path]) -> None:
    every, few = (tt.open(runs[name]).epochs for name in ("all", "few"))
    assert few["epoch"].tolist() == every["epoch"].tolist()
    assert few["trigger"].tolist() == every["trigger"].tolist()
    skipped = few["skipped"].to_numpy()
    assert not every["skipped"].any()
    assert np.count_nonzero(skipped) > len(few) // 2
    assert not skipped[0] and not skipped[-1]
    assert few["refused"].tolist() == skipped.tolist()
    after = np.flatnonzero(~skipped)[1:]
    assert few["gap"].to_numpy()[after][skipped[after - 1]].all()


def test_events_are_not_skipped(runs: dict[str, Path]) -> None:
    every, few = (tt.open(runs[name]).events for name in ("all", "few"))
    assert few["kind"].tolist() == every["kind"].tolist()


def test_the_last_memory_is_the_same(runs: dict[str, Path]) -> None:
    last = [tt.open(runs[name]).processes[0] for name in ("all", "few")]
    digests = [
        {int(row["region"]): int(row["digest"]) for row in p.digests(0, len(p.epochs))}
        for p in last
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("other", ["all", "again"])
def test_skipped_epochs_are_no_difference(runs: dict[str, Path], other: str) -> None:
    outcome = support.ttanalyze("diff", runs["few"], runs[other])
    assert outcome.status == 0, outcome.stdout
    assert "of A were skipped to keep to --max-overhead: left out" in outcome.stdout
    manifest = runs[other] / "manifest.json"
    outcome = support.ttanalyze("verify", runs["few"], "--manifest", manifest)
    assert outcome.status == 0, outcome.stdout
    assert "epochs not verified: skipped to keep to --max-overhead" in outcome.stdout
    outcome = support.ttanalyze("verify", runs["few"], "--manifest", manifest, "--json")
    told = json.loads(outcome.stdout)
    assert told["skipped"] >= tt.open(runs["few"]).epochs["skipped"].sum()


@pytest.mark.long
def test_info_shows_the_share_and_the_skips(runs: dict[str, Path]) -> None:
    outcome = support.ttanalyze("info", runs["few"])
    assert "%, limit 1% (" in outcome.stdout
    assert "were skipped, to keep to --max-overhead: they have no contents" in outcome.stdout
    assert "of 401 epochs skipped" in outcome.stdout or "epochs skipped" in outcome.stdout
    told = json.loads(support.ttanalyze("info", runs["few"], "--json").stdout)["processes"][0]
    assert told["epochs_skipped"] == tt.open(runs["few"]).epochs["skipped"].sum()
    assert told["overhead"]["limit"] == 1000
    assert {"tt-drain"} <= {thread["name"] for thread in told["threads"]}
    assert (
        json.loads(support.ttanalyze("info", runs["all"], "--json").stdout)["processes"][0][
            "overhead"
        ]
        is None
    )


def test_manifests_of_recorder_and_toolkit_agree(runs: dict[str, Path]) -> None:
    assert support.ttanalyze("verify", runs["few"]).status == 0
    made = json.loads(support.ttanalyze("manifest", runs["few"]).stdout)
    assert made["processes"] == json.loads((runs["few"] / "manifest.json").read_text())["processes"]


def test_a_generous_budget_skips_nothing(built: Path, tmp_path: Path) -> None:
    command = support.command("example-training", built)
    assert record(command, SIM, tmp_path / "run", "--max-overhead", "1000%").status == 0
    info = tt.open(tmp_path / "run").processes[0].info["overhead"]
    assert info["host_ns"] > 0 and info["elapsed_ns"] > info["host_ns"]


def test_nothing_is_skipped_before_the_allowance_is_spent(built: Path, tmp_path: Path) -> None:
    options = ["--max-overhead", "1%", "--overhead-allowance", "1h"]
    assert record(many_waits(built), SIM, tmp_path / "run", *options).status == 0
    run = tt.open(tmp_path / "run")
    assert not run.epochs["skipped"].any()
    assert run.processes[0].info["overhead"]["host_ns"] > 0
    shown = support.ttanalyze("info", tmp_path / "run").stdout
    assert "%, limit 1% once that is 1h (" in shown


def test_call_stacks_and_timing_count_as_cost_of_calls(
    runs: dict[str, Path], built: Path, tmp_path: Path
) -> None:
    each = {"plain": _cost_of_a_call(runs["few"])}
    for option, value in (("--cpu-callstack", "backtrace"), ("--timeline", "events")):
        run = tmp_path / value
        outcome = record(many_waits(built), SIM, run, "--max-overhead", "1%", option, value)
        assert outcome.status == 0, outcome.stderr
        each[value] = _cost_of_a_call(run)
    assert each["plain"] < 200 < min(each["backtrace"], each["events"])


def _cost_of_a_call(run: Path) -> float:
    process = tt.open(run).processes[0]
    return float(process.info["overhead"]["events_ns"] / len(process.events))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--max-overhead", "0%"], "--max-overhead 0%: expected a share above 0%"),
        (["--max-overhead", "5x"], "expected a share above 0%, at most 1000%"),
        (["--max-overhead", "5%", "--replayable"], "--max-overhead needs --no-replayable"),
        (["--max-overhead", "5%", "--overwrite", "drop-oldest"], "needs another --overwrite"),
        (["--max-overhead", "5%", "--epoch", "graph-node:."], "needs another --epoch"),
    ],
)
def test_what_can_not_be_kept_is_an_error(
    options: list[str], fault: str, built: Path, tmp_path: Path
) -> None:
    outcome = record(many_waits(built), SIM, tmp_path / "run", *options)
    assert outcome.status == 2
    assert fault in outcome.stderr


def threads_of(pid: int) -> dict[str, int]:
    """The recorder's threads by name."""
    tasks = Path(f"/proc/{pid}/task")
    names = {int(t.name): (t / "comm").read_text().strip() for t in tasks.iterdir()}
    return {name: tid for tid, name in names.items() if name.startswith("tt-")}


def test_threads_run_where_they_are_asked_to(built: Path, tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    options: dict[str, Any] = {"thread_cores": str(core), "thread_priority": "idle"}
    environment = support.recording(SIM, tmp_path / "run", **options)
    with subprocess.Popen(
        [*many_waits(built), "hold"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin and program.stdout
        while program.stdout.readline() != "ready\n":
            pass
        threads = threads_of(program.pid)
        assert "tt-drain" in threads
        for tid in threads.values():
            assert os.sched_getaffinity(tid) == {core}
            assert os.sched_getscheduler(tid) == os.SCHED_IDLE
        assert os.sched_getscheduler(program.pid) == os.SCHED_OTHER
        program.communicate("\n")
    assert program.returncode == 0
    shown = support.ttanalyze("info", tmp_path / "run").stdout
    assert f"% of a core, on cores {core}, only when these are idle: tt-" in shown
