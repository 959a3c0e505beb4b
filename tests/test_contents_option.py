"""--contents: digests alone, or whole snapshots, in place of the blocks that changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record

SIM = support.simulator_environment()
pytestmark = pytest.mark.native

# A program and what is recorded of it, the same each time.
WORK: dict[str, tuple[str, list[str]]] = {
    "training": ("example-training", []),
    "touched": ("example-training", ["--regions", "touched"]),
    "snapshots": ("example-training", ["--snapshot-every", "3"]),
    "launches": ("example-streams", ["--epoch", "launch"]),
    "small-ring": ("example-training", ["--ring-bytes", "256K"]),
    "deterministic": ("example-vmm", ["--deterministic"]),
    "managed": ("example-managed", []),
    "inside-graphs": ("recorder_graph_epochs", ["--epoch", "graph-node:."]),
    "flight-recorder": ("example-training", ["--overwrite", "drop-oldest"]),
}


def told(run: Path, *more: str | Path) -> tuple[int, Any]:
    outcome = support.ttanalyze(*more[:1], run, *more[1:], "--json")
    return outcome.status, json.loads(outcome.stdout)


@pytest.mark.parametrize("kind", WORK)
def test_digests_do_not_depend_on_contents(kind: str, built: Path, tmp_path: Path) -> None:
    name, options = WORK[kind]
    command = support.command(name, built)
    bare = support.run(command, SIM)
    digests: dict[str, list[dict[int, int]]] = {}
    blocks: dict[str, list[set[tuple[int, int, int]]]] = {}
    for contents in ("changed", "none"):
        run = tmp_path / contents
        outcome = record(command, SIM, run, "--contents", contents, "--require-complete", *options)
        assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status), outcome.stderr
        assert "warning" not in outcome.stderr
        opened = tt.open(run)
        assert opened.warnings == []
        process = opened.processes[0]
        epochs = [(epoch, epoch + 1) for epoch in range(len(process.epochs))]
        digests[contents] = [
            {int(row["region"]): int(row["digest"]) for row in process.digests(*one)}
            for one in epochs
        ]
        blocks[contents] = [
            {(int(row["region"]), int(row["block"]), int(row["digest"])) for row in rows}
            for rows in (process.blocks(*one) for one in epochs)
        ]
    assert digests["none"] == digests["changed"]
    assert blocks["none"] == blocks["changed"]
    assert sum(map(len, digests["none"])) > 3
    assert not any((tmp_path / "none" / "p0").glob("data-*.bin")) or (
        sum(p.stat().st_size for p in (tmp_path / "none" / "p0").glob("data-*.bin")) <= 64
    )
    assert support.ttanalyze("verify", tmp_path / "none").status == 0
    outcome = support.ttanalyze("diff", tmp_path / "none", tmp_path / "changed")
    assert outcome.status == 0, outcome.stdout
    assert outcome.stdout.startswith("same: ")


def test_digests_show_a_difference(built: Path, tmp_path: Path) -> None:
    """The same epoch, region and blocks as with contents; only the bytes are not known."""
    program = support.command("example-scribble", built)[0]
    command = [program, "--size", "90000", "--steps", "2"]
    found = {}
    for contents in ("changed", "none"):
        good, bad = tmp_path / f"{contents}-good", tmp_path / f"{contents}-bad"
        record(command, SIM, good, "--contents", contents)
        record([*command, "--fixed"], SIM, bad, "--contents", contents)
        status, report = told(good, "diff", bad)
        assert status == 1
        first = report["processes"][0]["divergences"][0]
        found[contents] = {k: first[k] for k in ("epoch_a", "epoch_b", "region_a", "blocks")}
        manifest = good / "manifest.json"
        assert support.ttanalyze("verify", bad, "--manifest", manifest).status == 1
    assert found["none"] == found["changed"]
    assert found["none"]["blocks"] == [5]
    commands: list[list[str | Path]] = [["diff", bad, good], ["verify", bad, "--against", good]]
    for words in commands:
        outcome = support.ttanalyze(*words)
        assert outcome.status == 1
        assert "  blocks   block 5" in outcome.stdout
        assert "  within   bytes 327680 to 393215\n" in outcome.stdout
        assert "contents were not stored: recorded with --contents none" in outcome.stdout
    status, report = told(bad, "verify", "--against", good)
    (difference,) = report["differences"]
    assert (status, difference["differing_blocks"]) == (1, [5])
    assert difference["differing_bytes"] is None


def test_missing_contents_are_explained(built: Path, tmp_path: Path) -> None:
    """What needs them says why they are missing; info counts no loss."""
    record(support.command("example-training", built), SIM, tmp_path / "run", "--contents", "none")
    opened = tt.open(tmp_path / "run")
    why = r"contents of region 1 in epoch 5 were not stored: 1 of 1 blocks.*--contents none\)"
    with pytest.raises(tt.Error, match=why):
        opened.read(5, 1)
    with pytest.raises(tt.Error, match=why):
        tt.rewind.rewind(opened, 5, regions=[1])
    shown = support.ttanalyze("info", tmp_path / "run").stdout
    assert "lost     nothing" in shown
    assert ", digests only " in shown
    assert shown.endswith("no warnings\n")


def test_each_epoch_is_a_snapshot(built: Path, tmp_path: Path) -> None:
    record(support.command("example-training", built), SIM, tmp_path / "run", "--contents", "all")
    epochs = tt.open(tmp_path / "run").epochs
    assert len(epochs) > 10
    assert epochs["full"].all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--contents", "none", "--replayable"], "all contents are needed"),
        (["--contents", "all", "--snapshot-every", "4"], "each epoch is a snapshot"),
        (["--contents", "some"], "none, changed or all"),
    ],
)
def test_conflicting_options_are_refused(options: list[str], reason: str, tmp_path: Path) -> None:
    outcome = support.ttanalyze("record", "--sim", "-o", tmp_path / "run", *options, "--", "true")
    assert outcome.status == 2
    assert reason in outcome.stderr
