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
    *("CrossEntropyLoss.output", "inputs", "targets", "loss:saved.Exp.result"),
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
    # JAX waits without a driver call.
    epoch = "sync,memcpy" if case == "jax" else "sync"
    variables = support.recording(bare, tmp_path / "run", names="1", epoch=epoch)
    outcome = support.run(command, variables, timeout=300)
    assert (outcome.status, outcome.stdout) == (0, expected.stdout)
    assert "--names" not in outcome.stderr and "stopped naming" not in outcome.stderr
    found = set(tt.query(tt.open(tmp_path / "run"), table="labels")["tensor"])
    print(case, *sorted(found), sep="\n  ")
    assert EXPECTED[case] <= found, sorted(found)


SAVE = """
import sys, torch
from torch import nn
net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
def save(path):
    ones = torch.ones(6, device="cuda")
    more = {name: ones.to(getattr(torch, name))[2:] for name in sys.argv[3:]}
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **more}, path)
net(torch.ones(2, 8, device="cuda")).sum().backward(); optimizer.step(); torch.cuda.synchronize()
save(sys.argv[1])
with torch.no_grad():
    net[1].weight[2, 3] += 1
torch.cuda.synchronize(); torch.cuda.synchronize()
save(sys.argv[2])
"""


def test_checkpoints_of_pytorch_are_compared(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    paths = tmp_path / "a.pt", tmp_path / "b.pt"
    types = ("bfloat16", "float16", "float8_e4m3fn", "int64", "bool")
    variables = support.recording(support.bare_environment(), tmp_path / "run", names="1")
    command = [sys.executable, "-c", SAVE, *map(str, paths), *types]
    outcome = support.run(command, variables, timeout=300)
    assert outcome.status == 0, outcome.stderr
    table = tt.torch.checkpoint_diff(*paths, run=tt.open(tmp_path / "run")).set_index("tensor")
    print(table.to_string())
    differs = table[table["status"] == "different"]
    assert list(differs.index) == ["model.1.weight"] and set(types) <= {*table.index}
    assert differs[["different", "first"]].values.tolist() == [[1, 35]]
    first, second = differs[["epoch_a", "epoch_b"]].values.tolist()[0]
    assert first < second
    assert "optimizer.state.0.exp_avg" in table.index
