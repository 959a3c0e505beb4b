"""On a GPU: `ttanalyze check` names the call that makes two runs differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import support
from tests.check import corpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
# By mode of the program: kind of the finding, and what its summary says.
CAUSES = {
    "seed": ("parameters", "add (call"),
    "input": ("host input", "cuMemcpyHtoD_v2 (call"),
    "launches": ("launches", "Only one of two runs makes mix"),
    "graph": ("parameters", "in node 0 (add): bytes 12 to 15"),
}


@pytest.mark.parametrize("mode", [*CAUSES, "clean"])
def test_first_differing_call_is_named(mode: str, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_nondeterminism", built)
    command = [str(program), mode, "8", str(tmp_path / "counter")]
    options = ["--only", "determinism", "--json", "-o", str(tmp_path / "out")]
    outcome = support.ttanalyze("check", *options, "--", *command)
    (found,) = json.loads(outcome.stdout)["outcomes"]
    if mode == "clean":
        assert (outcome.status, found["status"]) == (0, "clean")
        return
    (finding,) = found["findings"]
    kind, said = CAUSES[mode]
    assert (finding["kind"], finding["certainty"]) == (kind, "confirmed")
    assert said in finding["summary"]


@pytest.mark.skipif("H" not in (support.gpu_name() or ""), reason="needs a GPU of sm_90")
@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize(
    ("name", "thread"),
    [
        ("end_4", "[3, 0, 0] [231, 0, 0]"),
        ("zero_by_zero", "[0, 0, 0] [10, 0, 0]"),
        ("graph_end_4", "[3, 0, 0] [231, 0, 0]"),
    ],
)
def test_findings_name_the_instruction(
    name: str, thread: str, without: bool, tmp_path: Path
) -> None:
    """With NVIDIA's Sanitizer API, if it is there, and without it."""
    variables = {"TT_INSTRUMENT_WAY": "patcher"} if without else {}
    (case,) = (case for case in corpus.cases() if case.name == name)
    answer = corpus.check(case, False, corpus.build(tmp_path), tmp_path / "faulty", **variables)
    assert answer.found, answer.reason
    assert answer.instruction.startswith("STG.E") and answer.instruction.endswith(f"by {thread}")
