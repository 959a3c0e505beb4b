"""On a GPU: kernels of CUDA graphs that record, which the patcher puts into a copy of the graph."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()
PROGRAMS = ("graph_relaunch", "graph_updates", "graph_children", "recorder_graph_epochs_streams")


@pytest.mark.parametrize("options", [(), ("--every", "2")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_graphs_follow_the_program(
    name: str, options: tuple[str, ...], built: Path, tmp_path: Path
) -> None:
    command = support.command(name, built)
    bare = support.run(command, BARE)
    given = ("instrument", "--way", "patcher", "--kind", "opcode,addresses", *options)
    done = support.ttanalyze(*given, "-o", tmp_path / "run", "--", *command, environment=BARE)
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    found = tt.open(tmp_path / "run").traced
    of_graphs = found[(found["refused"] == "none") & found["node"].notna()]
    assert len(of_graphs) and of_graphs["complete"].all() and (of_graphs["records"] > 0).all()


def test_each_launch_of_a_graph_has_its_records(built: Path, tmp_path: Path) -> None:
    graph = support.build_examples(built / "examples") / "graph"
    bare = support.run([graph], BARE)
    given = ("instrument", "--kind", "values")  # the way is auto
    done = support.ttanalyze(*given, "-o", tmp_path / "run", "--", graph, environment=BARE)
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    found = tt.open(tmp_path / "run").traced
    assert found["kernel"].tolist() == ["step", "step", "energy"] * 5
    assert found["complete"].all() and found["records"].nunique() == 2
