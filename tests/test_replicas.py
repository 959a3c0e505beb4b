"""Memory that ranks should hold alike: which rank first differs, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from ttanalyze.errors import Error
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.verbs.replicas import ReplicasReport

RANKS, STEPS, FAULT = 4, 9, 7
Contents = Callable[[int, int], bytes]  # of a rank after a step

WEIGHTS = 1024  # f32


def weights(rank: int, step: int) -> bytes:
    """What data-parallel training leaves: the same on all ranks, other after each step."""
    return np.random.default_rng(step).random(WEIGHTS, "f4").tobytes()


def activations(rank: int, step: int) -> bytes:
    data = np.random.default_rng(1000 + rank * 100 + step).random(WEIGHTS, "f4")
    return data.tobytes() if step else bytes(4 * WEIGHTS)


def wrong(rank: int, step: int) -> bytes:
    """One element of rank 1's weights is wrong from a step on."""
    data = np.frombuffer(weights(rank, step), "f4").copy()
    if rank == 1 and step >= FAULT:
        data[17] += 1
    return data.tobytes()


def made(
    path: Path,
    first: Contents,
    second: Contents = activations,
    named: bool = True,
    ranks: int = RANKS,
    world: int = RANKS,
    steps: Callable[[int], int] = lambda rank: STEPS,
    bare: bool = False,
    only: list[int] | None = None,
) -> Path:
    """Writes a run with a region of weights and one of activations per rank."""
    for rank in range(ranks):
        writer = Writer(path, rank)
        writer.born(0, first(rank, 0))
        writer.born(1, second(rank, 0))
        if named:
            writer.name(0, 0, 4 * WEIGHTS, "layer.weight", "f32")
        writer.epoch("sync", "full", bare=bare)
        for step in range(1, steps(rank)):
            writer.event("launch", "cuLaunchKernel", grid=[step, 1, 1], block=[32, 1, 1])
            writer.write(0, 0, first(rank, step))
            writer.write(1, 0, second(rank, step))
            writer.epoch("sync", *["touched"] * (only is not None), bare=bare, only=only)
        place = {"rank": rank, "local_rank": rank, "world_size": world, "node": "n", "job": "j"}
        writer.close(rank={**place, "launcher": "torchrun", "visible_devices": ""})
    return path


def report(path: Path, **options: Any) -> ReplicasReport:
    return tt.replicas(tt.open(path), **options)


def test_rank_that_differs_is_named(tmp_path: Path) -> None:
    found = report(made(tmp_path / "run", wrong))
    assert not found.same and found.count == 1
    (place,) = found.found
    assert (place.epoch, place.odd, place.names) == (FAULT, [1], ["layer.weight"])
    assert place.groups == [[0, 2, 3], [1]] and place.contents == FAULT
    assert (place.divergence.tensor, place.divergence.tensor_element) == ("layer.weight", 17)
    assert place.divergence.equal_a == FAULT - 1
    assert place.divergence.tensor_values is not None


def test_later_epochs_are_told_on_request(tmp_path: Path) -> None:
    def before(rank: int, step: int) -> bytes:
        data = np.frombuffer(weights(0, 100 + step), "f4").copy()
        if rank == 2 and step >= FAULT - 1:
            data[3] += 1
        return data.tobytes()

    path = made(tmp_path / "run", wrong, before, named=False)
    (first,) = report(path).found
    assert (first.epoch, first.odd) == (FAULT - 1, [2])
    both = report(path, every=True).found
    assert [(one.epoch, one.odd) for one in both] == [(FAULT - 1, [2]), (FAULT, [1])]


def test_report_on_a_screen(tmp_path: Path) -> None:
    outcome = support.ttanalyze("replicas", made(tmp_path / "run", wrong))
    assert outcome.status == 1
    lines = outcome.stdout.splitlines()
    assert lines[0] == (
        "different: layer.weight first differs in epoch 7: rank 1 differs from the others"
    )
    assert "ranks 0-3, 9 common epochs; 4.0 KiB of 8.0 KiB were equal on all" in lines[1]
    assert "layer.weight, epoch 7; A is rank 0, B is rank 1" in lines
    assert any(
        line.startswith("  ranks") and "0, 2-3 hold the same; 1 alone" in line for line in lines
    )
    assert any("possible writers since epoch 6" in line for line in lines)
    told = json.loads(support.ttanalyze("replicas", "--json", tmp_path / "run").stdout)
    assert told["found"][0]["odd"] == [1]


@pytest.mark.sampled
@pytest.mark.parametrize("named", [True, False])
def test_clean_training_is_silent(named: bool, tmp_path: Path) -> None:
    found = report(made(tmp_path / "run", weights, named=named))
    assert found.same and not found.found
    assert (found.epochs, found.bytes, found.equal_bytes) == (STEPS, 8 * WEIGHTS, 4 * WEIGHTS)
    assert support.ttanalyze("replicas", tmp_path / "run").status == 0


def test_shards_are_not_replicas(tmp_path: Path) -> None:
    """Of sharded training each rank has others, under the same name; biases begin as zeros."""
    path = made(tmp_path / "run", activations)
    with pytest.raises(Error, match="no memory was equal on all ranks"):
        report(path)
    assert support.ttanalyze("replicas", path).status == 2


def test_digests_are_enough(tmp_path: Path) -> None:
    (place,) = report(made(tmp_path / "run", wrong, bare=True)).found
    assert (place.epoch, place.odd, place.names) == (FAULT, [1], ["layer.weight"])
    assert place.blocks == [0] and place.divergence.bytes is None


@pytest.mark.parametrize("contents", [weights, wrong])
def test_epochs_that_read_named_memory_alone(contents: Contents, tmp_path: Path) -> None:
    """As with --control regions=REGEX: memory that was not read is neither equal nor different."""
    found = report(made(tmp_path / "run", contents, bare=True, only=[0]))
    assert (found.epochs, found.equal_bytes) == (STEPS, 4 * WEIGHTS)
    assert [(one.epoch, one.odd) for one in found.found] == [(FAULT, [1])] * (contents is wrong)


def test_memory_without_names_has_to_agree_more_often(tmp_path: Path) -> None:
    def early(rank: int, step: int) -> bytes:
        return activations(rank, step) if step > 1 else weights(rank, step)

    def late(rank: int, step: int) -> bytes:
        return activations(rank, step) if step > 5 else weights(rank, step)

    path = made(tmp_path / "run", early, late, named=False)
    places = report(path, every=True).found
    assert [(place.epoch, place.divergence.region_a) for place in places] == [(6, 1)]
    assert places[0].odd == [] and len(places[0].groups) == RANKS


def test_first_rank_may_be_the_odd_one(tmp_path: Path) -> None:
    def contents(rank: int, step: int) -> bytes:
        return wrong({0: 1, 1: 0}.get(rank, rank), step)

    (place,) = report(made(tmp_path / "run", contents)).found
    assert (place.odd, place.ranks) == ([0], (0, 1))


def test_two_ranks_tell_no_odd_one(tmp_path: Path) -> None:
    path = made(tmp_path / "run", wrong, ranks=2, world=2)
    (place,) = report(path).found
    assert (place.groups, place.odd) == ([[0], [1]], [])
    assert "rank 0 / rank 1 differ" in support.ttanalyze("replicas", path).stdout


def test_second_block_of_a_region(tmp_path: Path) -> None:
    def contents(rank: int, step: int) -> bytes:
        data = bytearray(np.random.default_rng(step).bytes(2 * BLOCK_SIZE + 100))
        if rank == 2 and step >= FAULT:
            data[2 * BLOCK_SIZE + 8] ^= 1
        return bytes(data)

    (place,) = report(made(tmp_path / "run", contents, named=False)).found
    assert (place.blocks, place.odd) == ([2], [2])
    assert place.divergence.bytes is not None
    assert place.divergence.bytes.first == 2 * BLOCK_SIZE + 8


def test_missing_and_shorter_ranks_are_told(tmp_path: Path) -> None:
    path = made(
        tmp_path / "run", weights, ranks=3, world=4, steps=lambda rank: 5 if rank == 2 else STEPS
    )
    found = report(path)
    assert (found.same, found.epochs, found.missing) == (True, 5, [3])
    assert found.notes == [
        "rank 2 has 5 epochs, others up to 9: the rest is left out; `ttanalyze info` says how each "
        "recording ended"
    ]
    assert (
        "missing   rank 3, which no process of the run has"
        in support.ttanalyze("replicas", path).stdout
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "0,9"], "no rank 9 with epochs (there are: 0-3)"),
        (["--ranks", "1"], "it takes two ranks to compare, and there is rank 1 alone"),
        (["--rank", "x"], "--rank x: expected a number or a range"),
    ],
)
def test_wrong_ranks(arguments: list[str], said: str, tmp_path: Path) -> None:
    outcome = support.ttanalyze("replicas", made(tmp_path / "run", weights), *arguments)
    assert outcome.status == 2 and said in outcome.stderr and outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("bare", [False, True])
def test_reused_memory_beside_a_tensor_is_no_replica(bare: bool, tmp_path: Path) -> None:
    """A tensor and reused memory share a block. The reused part is equal on all ranks, then not."""

    def contents(rank: int, step: int) -> bytes:
        rest = activations(rank, step) if step > 2 else weights(9, step)
        return weights(rank, step) + rest

    found = report(made(tmp_path / "run", contents, bare=bare))
    assert found.same and not found.found


def test_tensor_beside_reused_memory_is_judged_by_its_bytes(tmp_path: Path) -> None:
    def contents(rank: int, step: int) -> bytes:
        rest = activations(rank, step) if step >= FAULT else weights(9, step)
        return wrong(rank, step) + rest

    (place,) = report(made(tmp_path / "run", contents)).found
    assert (place.epoch, place.names) == (FAULT, ["layer.weight"])


@pytest.mark.parametrize(
    ("names", "since", "told"),
    [
        ([(0, 2048, "a"), (2048, 2048, "b")], 0, ["a", "b"]),
        ([(0, 2048, "a"), (2304, 1792, "b")], 0, ["a", "b"]),  # an allocator rounds up
        ([(0, 2048, "a"), (2560, 1536, "b")], 0, None),
        ([(0, 4096, "a")], 3, None),  # reused for the tensor in the epoch that differs
        ([(0, 4096, "a")], 2, ["a"]),
    ],
)
def test_digests_of_a_block_need_tensors_that_fill_it_and_were_there_before(
    names: list[tuple[int, int, str]], since: int, told: list[str] | None, tmp_path: Path
) -> None:
    """After fewer equal epochs than would show that memory without names is a replica."""
    fault = 3
    for rank in range(3):
        writer = Writer(tmp_path / "run", rank)
        for step in range(5):
            contents = weights(0, step + 50 * (rank == 1 and step >= fault))
            if step == 0:
                writer.born(0, contents)
            else:
                writer.event("launch", "cuLaunchKernel", grid=[step, 1, 1], block=[32, 1, 1])
                writer.write(0, 0, contents)
            for offset, size, name in names if step == since else ():
                writer.name(0, offset, size, name, "f32")
            writer.epoch("sync", *["full"] * (step == 0), bare=True)
        place = {"rank": rank, "local_rank": rank, "world_size": 3, "node": "n", "job": "j"}
        writer.close(rank={**place, "launcher": "torchrun", "visible_devices": ""})
    found = report(tmp_path / "run").found
    assert [(one.epoch, one.names) for one in found] == ([(fault, told)] if told else [])
