"""On a GPU with PyTorch: its tensors have their names."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

BARE = support.importing_environment()
PROGRAM = [sys.executable, str(Path(__file__).with_name("train_named.py"))]
SPOILED = "layers.1.mlp.0.weight.grad"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two trainings; in the second an item of a gradient is doubled in step 2."""
    folder = tmp_path_factory.mktemp("named")
    bare = support.run([*PROGRAM, "--bare"], BARE)
    assert bare.status == 0, bare.stderr
    for name, arguments in (("good", []), ("bad", ["--spoil", "2"])):
        outcome = record([*PROGRAM, *arguments], BARE, folder / name, "--deterministic")
        assert outcome.status == 0, outcome.stderr
        assert "stopped naming" not in outcome.stderr
        assert (outcome.stdout == bare.stdout) == (name == "good")
    return folder / "good", folder / "bad"


def test_diff_names_the_corrupted_gradient(runs: tuple[Path, Path]) -> None:
    outcome = support.ttanalyze("diff", *runs, "--json")
    assert outcome.status == 1, outcome.stderr
    found = json.loads(outcome.stdout)["processes"][0]["divergences"][0]
    assert (found["tensor"], found["tensor_element"]) == (SPOILED, 17), found
    assert (found["tensor_type"], found["tensor_count"]) == ("f32", 1)
    assert found["tensor_values"]["count"] == 1
    assert f"{SPOILED} [17]" in support.ttanalyze("diff", *runs).stdout.splitlines()[0]


def test_all_live_tensors_have_names(runs: tuple[Path, Path]) -> None:
    run = tt.open(runs[0])
    names = {*run.tensors(len(run.epochs) - 1)["tensor"]}
    parameters = {n.removesuffix(".exp_avg") for n in names if n.endswith(".exp_avg")}
    assert len(parameters) == 2 * 10 + 2
    for suffix in ("", ".grad", ".exp_avg", ".exp_avg_sq"):
        assert {parameter + suffix for parameter in parameters} <= names
    given = {name.removesuffix(" (freed)") for name in {*run.labels["tensor"]}}
    assert {"layers.0.attention:output.0", "layers.1.mlp.2:output", "head:output"} < given
    assert {"layers.1.mlp.0:output.grad", "head:output.grad"} < given


def test_captured_contents_equal_the_tensors(runs: tuple[Path, Path]) -> None:
    outcome = support.run([*PROGRAM, "--bare"], BARE)
    digests = dict(line.split() for line in outcome.stdout.splitlines() if "step" not in line)
    run = tt.open(runs[0])
    last = len(run.epochs) - 1
    tensors = run.tensors(last).set_index("tensor")
    for name, digest in digests.items():
        row = tensors.loc[name]
        data = run.read(last, row["region"], start=row["offset"], stop=row["offset"] + row["bytes"])
        assert hashlib.sha256(data.tobytes()).hexdigest() == digest, name


def test_no_names_without_a_recorder() -> None:
    bare = support.run([*PROGRAM, "--bare"], BARE)
    assert support.run(PROGRAM, BARE) == bare
