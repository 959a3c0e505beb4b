"""On a GPU: graphs that kernels steer and launch do what they do without us."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.gpu.test_gpu import BARE, needs_nvcc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    needs_nvcc,
]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/gpu/device_graphs.cu, with the device's part of the runtime library."""
    target = tmp_path_factory.mktemp("device-graphs") / "device_graphs"
    source = Path(__file__).with_name("device_graphs.cu")
    command = ["nvcc", "-arch=native", "-rdc=true", "-o", target, source, "-lcudadevrt"]
    subprocess.run([str(word) for word in command], check=True)
    return target


@pytest.fixture(scope="session")
def bare(program: Path) -> support.Outcome:
    return support.run([program], BARE)


def test_bare_program_runs_all_its_loops(bare: support.Outcome) -> None:
    assert (bare.status, bare.stderr) == (0, "")
    turns = re.findall(r"turns (\d), inner (\d)", bare.stdout)
    assert [int(count) for count, _ in turns] == list(range(6))
    assert [int(inner) for _, inner in turns] == [0, 0, 0, 1, 2, 3]
    assert "launch 2: result 0, fired 3, tail 30, again 15" in bare.stdout


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epoch": "graph", "params": "1"},
        {"epoch": "launch,graph,memcpy", "regions": "touched"},
        {"epoch": "sync,graph-node:count"},
        {"deterministic": "1"},
        {"timeline": "events", "epoch": "graph"},
    ],
    ids=str,
)
def test_recording_device_graphs_does_not_change_the_program(
    options: dict[str, str], program: Path, bare: support.Outcome, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    recorded = support.run([program], support.recording(BARE, run, **options))
    assert (recorded.stdout, recorded.status) == (bare.stdout, bare.status)
    opened = tt.open(run)
    assert tt.verify(opened, run / "manifest.json").same
    graphs = opened.graphs
    assert len(graphs) == 5
    assert graphs["device"].tolist() == [False, True, True, False, True]
    assert graphs["launches"].tolist() == [6, 0, 0, 3, 3]
    kinds = opened.graph_nodes(0)["kind"].value_counts()
    assert kinds["conditional"] == 4
    bodies = opened.graph_nodes(0).query("conditional and kind == 'kernel'")
    assert len(bodies) == 1 + 2 + 3
    if options.get("epoch", "").startswith("graph"):
        epochs = opened.epochs[opened.epochs["trigger"] == "graph"]
        assert len(epochs) == 6 + 3 + 3
