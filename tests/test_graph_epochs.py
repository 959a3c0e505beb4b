"""Epochs inside graphs: after kernels that were named, while the graph runs."""

from __future__ import annotations

import platform
from pathlib import Path

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.graph_epochs import (
    check_astray,
    check_body_marks,
    check_changes,
    check_child_marks,
    check_cut,
    check_graph_epochs,
    check_late,
    check_marks,
    check_order,
    check_paired,
    check_streams,
    record,
)
from tests.recordings import check_stored

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.large) for seed in (1, 2))]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.mark.parametrize("more", [{}, {"regions": "touched"}, {"deterministic": "1"}])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_graph_kernel_gets_an_epoch(
    seed: int, more: dict[str, str], built: Path, run: Path
) -> None:
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed))
    command = [str(support.build_program("recorder_graph_epochs", built))]
    record(command, run, environment, epoch="graph-node:fill|add", **more)
    check_graph_epochs(run)


@pytest.mark.parametrize("more", [{}, {"regions": "touched"}])
@pytest.mark.parametrize("seed", SEEDS)
def test_graph_updates_in_another_node_order(
    seed: int, more: dict[str, str], built: Path, run: Path
) -> None:
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed))
    command = [str(support.build_program("recorder_graph_epochs_updates", built))]
    record(command, run, environment, epoch="graph-node:fill|add", **more)
    check_order(run, [True, True, True, False])


@pytest.mark.parametrize("more", [{}, {"deps": "region"}, {"deps": "off"}])
def test_several_graphs_and_streams(more: dict[str, str], built: Path, run: Path) -> None:
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="5")
    command = [str(support.build_program("recorder_graph_epochs_streams", built))]
    record(command, run, environment, epoch="graph-node:.", graph_stamps=".", **more)
    check_streams(run)
    assert tt.open(run).activities["stamped"].sum() == 4 * 3 * 2


@pytest.mark.large
@pytest.mark.parametrize("epoch", ["sync;graph-node:.", "sync"])
def test_epochs_hold_the_work_of_concurrent_threads(epoch: str, built: Path, run: Path) -> None:
    """Others are about to launch, or wait for what stands in their way."""
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="5")
    command = [str(support.build_program("recorder_consistent_epochs", built))]
    record(command, run, environment, epoch=epoch)
    assert check_cut(run) > 5


@pytest.mark.large
@pytest.mark.skipif(platform.machine() != "x86_64", reason="a program for x86-64")
def test_epochs_hold_the_work_of_delayed_threads(built: Path, run: Path) -> None:
    """A thread stops for a moment on its way into a call, and another cuts epochs meanwhile."""
    command = [str(support.build_program("recorder_late_threads", built))]
    if support.run(command, SIM).status == 77:
        pytest.skip("the system has no PR_SET_TSC")
    record(command, run, SIM, epoch="sync")
    assert check_late(run) > 5


def test_graph_that_waits_after_its_epochs(built: Path, run: Path) -> None:
    """What it waits for is work that comes after its epochs."""
    command = [str(support.build_program("recorder_graph_then_host", built))]
    record(command, run, SIM, epoch="graph-node:.")
    epochs = tt.open(run).epochs
    node_epochs = epochs[epochs["trigger"] == "graph-node"]
    assert node_epochs["label"].tolist() == ["mix"] * 6
    assert not node_epochs["refused"].any()


def test_unusual_graph_updates_are_followed(built: Path, run: Path) -> None:
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="5")
    command = [str(support.build_program("recorder_graph_epochs_changes", built))]
    record(command, run, environment, epoch="graph-node:.", graph_stamps=".")
    check_changes(run)


def test_graph_updates_that_the_recorder_can_not_follow(built: Path, run: Path) -> None:
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="5")
    command = [str(support.build_program("recorder_graph_epochs_reordered", built))]
    record(command, run, environment, epoch="graph-node:.")
    check_astray(run)


def test_nodes_that_the_driver_pairs_differently(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_crosswise", built))]
    record(command, run, SIM, epoch="graph-node:.")
    check_paired(run)


def test_only_named_kernels_get_epochs(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs", built))]
    record(command, run, SIM, epoch="sync;graph-node:^fill$")
    epochs = tt.open(run).epochs
    node_epochs = epochs[epochs["trigger"] == "graph-node"]
    assert set(node_epochs["label"]) == {"fill"}
    assert len(node_epochs) == 5 * 2
    assert "sync" in set(epochs["trigger"])
    assert tt.verify(tt.open(run), run / "manifest.json").same


def test_graph_example_has_epochs_inside(built: Path, run: Path) -> None:
    record(support.command("example-graph", built), run, SIM, epoch="graph-node:energy")
    node_epochs = tt.open(run).epochs.query("trigger == 'graph-node'")
    assert len(node_epochs) == 5
    assert tt.verify(tt.open(run), run / "manifest.json").same


@pytest.mark.parametrize(
    ("kernels", "more"), [(2, {}), (40, {}), (3, {"regions": "touched", "epoch": "api"})]
)
def test_program_captures_epochs_into_its_graph(
    kernels: int, more: dict[str, str], built: Path, run: Path
) -> None:
    command = [str(support.build_program("recorder_graph_marks", built)), str(kernels)]
    stderr = record(command, run, SIM, **more)
    assert "no epoch" not in stderr
    check_marks(run, kernels)


@pytest.mark.parametrize("more", [{}, {"regions": "touched", "graph_stamps": "."}])
def test_program_captures_epochs_into_conditional_bodies(
    more: dict[str, str], built: Path, run: Path
) -> None:
    command = [str(support.build_program("recorder_graph_body_marks", built))]
    assert "epoch" not in record(command, run, SIM, **more)
    check_body_marks(run)


@pytest.mark.parametrize("more", [{}, {"deterministic": "1", "graph_stamps": "."}])
def test_program_captures_epochs_into_child_graphs(
    more: dict[str, str], built: Path, run: Path
) -> None:
    command = [str(support.build_program("recorder_graph_child_marks", built))]
    assert "epoch" not in record(command, run, SIM, **more)
    check_child_marks(run)


@pytest.mark.parametrize("more", [{"overwrite": "drop-oldest"}, {"contents": "every:2"}])
def test_epochs_captured_into_a_graph_have_limits(
    more: dict[str, str], built: Path, run: Path
) -> None:
    command = [str(support.build_program("recorder_graph_marks", built))]
    stderr = record(command, run, SIM, **more)
    assert "no epoch of tt_epoch inside a graph: with --" in stderr
    assert "graph-node" not in set(tt.open(run).epochs["trigger"])


@pytest.mark.long
def test_full_queue_of_graph_epochs(built: Path, run: Path) -> None:
    """The program goes on without, where it alone can let those before go."""
    command = [str(support.build_program("recorder_graph_epochs_blocked", built))]
    environment = support.recording(SIM, run, epoch="graph-node:mix", stall_ms="100")
    outcome = support.run(command, environment, timeout=30)
    assert (outcome.stdout, outcome.status) == (support.run(command, SIM).stdout, 0)
    assert "epochs of earlier launches are blocked" in outcome.stderr
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert (opened.epochs["trigger"] == "graph-node").sum() >= 20
    check_stored(opened)


def test_small_ring_captures_nothing_inside_graphs(built: Path, run: Path) -> None:
    """Nothing is captured inside, which is said, and the changes show in the next epoch."""
    command = [str(support.build_program("recorder_graph_epochs", built))]
    stderr = record(command, run, SIM, epoch="sync;graph-node:.", ring_bytes="256K")
    assert "the ring is smaller than the memory that their kernels can reach" in stderr
    epochs = tt.open(run).epochs
    assert "graph-node" not in set(epochs["trigger"])
    assert tt.verify(tt.open(run), run / "manifest.json").same


@pytest.mark.parametrize("name", ["graph_capture_memory", "graph_nodes", "graph_held_back"])
def test_graph_epochs_do_not_change_program_behaviour(name: str, built: Path, run: Path) -> None:
    record(support.command(name, built), run, SIM, epoch="graph-node:.", stall_ms="300")


def test_kernels_in_bodies_and_beside_get_epochs(built: Path, run: Path) -> None:
    """However often a body runs. Those in loops inside loops are left alone, which is said."""
    command = [str(support.build_program("simonly_loops", built))]
    stderr = record(command, run, SIM, epoch="graph-node:turn", graph_stamps="turn")
    opened = tt.open(run)
    inside = opened.epochs.query("trigger == 'graph-node'")
    expected = []
    left_out = set()
    for launch in opened.events.query("kind == 'graph-launch'").itertuples():
        nodes = opened.graph_nodes(int(launch.id)).set_index("node")
        for parent in nodes[nodes["kernel"] == "turn"]["parent"]:
            if parent is pd.NA or pd.isna(nodes.loc[parent, "parent"]):
                expected.append(launch.seq)
            else:
                left_out.add(f"graph {launch.id}: no epochs after kernel turn, which is in a ")
    assert inside["seq"].tolist() == expected
    assert len(expected) > 2 + 7 * 2 and left_out
    assert all(line + "conditional body inside another graph" in stderr for line in left_out)
    assert not inside[["refused", "loose"]].any().any()
    assert opened.activities["stamped"].sum() == 2 + 7 * 2  # those beside
    assert tt.verify(opened, run / "manifest.json").same


def test_kernels_in_child_graphs_get_epochs(built: Path, run: Path) -> None:
    """Also after an update from a graph whose nodes came in another order."""
    record(support.command("graph_children", built), run, SIM, epoch="sync;graph-node:^add")
    opened = tt.open(run)
    launches = opened.events.query("kind == 'graph-launch'")
    nodes = [opened.graph_nodes(int(graph)) for graph in launches["id"]]
    kernels = [int((of["kernel"] == "add").sum()) for of in nodes]
    assert kernels == [3] * 5 + [1] * 20
    inside = opened.epochs.query("trigger == 'graph-node'")
    assert inside["seq"].tolist() == [
        seq for seq, count in zip(launches["seq"], kernels, strict=True) for _ in range(count)
    ]
    assert not inside[["refused", "loose"]].any().any() and not opened.warnings
    assert tt.verify(opened, run / "manifest.json").same


def test_epochs_of_graph_memory_nodes(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs_allocation", built))]
    stderr = record(command, run, SIM, epoch="graph-node:.")
    assert "no epochs inside a graph: it allocates memory" in stderr


def test_device_launched_graphs_get_no_epochs(built: Path, run: Path) -> None:
    """What kernels launch is left alone; what the host launches of the same program is not."""
    stderr = record(support.command("graph_flags", built), run, SIM, epoch="graph-node:.")
    assert "no epochs inside a graph: it is for launches from the device" in stderr
    assert "graph-node" in set(tt.open(run).epochs["trigger"])


def test_graph_epochs_need_an_expression() -> None:
    refused = support.ttanalyze("record", "--sim", "--epoch", "graph-node:", "--", "true")
    assert refused.status == 2
    assert "graph-node:REGEX needs an expression" in refused.stderr


def test_graph_epochs_exclude_the_flight_recorder(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_graph_epochs", built))]
    stderr = record(command, run, SIM, epoch="sync,graph-node:fill", overwrite="drop-oldest")
    assert "TT_EPOCH=sync,graph-node:fill needs another TT_OVERWRITE than drop-oldest" in stderr
    options = ["--epoch", "sync,graph-node:fill", "--overwrite", "drop-oldest"]
    refused = support.ttanalyze("record", "--sim", *options, "--", "true")
    assert refused.status == 2
    assert (
        "--epoch sync,graph-node:fill needs another --overwrite than drop-oldest" in refused.stderr
    )
