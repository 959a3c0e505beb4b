"""On a GPU: graphs from Python, also of PyTorch's streams and memory, and recorded work again."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import graph_cases, support

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()
SAID = support.ROOT / "tests" / "data" / "graph_cases"
needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch")


def python(*command: str | Path, **environment: str) -> support.Outcome:
    return support.run([sys.executable, *command], BARE | environment, cwd=support.ROOT)


# NVIDIA's driver waits itself before copies to memory that is not page-locked.
CASES = [name for name in graph_cases.CASES if name != "host_arrays"]


@pytest.mark.parametrize("name", CASES)
def test_graph_case(name: str) -> None:
    done = python("-m", "tests.graph_cases", name)
    assert (done.stderr, done.status) == ("", 0)
    assert done.stdout == (SAID / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", ["capture", "update", "threads", "indirect"])
def test_recorded_graph_case(name: str, run_path: Path) -> None:
    done = python("-m", "tests.graph_cases", name, **support.recording(BARE, run_path, params="1"))
    assert (done.stderr, done.status) == ("", 0)
    assert done.stdout == (SAID / f"{name}.txt").read_text()
    run = tt.open(run_path)
    assert not run.warnings
    assert tt.verify(run, run_path / "manifest.json").same


def rebuilt(run: Path, first: int = 0, last: int = -1) -> dict[str, Any]:
    done = python("-m", "tests.graph_rebuild", run, str(first), str(last))
    assert done.status == 0, done.stderr
    out: dict[str, Any] = json.loads(done.stdout)
    assert "error" not in out, out["error"]
    return out


@pytest.mark.parametrize("deterministic", ["0", "1"])
@pytest.mark.parametrize("name", ["vecadd", "pipeline", "training", "graph", "globals", "scribble"])
def test_rebuilt_graphs_reproduce_the_examples(
    name: str, deterministic: str, built: Path, run_path: Path
) -> None:
    command = support.command(f"example-{name}", built)
    options = {"params": "1", "epoch": "memcpy,sync", "deterministic": deterministic}
    support.run(command, support.recording(BARE, run_path, **options))
    run = tt.open(run_path)
    counts = run.epochs["regions"]
    last = int(counts.index[counts == counts.max()][-1])
    found = rebuilt(run_path, 0, last)
    for where in ("here", "elsewhere"):
        assert found[where]["restored"] and found[where]["same"], found[where]["text"]
        assert found[where]["again"]
    if deterministic == "1":
        ours = run.regions["region"][run.regions["kind"] == "arena"]
        assert not set(ours) & set(found["here"]["moved"]), found["here"]["notes"]


@needs_torch
def test_graphs_accept_torch_streams_and_tensors() -> None:
    script = """
import torch
from tests.graph_cases import PTX
from ttanalyze.gpu import Device, Graph, Module, StreamCapture
values = torch.arange(1000, dtype=torch.int32, device="cuda")
stream = torch.cuda.Stream()
module = Module.load(PTX)
torch.cuda.synchronize()
with StreamCapture.begin(stream) as capture:
    capture.record_kernel("add", 4, 256, args=(values, 1000, 5))
    with torch.cuda.stream(stream):
        values.mul_(2)  # is captured as well
executable = capture.graph.instantiate()
for _ in range(2):
    executable.launch(stream)
torch.cuda.synchronize()
assert values.tolist() == [((i + 5) * 2 + 5) * 2 for i in range(1000)]
kinds = capture.graph.nodes["kind"].tolist()
assert kinds == ["kernel", "kernel"], kinds
assert "mul" in capture.graph.nodes["kernel"][1].lower(), capture.graph.nodes["kernel"][1]
theirs = torch.cuda.CUDAGraph(keep_graph=True)
with torch.cuda.graph(theirs):
    values.add_(1)
graph = Graph.wrap(theirs.raw_cuda_graph())
assert graph.node_count() == 1, graph.nodes
print(graph.to_dot().count("kernel"), Device.current())
"""
    done = python("-c", script)
    assert (done.stderr, done.status) == ("", 0)


@needs_torch
def test_rebuilt_graphs_reproduce_torch_training(run_path: Path) -> None:
    """Kernels of libraries from their images; what can't be done again is refused by name."""
    options = {"params": "1", "epoch": "launch:1", "deterministic": "1"}
    script = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.randn(32, 64, device="cuda")
for step in range(4):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
"""
    done = python("-c", script, **support.recording(BARE, run_path, **options))
    assert done.status == 0, done.stderr
    last = len(tt.open(run_path).epochs) - 2
    found = rebuilt(run_path, last // 2, last)
    assert found["here"]["restored"]
    assert found["here"]["differences"] == found["here"]["new"], found["here"]["text"]
