"""Names of memory that `record --names` finds in programs of frameworks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

CASE = str(Path(__file__).with_name("names_case.py"))
TRAINED = {
    *("0.weight", "2.bias", "0.weight.grad", "0.weight.exp_avg", "2.bias.exp_avg_sq"),
    *("CrossEntropyLoss.output", "inputs", "targets"),
}
EXPECTED = {
    "torch": TRAINED | {"0:output", "2:output", "0:output.grad"},
    "compile": TRAINED | {"output"},
    "graph": {"0.weight", "2.bias", "static", "2:output"},
    "jax": {
        *("params.dense.kernel", "params.head.0", "moments.dense.kernel", "x", "y"),
        "params.dense.kernel (freed)",
    },
    "cupy": {"weights.a", "weights.b.0", "total"},
}


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]


@pytest.mark.parametrize("case", EXPECTED)
def test_program_is_unchanged_and_its_memory_has_names(case: str, tmp_path: Path) -> None:
    package = {"compile": "torch", "graph": "torch"}.get(case, case)
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    command, bare = [sys.executable, CASE, case], support.bare_environment()
    expected = support.run(command, bare, timeout=300)
    assert expected.status == 0, expected.stderr
    variables = support.recording(bare, tmp_path / "run", names="1")
    outcome = support.run(command, variables, timeout=300)
    assert (outcome.status, outcome.stdout) == (0, expected.stdout)
    assert "--names" not in outcome.stderr and "stopped naming" not in outcome.stderr
    found = set(tt.query(tt.open(tmp_path / "run"), table="labels")["tensor"])
    print(case, *sorted(found), sep="\n  ")
    assert EXPECTED[case] <= found, sorted(found)
