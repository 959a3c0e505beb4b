"""race --jobs: programs are started ahead, and held where recording begins."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import support
from ttanalyze.core import delays
from ttanalyze.format import open_run
from ttanalyze.verbs.race.streams import late_streams
from ttanalyze.verbs.record.ahead import Ahead
from ttanalyze.verbs.record.series import Series

SIM = support.simulator_environment()
Search = Callable[..., dict[str, Any]]

COUNTED = 'echo start >> "$0.starts"\nexec "$@"\n'
# Fails if another one runs, held or not.
LOCKED = 'exec 9> "$0.lock"\nflock -n 9 || exit 7\nexec "$@"\n'


@pytest.fixture
def search(built: Path, tmp_path: Path) -> Search:
    """`ttanalyze race` of the example `handoff`, which a shell script starts."""
    handoff = support.build_examples(built / "examples") / "handoff"

    def search(script: str, *options: str) -> dict[str, Any]:
        (tmp_path / "script").write_text(script)
        program = ["sh", str(tmp_path / "script"), str(handoff), "--steps", "3"]
        where = ["-o", str(tmp_path / "search"), "--json", "-q"]
        outcome = support.ttanalyze("race", "--sim", *where, *options, "--", *program)
        assert outcome.stderr == ""
        report: dict[str, Any] = json.loads(outcome.stdout)
        assert outcome.status == 1 and report["found"]
        return report

    return search


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_programs_start_ahead_and_only_one_runs(search: Search, tmp_path: Path) -> None:
    report = search(COUNTED, "--jobs", "3")
    found, folder = report["findings"][0], tmp_path / "search"
    # How many tests it takes depends on which delays showed it first.
    assert 0 < found["tests"] <= 5 and len(found["late"]) == 1 and report["notes"] == []
    recordings = 2 + report["runs"] + found["tests"]
    starts = (tmp_path / "script.starts").read_text().count("start")
    assert recordings < starts <= recordings + 3
    of_seed = {f"seed-{found['seed']}{end}" for end in ("", "-fewest")}
    kept = {"reference", "again", *of_seed}
    files_of = {f"{name}{end}" for name in kept for end in ("", ".log", ".status")}
    of_delays = {f"{name}.json" for name in of_seed}
    assert files(folder) == files_of | of_delays | {"race.json", "report.json"}
    intervals = sorted(
        (process.info["started_ns"], process.info["ended_ns"])
        for name in kept
        for process in open_run(folder / name).processes
    )
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(intervals))


def test_program_that_fails_beside_others_runs_alone(search: Search) -> None:
    report = search(LOCKED, "--jobs", "4")
    assert report["notes"] == ["the program fails beside other runs: each was made alone"]
    assert len(report["findings"][0]["late"]) == 1


def test_program_that_always_fails_runs_once(search: Search, tmp_path: Path) -> None:
    """But for the recordings without delays, which say that it does."""
    report = search('echo start >> "$0.starts"\n"$@"\nexit 3\n', "--jobs", "2")
    assert report["notes"] == ["runs without delays end with status 3"]
    recordings = 2 + report["runs"] + report["findings"][0]["tests"]
    starts = (tmp_path / "script.starts").read_text().count("start")
    assert recordings < starts <= recordings + 2 * 2 + 2


def test_a_forked_process_does_not_hold_programs(tmp_path: Path) -> None:
    """It has the file of the lock open, too."""
    ahead = Ahead(Series(tmp_path, ["sleep", "60"], sim=True), jobs=2)
    with contextlib.closing(ahead):
        ahead.expect({"one": {}})
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        try:
            with open(tmp_path / "one.hold") as file:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                ahead.close()
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_all_programs(number: signal.Signals, tmp_path: Path) -> None:
    script, pids = tmp_path / "script", tmp_path / "script.pids"
    script.write_text('echo $$ >> "$0.pids"\nexec sleep 300\n')
    line = [
        "race",
        "--sim",
        "-q",
        "-j",
        "3",
        "-o",
        str(tmp_path / "search"),
        "--",
        "sh",
        str(script),
    ]
    with subprocess.Popen([sys.executable, "-m", "ttanalyze", *line]) as search:
        while not pids.exists() or pids.read_text().count("\n") < 2:
            time.sleep(0.02)
            assert search.poll() is None
        search.send_signal(number)
        assert search.wait(60) == (-number if number == signal.SIGKILL else 130)
    until = time.monotonic() + 30
    while any(Path("/proc", pid).exists() for pid in pids.read_text().split()):
        time.sleep(0.02)
        assert time.monotonic() < until


def test_time_limit_does_not_count_held_time(tmp_path: Path) -> None:
    options = ["--sim", "-q", "-o", str(tmp_path / "search"), "--timeout", "5s"]
    outcome = support.ttanalyze("race", *options, "-j", "2", "--", "true")
    assert outcome.status == 2 and "omit --jobs" in outcome.stderr


def test_recording_begins_when_the_lock_is_let_go(built: Path, tmp_path: Path) -> None:
    lock, run = tmp_path / "lock", tmp_path / "run"
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        environment = support.recording(SIM, run, hold=str(lock))
        with subprocess.Popen(support.command("launch_3d", built), env=environment) as program:
            time.sleep(0.3)
            assert program.poll() is None and not run.exists()
            fcntl.flock(file, fcntl.LOCK_UN)
            assert program.wait() == 0
    assert open_run(run).processes[0].status == "complete"


def test_each_stream_is_late_once(search: Search, tmp_path: Path) -> None:
    """Those with the least work first, and calls only as long as a limit allows."""
    search(COUNTED, "--no-reduce", "--keep")
    run = open_run(tmp_path / "search" / "reference")
    configs = late_streams(run, 500_000)
    works = [[call["number"] for call in config.launches.values()] for config in configs]
    streams = [{call["stream"] for call in config.launches.values()} for config in configs]
    assert streams == [{1}, {16}, {17}] and works == [[*range(len(one))] for one in works]
    assert sorted(map(len, works)) == list(map(len, works))
    delayed = delays.of_run(tmp_path / "search" / "seed-2")
    assert {call["stream"] for call in delayed.launches.values()} == {16}
    assert {call["where"] for call in delayed.launches.values()} == {"stream"}
    longest = late_streams(run, 1_000_000_000)[-1]
    assert longest.document["delay_ns"] * len(longest.launches) <= 4_000_000_000
