"""On a GPU: `race --exact` names the two instructions of a planted race."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import support

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
