"""On a GPU: `--fill` fills all new memory, and `ttanalyze check` names what uses it unwritten."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import support
from ttanalyze.core.fill import fill_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
TORCH_FAULTS = support.ROOT / "tests" / "check" / "torch_faults.py"


def checked(folder: Path, *command: str | Path) -> Any:
    options = ["--only", "uninitialized", "--json", "-o", str(folder)]
    outcome = support.ttanalyze("check", *options, "--", *map(str, command), timeout=600)
    print(outcome.stderr)
    return json.loads(outcome.stdout)["outcomes"][0]


@pytest.mark.parametrize("deterministic", ["0", "1"])
@pytest.mark.parametrize("fill", ["zero", "ones", "pattern:5"])
def test_new_memory_holds_fill(built: Path, tmp_path: Path, fill: str, deterministic: str) -> None:
    command = support.command("recorder_fill", built)
    bare = support.bare_environment()
    environment = support.recording(bare, tmp_path / "run", fill=fill, deterministic=deterministic)
    outcome = support.run(command, environment)
    assert outcome.status == 0, outcome.stderr
    for line in outcome.stdout.splitlines():
        name, at, text = line.split()
        held = np.frombuffer(bytes.fromhex(text), "u1")
        if name == "mapped-again":
            assert (held == 0x5A).all()
        elif name != "far" and (name != "mapped" or not fill.startswith("pattern")):
            assert (held == fill_bytes(fill, int(at), len(held))).all(), name


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("clean", []), ("computes", ["uninitialized"]), ("copies", ["uninitialized copy"])],
)
def test_call_is_named(built: Path, tmp_path: Path, mode: str, kinds: list[str]) -> None:
    program = support.build_program("recorder_uninitialized", built)
    outcome = checked(tmp_path / "out", program, mode)
    assert [finding["kind"] for finding in outcome["findings"]] == kinds
    if kinds:
        kernel = {"computes": "add", "copies": "copy"}[mode]
        assert outcome["findings"][0]["call"]["kernel"] == kernel
        assert [one["region"] for one in outcome["findings"][0]["details"]["sources"]] == [0]


@pytest.mark.parametrize("fixed", [False, True])
def test_empty_tensor_that_is_used_is_found(tmp_path: Path, fixed: bool) -> None:
    pytest.importorskip("torch")
    more = ["--fixed"] if fixed else []
    outcome = checked(tmp_path / "out", sys.executable, TORCH_FAULTS, "empty_used", *more)
    if fixed:
        assert (outcome["status"], outcome["findings"]) == ("clean", []), outcome
        return
    (finding,) = outcome["findings"]
    assert (finding["kind"], finding["certainty"]) == ("uninitialized", "confirmed")
    assert "torch_faults.py" in finding["call"]["line"]
