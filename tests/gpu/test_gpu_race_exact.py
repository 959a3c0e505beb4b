"""On a GPU: `race --exact` names the two instructions of a planted race."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.race_kernels import PLANTED, RACES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
TRACED = ("--kind", "opcode,values", "--category", "memory,sync,tma")


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["barrier", "bulk", "cluster"])
def test_race_within_a_launch(name: str, fixed: bool, built: Path, tmp_path: Path) -> None:
    """Copies and shared memory of other blocks are not in a trace: that is said."""
    support.build_examples(built / "examples")
    program = support.build_races(built / "examples") / name
    run, words = tmp_path / "run", ["--steps", "1", "--size", "512", *(["--fixed"] * fixed)]
    done = support.ttanalyze("instrument", *TRACED, "-q", "-o", run, "--", program, *words)
    assert done.status == 0, done.stderr
    done = support.ttanalyze("race", run, "--exact", "--json")
    report = json.loads(done.stdout)
    races = [race for launch in report["launches"] for race in launch["races"]]
    if name == "barrier" and not fixed:
        texts = {race[side]["text"].split()[0] for race in races for side in ("first", "second")}
        assert done.status == 1 and texts == {"STS", "LDS"}
        assert all(race["certain"] for race in races)
    elif fixed:
        assert not any(race["certain"] for race in races)
    else:
        assert done.status in (1, 2), "a launch with a race is clean"


# Accesses of the kernel's own instructions: copies by engines and other blocks' shared memory are
# not in the patcher's traces.
OF_INSTRUCTIONS = [n for n in PLANTED if not any(s in n for s in ("copy", "tensor", "cluster"))]
SAMPLES = ("sample_block_error", "sample_warp_error")


@pytest.fixture(scope="module")
def report(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `race --exact` says of each kernel."""
    where = tmp_path_factory.mktemp("races")
    options = ("-O2", "-arch=sm_90", "-cubin", "-lineinfo")
    cubin = support.build_cuda(RACES / "kernels.cu", where / "kernels.cubin", *options)
    program = support.build_embedding(RACES / "program.c", built / "races")
    names = [f"{name}{end}" for name in OF_INSTRUCTIONS for end in ("", "_fixed")]
    traced = ("--way", "patcher", "--kind", "opcode,registers,values", *TRACED[2:])
    line: list[str | Path] = ["instrument", "-q", *traced, "-o", where / "run", "--", program]
    done = support.ttanalyze(*line, cubin, *names, environment=support.bare_environment())
    assert done.status == 0, done.stderr
    done = support.ttanalyze("race", where / "run", "--exact", "--json")
    found = {one["kernel"]: one for one in json.loads(done.stdout)["launches"]}
    for name, one in found.items():
        sure = [race["certain"] for race in one["races"]]
        print(name, f"{sum(sure)} of {len(sure)} certain", one["missing"])
    return found


@pytest.mark.parametrize("name", OF_INSTRUCTIONS)
def test_planted_race_is_found_at_its_lines(report: dict[str, Any], name: str) -> None:
    races = report[name]["races"]
    lines = {race[side]["line"] for race in races for side in ("first", "second")}
    assert lines == PLANTED[name]
    assert name not in SAMPLES or all(race["certain"] for race in races)


@pytest.mark.parametrize("name", OF_INSTRUCTIONS)
def test_fixed_kernel_has_no_race(report: dict[str, Any], name: str) -> None:
    one = report[f"{name}_fixed"]
    assert one["records"] > 0 and not any(race["certain"] for race in one["races"])
    assert name not in SAMPLES or one["races"] == one["missing"] == []
