"""`ttanalyze reduce`: the fewest delays with which a test fails, told by tests that need no GPU."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hanging import in_some_limit
from tests.support import Cli
from ttanalyze.core import delays
from ttanalyze.errors import Error
from ttanalyze.verbs.reduce import Point, reduce
from ttanalyze.verbs.reduce.search import Answers, points_of

KEY = "step_60a14089564f1c4c"


def configuration(points: int = 24, calls: int = 2, off: int = 3) -> delays.Config:
    """Delays of a kernel, some of which are off, and of calls."""
    listed = {
        str(16 * i): {"pc": 16 * i, "sass": "LDG", "delay": 1000 + i, "on": i >= off}
        for i in range(points + off)
    }
    kernel = {"kernel_name": "step", "kernel_checksum": "60a14089564f1c4c"}
    launches = {
        f"16:{i}": {"stream": 16, "number": i, "delay": 50_000, "on": True, "where": "stream"}
        for i in range(calls)
    }
    kernels = {KEY: kernel | {"instrumentation_points": listed}}
    document = {"version": "1.0", "delay_ns": 1000, "kernels": kernels, "launches": launches}
    return delays.Config(document)


def needs(*points: Point, asked: list[int] | None = None) -> Callable[[delays.Config], bool]:
    """A test that fails with these delays, whichever others there are."""

    def fails(config: delays.Config) -> bool:
        if asked is not None:
            asked.append(sum(config.count_on()))
        return all(point.member(config)["on"] for point in points)

    return fails


def at(pc: int) -> Point:
    return Point(KEY, str(pc))


CALL = Point(None, "16:1")


# ---- the search ----


@pytest.mark.parametrize("strategy", ["bisect", "linear"])
@pytest.mark.parametrize(
    "wanted", [[at(48)], [at(48), at(400)], [at(64), CALL], [CALL], [at(80), at(96), at(208)]]
)
def test_reduce_finds_the_smallest_set(strategy: str, wanted: list[Point]) -> None:
    config = configuration()
    asked: list[int] = []
    found = reduce(config, needs(*wanted, asked=asked), strategy=strategy)
    assert found.points == sorted(wanted, key=points_of(config).index)
    assert points_of(found.minimal) == found.points
    assert (found.total, found.status) == (26, "reduced")
    assert found.runs == found.tests == len(asked)
    assert found.failures == Answers(1, 1)
    assert sum(config.count_on()) == 26  # as it was
    if strategy == "linear":
        assert len(asked) <= 28


def test_bisecting_takes_few_runs() -> None:
    asked: list[int] = []
    found = reduce(configuration(1000), needs(at(4800), asked=asked))
    assert found.points == [at(4800)] and len(asked) < 40


def test_likely_delays_are_tried_first() -> None:
    asked: list[int] = []
    config = configuration(1000)
    wrong, right = [7], [points_of(config).index(at(4800))]
    found = reduce(config, needs(at(4800), asked=asked), first=[wrong, right])
    assert found.points == [at(4800)] and asked == [1, 1, 0]


def test_reduce_stops_in_time() -> None:
    """What is left then still fails."""
    test = needs(at(48), at(400))

    def slow(config: delays.Config) -> bool:
        time.sleep(0.02)
        return test(config)

    found = reduce(configuration(), slow, seconds=0.05)
    assert found.status == "stopped" and test(found.minimal)


@pytest.mark.parametrize("strategy", ["bisect", "linear"])
def test_every_remaining_delay_is_needed(strategy: str) -> None:
    """Failures that any of several sets causes, at random."""
    chance = random.Random(7)
    config = configuration(14, 0, 0)
    points = points_of(config)
    for _ in range(30):
        causes = [set(chance.sample(range(14), chance.randint(1, 5))) for _ in range(3)]

        def fails(candidate: delays.Config, causes: list[set[int]] = causes) -> bool:
            on = {i for i, point in enumerate(points) if point.member(candidate)["on"]}
            return any(cause <= on for cause in causes)

        found = reduce(config, fails, strategy=strategy)
        assert {points.index(point) for point in found.points} in causes
        assert fails(found.minimal)


def test_progress_reaches_its_total() -> None:
    for strategy in ("bisect", "linear"):
        told: list[tuple[int, int]] = []

        def tell(done: int, total: int, told: list[tuple[int, int]] = told) -> None:
            told.append((done, total))

        reduce(configuration(), needs(at(48), at(400)), strategy=strategy, progress=tell)
        assert told == sorted(told) and told[-1][1] == 26 and told[-1][0] >= 24


def test_flaky_test_is_reduced() -> None:
    """Two of three times with what it needs: it is found, and said to be flaky."""
    chance = random.Random(3)
    wanted = needs(at(128), CALL)

    def fails(config: delays.Config) -> bool:
        return wanted(config) and chance.random() < 0.67

    found = reduce(configuration(), fails, confidence=15)
    assert found.points == [at(128), CALL] and found.status == "flaky"
    assert 0 < found.failures.failed < found.failures.runs == 15
    assert reduce(configuration(), wanted, confidence=5).status == "reduced"


def test_run_limit_is_kept() -> None:
    known: dict[frozenset[int], Answers] = {}
    found = reduce(configuration(), needs(at(48), at(400)), limit=14, known=known)
    assert found.status == "stopped" and found.runs == 14
    assert {at(48), at(400)} < set(found.points) and len(found.points) < 26
    asked: list[int] = []
    whole = reduce(configuration(), needs(at(48), at(400), asked=asked), known=known)
    assert whole.points == [at(48), at(400)] and len(asked) == whole.runs - 14


def test_irreducible_inputs_are_errors() -> None:
    with pytest.raises(Error, match="has no active delays"):
        reduce(configuration(0, 0), needs())
    with pytest.raises(Error, match="does not fail with all delays"):
        reduce(configuration(), lambda _: False)
    with pytest.raises(Error, match="fails without any delay"):
        reduce(configuration(), lambda _: True)
    with pytest.raises(Error, match="must be one of bisect, linear"):
        reduce(configuration(), needs(), strategy="random")


# ---- with a program ----

SCRIPT = """
import json, os, sys
config = json.load(open(sys.argv[1] if len(sys.argv) > 1 else os.environ["TT_DELAY_LOAD"]))
kernel = config["kernels"]["%s"]["instrumentation_points"]
with open(%r, "a") as log:
    log.write("x")
if kernel["400"]["on"] and config["launches"]["16:1"]["on"]:
    sys.exit(3)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, str, Path]:
    """A configuration, a command that fails with two of its delays, and a letter for each run."""
    config = tmp_path / "delays.json"
    config.write_text(configuration().to_json())
    script, log = tmp_path / "test script.py", tmp_path / "log"
    script.write_text(SCRIPT % (KEY, str(log)))
    return config, f"{sys.executable} -SE '{script}'", log


def test_reduce_command(cli: Cli, files: tuple[Path, str, Path], tmp_path: Path) -> None:
    config, command, log = files
    report, minimal = tmp_path / "report.json", tmp_path / "minimal.json"
    asked = ("reduce", "--config", config, "-o", report, "--minimal", minimal)
    outcome = cli(*asked, "--test", command)
    assert outcome.status == 0 and outcome.stderr == ""
    lines = outcome.stdout.splitlines()
    said = r"minimal: 2 delays of 26 \(\d+ tests, \d+ runs\)"
    assert re.fullmatch(said, lines[0])
    assert lines[1:] == [
        "  1.02 µs before LDG",
        "    at 0x190 of step",
        "  50 µs before call 1 of stream 16",
    ]
    made = json.loads(report.read_text())
    assert made["status"] == "reduced" and made["runs"] == len(log.read_text())
    assert [place["key"] for place in made["essential"]] == [KEY, "16:1"]
    assert delays.read(minimal).document == made["minimal_config"]
    assert cli("validate", report, minimal).status == 0
    assert not (tmp_path / "report.json.state").exists()
    placed = cli(*asked, "--test", f"{command} {{config}}", "--json")
    assert json.loads(placed.stdout)["essential"] == made["essential"]


def test_either_exit_status_may_mean_a_race(
    cli: Cli, files: tuple[Path, str, Path], tmp_path: Path
) -> None:
    config, command, _ = files
    asked = ("reduce", "-c", config, "-s", "bisect", "-m", tmp_path / "least.json")
    for_tests = cli(*asked, "-t", command, "--race-exit", "1")
    script = tmp_path / "found.sh"
    script.write_text(f"#!/bin/sh\n! {command}\n")
    script.chmod(0o755)
    for_reduce = cli(*asked, "-t", script, "--race-exit", "0", "--confidence-runs", "1")
    assert for_reduce.status == 0 and for_reduce.stdout == for_tests.stdout
    assert "does not fail with all delays" in cli(*asked, "-t", script).stderr
    assert "expected 0 or 1" in cli(*asked, "-t", script, "--race-exit", "2").stderr


@pytest.mark.long
def test_interrupted_search_resumes(
    cli: Cli, files: tuple[Path, str, Path], tmp_path: Path
) -> None:
    config, command, log = files
    report = tmp_path / "report.json"
    asked = ("reduce", "-c", config, "-t", command, "-o", report, "--strategy", "linear")
    stopped = cli(*asked, "--limit", "5")
    assert "limit of tests reached; left so far: " in stopped.stdout
    assert json.loads(report.read_text())["status"] == "stopped" and len(log.read_text()) == 5
    other = cli("reduce", "-c", config, "-t", f"{command} {{config}}", "-o", report)
    assert other.status == 2 and "belongs to another search; --force starts again" in other.stderr
    assert cli(*asked).status == 0
    made = json.loads(report.read_text())
    assert made["status"] == "reduced" and made["runs"] == len(log.read_text())
    state = tmp_path / "report.json.state"
    assert not state.exists()
    tried = ("", '{"zz": [1, 1]}', '{"1": 5}', '{"1": [2, 1]}', '{"1": ["1", 1]}', "[]")
    for damaged in ("", "[]", "{}", *(f'{{"tried": {members}}}' for members in tried)):
        state.write_text(damaged)
        outcome = cli(*asked)
        assert outcome.status == 2 and outcome.stderr.count("\n") == 1
        assert f"{state}: " in outcome.stderr
    assert cli(*asked, "--force").status == 0


def test_interrupt_keeps_finished_tests(files: tuple[Path, str, Path], tmp_path: Path) -> None:
    config, command, log = files
    slow = tmp_path / "slow.sh"
    waits = f"[ $(cat {log} 2>/dev/null | wc -c) -lt 4 ] || sleep 60"
    slow.write_text(f"#!/bin/sh\n{waits}\n{command}\n")
    slow.chmod(0o755)
    asked = ["reduce", "-c", str(config), "-t", str(slow), "--quiet"]
    with subprocess.Popen([sys.executable, "-m", "ttanalyze", *asked]) as child:
        while not log.exists() or len(log.read_text()) < 4:
            time.sleep(0.05)
        time.sleep(0.3)  # the next one sleeps
        child.send_signal(signal.SIGINT)
        assert child.wait(60) in (130, -signal.SIGINT)
    kept = json.loads((tmp_path / "delays.json.state").read_text())
    assert sum(runs for _, runs in kept["tried"].values()) in (3, 4)


@in_some_limit(0.7, 4, 20)  # no other run takes as long as one of them
def test_hanging_test_counts_as_failed(limit: float, cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "delays.json"
    config.write_text(configuration(2, 0, 0).to_json())
    hangs = tmp_path / "hangs.sh"
    late = '*\'"pc":16,"sass":"LDG","delay":1001,"on":true\'*'
    delays_in_a_line = 'tr -d " \\n" <"$TT_DELAY_LOAD"'
    hangs.write_text(f"case $({delays_in_a_line}) in {late}) exec sleep 60 ;; esac\n")
    asked = ("-c", config, "-t", f"sh {hangs}", "--timeout", str(limit))
    outcome = cli("reduce", *asked, "--json", "--force")
    assert [place["pc"] for place in json.loads(outcome.stdout)["essential"]] == [16]


def test_invalid_arguments_are_errors(
    cli: Cli, files: tuple[Path, str, Path], tmp_path: Path
) -> None:
    config, command, _ = files

    def error(*arguments: str | Path) -> str:
        outcome = cli("reduce", *arguments)
        assert outcome.status == 2 and outcome.stdout == "" and outcome.stderr.count("\n") == 1
        return outcome.stderr

    assert "No such file" in error("-c", tmp_path / "none.json", "-t", command)
    assert "does not fail with all delays" in error("-c", config, "-t", "true")
    assert "fails without any delay" in error("-c", config, "-t", "false")
    assert "no-such-program: No such file" in error("-c", config, "-t", "no-such-program")
    assert "can't be run (status 127)" in error("-c", config, "-t", "sh -c nonsense-program")
    assert "expected a command" in error("-c", config, "-t", "")
    assert "does not fail with" in error("-c", config, "-t", f"true {'long' * 2000}")
    assert "not a regular file" in error("-c", ".", "-t", "true")
    assert "No closing quotation" in error("-c", config, "-t", "'")
    asked = ("-c", config, "-t", "true", "--strategy", "guess")
    assert "--strategy guess: must be one of" in error(*asked)
    config.write_text('{"version": "1.0"}')
    assert "no delay_ns, which is required" in error("-c", config, "-t", "true")
