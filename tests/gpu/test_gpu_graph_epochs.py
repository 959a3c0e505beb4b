"""On a GPU: epochs inside graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.controls import OPTIONS, check_controls
from tests.graph_epochs import (
    check_astray,
    check_body_marks,
    check_changes,
    check_child_marks,
    check_cut,
    check_graph_epochs,
    check_marks,
    check_order,
    check_paired,
    check_streams,
    record,
)
from tests.graph_memory import check_graph_memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()


@pytest.mark.parametrize("more", [{}, {"regions": "touched"}, {"deterministic": "1"}])
def test_each_graph_kernel_gets_an_epoch(more: dict[str, str], built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs", built))]
    bare = support.run(command, BARE)
    run = tmp_path / "run"
    recorded = support.recording(BARE, run, epoch="graph-node:fill|add", **more)
    assert support.run(command, recorded) == bare
    check_graph_epochs(run)


def test_graph_updates_in_another_node_order(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_updates", built))]
    bare = support.run(command, BARE)
    run = tmp_path / "run"
    recorded = support.recording(BARE, run, epoch="graph-node:fill|add")
    assert support.run(command, recorded) == bare
    taken = [line == "update 0" for line in bare.stdout.splitlines() if line.startswith("update")]
    check_order(run, taken)


@pytest.mark.parametrize("epoch", ["sync;graph-node:.", "sync", "launch"])
def test_epochs_hold_the_work_of_concurrent_threads(
    epoch: str, built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_consistent_epochs", built))]
    run = tmp_path / "run"
    outcome = support.run(command, support.recording(BARE, run, epoch=epoch))
    assert (outcome.stdout, outcome.status) == ("counted: 40\n" * 6, 0)
    assert check_cut(run) > 5


def test_unusual_graph_updates_are_followed(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_changes", built))]
    bare = support.run(command, BARE)
    run = tmp_path / "run"
    recorded = support.recording(BARE, run, epoch="graph-node:.", graph_stamps=".")
    assert support.run(command, recorded) == bare
    check_changes(run)


def test_graph_updates_that_the_recorder_can_not_follow(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_reordered", built))]
    record(command, tmp_path / "run", BARE, epoch="graph-node:.")
    check_astray(tmp_path / "run")


def test_nodes_that_the_driver_pairs_differently(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_crosswise", built))]
    record(command, tmp_path / "run", BARE, epoch="graph-node:.")
    check_paired(tmp_path / "run")


@pytest.mark.parametrize("kernels", [2, 100])
def test_program_captures_epochs_into_its_graph(kernels: int, built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_marks", built)), str(kernels)]
    said = record(command, tmp_path / "run", BARE)
    assert "no epoch" not in said
    check_marks(tmp_path / "run", kernels)


@pytest.mark.parametrize("more", [{}, {"regions": "touched", "graph_stamps": "."}])
def test_program_captures_epochs_into_conditional_bodies(
    more: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_graph_body_marks", built))]
    assert "epoch" not in record(command, tmp_path / "run", BARE, **more)
    check_body_marks(tmp_path / "run")


@pytest.mark.parametrize("more", [{}, {"deterministic": "1", "graph_stamps": "."}])
def test_program_captures_epochs_into_child_graphs(
    more: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_graph_child_marks", built))]
    assert "epoch" not in record(command, tmp_path / "run", BARE, **more)
    check_child_marks(tmp_path / "run")


def test_epochs_of_graph_memory_nodes(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_allocation", built))]
    said = record(command, tmp_path / "run", BARE, epoch="graph-node:.")
    assert "no epochs inside a graph: it allocates memory" in said
    assert "graph-node" not in set(tt.open(tmp_path / "run").epochs["trigger"])


@pytest.mark.parametrize("more", [{}, {"deps": "region"}])
def test_controls_apply_to_each_graph_launch(
    more: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """Ten of them are launched while their stream waits for the host; and times by the device."""
    command = [str(support.build_program("recorder_graph_controls", built))]
    bare = support.run(command, BARE)
    run = tmp_path / "run"
    recorded = support.recording(BARE, run, **OPTIONS, **more)
    assert support.run(command, recorded) == bare
    check_controls(run)
    print(tt.open(run).process(0).info["timeline"], tt.open(run).activities.to_string())


def test_epochs_inside_several_graphs_and_streams(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_streams", built))]
    bare = support.run(command, BARE)
    recorded = support.recording(
        BARE, tmp_path / "run", epoch="graph-node:.", graph_stamps=".", deps="region"
    )
    assert support.run(command, recorded) == bare
    check_streams(tmp_path / "run")


@pytest.mark.parametrize("deps", ["region", "device"])
def test_memory_that_a_graph_leaves_is_captured(deps: str, built: Path, tmp_path: Path) -> None:
    check_graph_memory(built, tmp_path / "run", BARE, deps)
