"""`race --exact`: kernels with a planted race, and the same without it, on the simulator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.race_kernels import PLANTED, RACES
from tests.rundir import copy_of, edit, forget_endings, reseal_records
from ttanalyze.verbs.race.exact.report import search
from ttanalyze.verbs.retrace import Retraced

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
WANTED = ("--kind", "opcode,registers,values,tma", "--category", "memory,sync,tma")
FOUND = pytest.mark.parametrize("name", PLANTED)


@pytest.fixture(scope="module")
def program(built: Path) -> str:
    return str(support.build_embedding(RACES / "program.c", built / "races"))


def instrument(run: Path, program: str, *kernels: str, options: tuple[str, ...] = WANTED) -> None:
    line: list[str | Path] = ["instrument", "--sim", "-q", *options, "-o", run, "--", program]
    assert support.ttanalyze(*line, *kernels, environment=SIM).status == 0


@pytest.fixture(scope="module")
def run(program: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which each kernel was launched once, and traced."""
    where = tmp_path_factory.mktemp("races") / "run"
    instrument(where, program, *PLANTED, *(f"{name}_fixed" for name in PLANTED), "same_value")
    return where


@pytest.fixture(scope="module")
def report(run: Path) -> dict[str, Any]:
    """What `race --exact` says of each kernel."""
    done = support.ttanalyze("race", run, "--exact", "--json")
    assert done.status == 1 and not done.stderr
    return {one["kernel"]: one for one in json.loads(done.stdout)["launches"]}


@FOUND
def test_planted_race_is_found_at_its_lines(report: dict[str, Any], name: str) -> None:
    races = report[name]["races"]
    assert races and all(race["certain"] for race in races)
    lines = {race[side]["line"] for race in races for side in ("first", "second")}
    assert lines == PLANTED[name]


@FOUND
def test_fixed_kernel_has_no_race(report: dict[str, Any], name: str) -> None:
    one = report[f"{name}_fixed"]
    assert one["races"] == [] and one["missing"] == [] and one["records"] > 0


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["barrier", "bulk", "cluster"])
def test_races_of_the_examples_are_found(
    name: str, fixed: bool, built: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    program = str(support.build_races(built / "examples") / name)
    words = [program, "--steps", "1", "--size", "512", *["--fixed"] * fixed]
    done = support.ttanalyze("instrument", "--sim", "-q", *WANTED, "-o", run, "--", *words)
    assert done.status == 0, done.stderr
    done = support.ttanalyze("race", run, "--exact", "--json")
    (launch,) = json.loads(done.stdout)["launches"]
    assert launch["missing"] == [] and len(launch["races"]) == (not fixed), done.stdout
    assert all(race["certain"] for race in launch["races"])


def test_race_names_threads_and_memory(report: dict[str, Any]) -> None:
    (race,) = report["blocks"]["races"]
    assert race["count"] == 512 and race["space"] == "global" and race["region"] is not None
    first, second = race["first"], race["second"]
    assert (first["does"], second["does"]) == ("stores", "loads")
    assert (first["block"], second["block"]) == ([0, 0, 0], [3, 0, 0])
    assert first["thread"] == second["thread"] and first["size"] == 4
    (race,) = report["read_after_write"]["races"]
    assert race["space"] == "shared" and race["owner"] == [0, 0, 0] and race["address"] == 4


def test_stores_of_one_value_are_reported_apart(run: Path, report: dict[str, Any]) -> None:
    (race,) = report["same_value"]["races"]
    assert race["same_value"]
    launch = str(report["same_value"]["launch"])
    done = support.ttanalyze("race", run, "--exact", "--launch", launch)
    assert done.status == 0 and "no race" in done.stdout and "same value" in done.stdout


def test_launch_without_race_is_no_race(run: Path, report: dict[str, Any]) -> None:
    launch = str(report["flag_fixed"]["launch"])
    done = support.ttanalyze("race", "--exact", "--launch", launch, run)
    assert done.status == 0 and done.stdout.startswith(f"launch {launch} of flag_fixed: no race")


@pytest.mark.long
def test_text_has_both_sides_of_a_race(run: Path, report: dict[str, Any]) -> None:
    launch = str(report["warp"]["launch"])
    done = support.ttanalyze("race", run, "--exact", "--launch", launch)
    assert done.status == 1 and f"launch {launch} of warp: 1 race" in done.stdout
    for line in PLANTED["warp"]:
        assert f" at {line}" in done.stdout
    assert "block 0, thread 1 stores 4 bytes: st.shared.u32" in done.stdout


@pytest.mark.long
def test_replayable_launch_without_trace_is_replayed_and_traced(
    program: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    line: list[str | Path] = ["record", "--sim", "-q", "--replayable", "-o", run, "--", program]
    assert support.ttanalyze(*line, "blocks", "blocks_fixed", environment=SIM).status == 0
    for seq, kernel in tt.open(run).events.query("kind == 'launch'")[["seq", "kernel"]].values:
        words = ("race", run, "--exact", "--sim", "--launch", str(seq))
        done = support.ttanalyze(*words, "--json", environment=SIM)
        assert done.status == (kernel == "blocks"), done.stderr
        (launch,) = json.loads(done.stdout)["launches"]
        assert (launch["launch"], launch["kernel"]) == (seq, kernel) and not launch["missing"]
        assert all(race["region"] is not None for race in launch["races"])


def test_memory_is_named_where_a_replay_has_it(run: Path, report: dict[str, Any]) -> None:
    """As if the replay had the region 4 bytes before its recorded place."""
    seq, (race,) = report["blocks"]["launch"], report["blocks"]["races"]
    base = tt.open(run).allocs.set_index("region")["base"][race["region"]]
    replayed = Retraced(run, 0, {"moved": {race["region"]: int(base) - 4}}, "")
    searched = search(tt.open(run).process(0), seq, replayed=replayed)
    (found,) = next(one.races for one in searched.launches if one.kernel == "blocks")
    assert (found.region, found.offset) == (race["region"], race["offset"] + 4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "missing"),
    [
        (("--blocks", "0:1"), "only blocks 0:1 were traced"),
        (("--max-records", "40"), "records lost"),
    ],
    ids=["blocks", "records"],
)
def test_incomplete_trace_is_not_clean(
    program: str, tmp_path: Path, more: tuple[str, ...], missing: str
) -> None:
    instrument(tmp_path / "run", program, "blocks_fixed", options=(*WANTED, *more))
    done = support.ttanalyze("race", tmp_path / "run", "--exact")
    assert done.status == 2 and ": unclear (" in done.stdout and missing in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kind", "opcode"), "its trace has no addresses or values"),
        (("--kind", "values"), "its trace has no opcode or registers"),
        ((*WANTED[:2], "--category", "memory"), "only memory instructions were traced"),
    ],
    ids=["addresses", "opcode", "category"],
)
def test_trace_that_lacks_something_is_refused(
    program: str, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    instrument(tmp_path / "run", program, "blocks", options=options)
    done = support.ttanalyze("race", tmp_path / "run", "--exact")
    assert done.status == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "sizes", [{"block": [1 << 20] * 3}, {"grid": [0, 1, 1]}], ids=["block", "grid"]
)
def test_impossible_launch_is_refused(run: Path, tmp_path: Path, sizes: dict[str, Any]) -> None:
    changed = copy_of(run, tmp_path / "run")
    edit(changed / "p0" / "traced.bin", 0, **sizes)
    reseal_records(changed / "p0" / "traced.bin")
    forget_endings(changed)
    done = support.ttanalyze("race", changed, "--exact")
    assert done.status == 2 and done.stderr.endswith(": no GPU has launched it in its sizes\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("--exact", "RUN", "--launch", "1"), "launch 1 has no usable trace: "),
        (("--exact", "--runs", "3", "RUN"), "--runs cannot be combined with --exact"),
        (("--exact", "RUN", "RUN"), "--exact takes one run directory"),
        (("--exact", "/dev/null"), "/dev/null"),
        (("--launch", "3", "true"), "--launch needs --exact"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_named(run: Path, line: tuple[str, ...], message: str) -> None:
    words = [run if word == "RUN" else word for word in line]
    done = support.ttanalyze("race", *words)
    assert done.status == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
