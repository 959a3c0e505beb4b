"""Tensors, by name: in differences, histories, files and tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.core import values
from ttanalyze.core.tensors import tensor_at
from ttanalyze.verbs import blame
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.diff.show import diff_text
from ttanalyze.verbs.memory import memory
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.rewind import rewind, save, summaries
from ttanalyze.verbs.verify import verify

SIZE = 6 << 20
LARGE = "layers.0.weight"  # 3 MiB from 1000 on, float32
SMALL = "layers.0.bias"  # 4096 bytes from 5 MiB on, bfloat16
ODD = "layers.0.scale"  # of a type that nobody knows, 100 bytes behind it


def write(path: Path, changes: dict[int, bytes]) -> Writer:
    """Two epochs of one region; changes: by offset, what differs in the second."""
    w = Writer(path)
    w.born(0, bytes(SIZE))
    w.name(0, 1000, 3 << 20, LARGE, "f32")
    w.name(0, 5 << 20, 4096, SMALL, "bf16")
    w.name(0, (5 << 20) + 4096, 100, ODD, "i4")
    w.epoch("sync", "full")
    w.event("launch", "cuLaunchKernel", id=0, grid=[4, 1, 1], block=[256, 1, 1])
    for offset, data in changes.items():
        w.write(0, offset, data)
    w.epoch("sync")
    w.close()
    return w


def f32(value: float) -> bytes:
    return bytes(np.float32(value).tobytes())


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Without and with changes: in two items of the large tensor, an item of the small one, the
    odd one, and where nothing has a name.
    """
    item, later = 1000 + 4 * 17, 1000 + 4 * 500_000
    changes = {
        item: f32(2),
        later: f32(float("nan")),
        (5 << 20) + 6: b"\x80\x3f",
        (5 << 20) + 4099: b"!",
        SIZE - 1: b"!",
    }
    write(tmp_path / "a", {item: f32(1), later: f32(1)})
    write(tmp_path / "b", changes)
    return tmp_path / "a", tmp_path / "b"


# ---- diff, verify ----


def test_all_differing_tensors_are_reported(runs: tuple[Path, Path]) -> None:
    report = diff(*runs)
    assert report.first is not None
    found = report.first[1]
    assert (found.tensor, found.tensor_type, found.tensor_element) == (LARGE, "f32", 17)
    assert found.tensor_offset == found.bytes.first - 1000 if found.bytes else False
    told = [(t.name, t.type, t.differing, t.first, t.first_element) for t in found.tensors]
    assert told == [
        (LARGE, "f32", 4, 17 * 4 + 2, 17),
        (SMALL, "bf16", 2, 6, 3),
        (ODD, "i4", 1, 3, None),
    ]
    assert found.tensor_values is not None and found.values is None
    assert (found.tensor_values.count, found.tensor_values.elements) == (2, 3 << 18)
    assert found.tensor_examples == [(17, "1.0", "2.0"), (500_000, "1.0", "nan")]
    shown = diff_text(report)
    assert f"memory first diverges in epoch 1, {LARGE} [17] (region 0 at byte 1070)" in shown
    assert f"{ODD}, i4: 1 of 100 bytes differs, the first at byte 3" in shown
    assert "--dtype" not in shown


def test_dtype_option_overrides_the_tensor_type(runs: tuple[Path, Path]) -> None:
    found = diff(*runs, types=values.parse("u8")).processes[0].divergences[0]
    assert found.values is not None and found.tensor_values is None
    assert found.tensor == LARGE


def test_unnamed_memory_is_reported_by_region_and_offset(tmp_path: Path) -> None:
    write(tmp_path / "a", {})
    write(tmp_path / "b", {10: b"!", 5 << 20: b"!"})
    report = diff(tmp_path / "a", tmp_path / "b")
    found = report.processes[0].divergences[0]
    assert found.tensor is None and [t.name for t in found.tensors] == [SMALL]
    assert "epoch 1, region 0 at byte 10," in diff_text(report)


def test_names_come_from_either_side(runs: tuple[Path, Path]) -> None:
    """Where only one program gave names, they are taken."""
    for without in runs:
        labels = without / "p0" / "labels.bin"
        kept = labels.read_bytes()
        labels.unlink()
        found = diff(*runs).processes[0].divergences[0]
        assert (found.tensor, found.tensor_element) == (LARGE, 17)
        report = verify(tt.open(runs[1]), against=tt.open(runs[0]))
        assert report.differences[0].tensor == LARGE
        labels.write_bytes(kept)


def test_verify_names_the_tensor(runs: tuple[Path, Path], cli: Cli) -> None:
    outcome = cli("verify", runs[1], "--against", runs[0])
    assert f"tensor   {LARGE} [17]" in outcome.stdout
    said = json.loads(cli("verify", runs[1], "--against", runs[0], "--json").stdout)
    found = said["differences"][0]
    assert [found[f"tensor{m}"] for m in ("", "_type", "_offset", "_element")] == [
        *(LARGE, "f32", 70, 17)
    ]
    tampered = verify(tt.open(runs[0]), tamper=(1, 0, (5 << 20) + 4096 + 99))
    assert (tampered.differences[0].tensor, tampered.differences[0].tensor_offset) == (ODD, 99)


# ---- blame ----


def test_blame_accepts_a_tensor_name(runs: tuple[Path, Path], cli: Cli) -> None:
    outcome = cli("blame", runs[1], "--region", SMALL)
    assert outcome.stdout.startswith(f"{SMALL} (4,096 bytes of region 0 from byte 5242880): 2 ver")
    assert "1 of 2,048: [3] 0 → 1" in outcome.stdout
    said = json.loads(cli("blame", runs[1], "-r", SMALL, "--element", "3", "--json").stdout)
    assert (said["tensor"], said["offset"], said["dtype"]) == (SMALL, (5 << 20) + 6, "bf16")
    assert said["changes"][-1]["after"] == [1.0]
    as_bytes = cli("blame", runs[1], "-r", SMALL, "--offset", "6", "--count", "2", "--dtype", "u8")
    assert f"{SMALL}, u8 [6..7] (region 0 from byte 5242886)" in as_bytes.stdout
    unknown = cli("blame", runs[1], "-r", ODD, "--offset", "3")
    assert f"{ODD}, byte 3 (region 0 from byte 5246979)" in unknown.stdout


def test_large_tensor_lists_changing_epochs(runs: tuple[Path, Path]) -> None:
    """Which epochs changed it, though not what is beside it in its first and last blocks."""
    process = tt.open(runs[1]).process(0)
    found = blame.blame(blame.find_target(process, LARGE))
    assert [(c.epoch, c.blocks, c.after) for c in found.changes] == [(0, 49, None), (1, 2, None)]
    beside = runs[0].parent / "beside"
    write(beside, {999: b"!", 1000 + (3 << 20): b"!"})
    found = blame.blame(blame.find_target(tt.open(beside).process(0), LARGE))
    assert [c.epoch for c in found.changes] == [0]


@pytest.mark.parametrize("condition", ["nan", "changed"])
def test_watch_accepts_a_tensor_name(runs: tuple[Path, Path], condition: str) -> None:
    process = tt.open(runs[1]).process(0)
    target = blame.find_target(process, LARGE)
    assert target.type is not None
    wanted = blame.Condition.parse(condition, target.type)
    sighting = blame.watch(process, wanted, target).sighting
    assert sighting is not None and sighting.epoch == 1
    (hit,) = sighting.hits
    assert hit.first == ([500_000] if condition == "nan" else [17, 500_000])
    assert hit.items == len(hit.first)
    assert hit.tensor is not None and (hit.tensor.name, hit.tensor.element) == (LARGE, hit.first[0])
    assert sighting.as_dict(process, target.type)["hits"][0]["tensor"] == LARGE
    small = blame.find_target(process, SMALL)
    assert blame.watch(process, blame.Condition.parse("nan", target.type), small)[0] is None


def test_watch_of_all_memory_names_the_tensor(runs: tuple[Path, Path], cli: Cli) -> None:
    outcome = cli("blame", runs[1], "--watch", "nan", "--dtype", "f32")
    assert f"region 0, from {LARGE} [500000] on: " in outcome.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-r", "layers.9"], "no region or tensor 'layers.9' in process 0: `ttanalyze query"),
        (["-r", SMALL, "--element", "2048"], f"no bytes 4096 to 4097 in {SMALL}: it has 4096"),
        (["-r", SMALL, "--offset", "-1"], "--offset -1"),
        (["-r", ODD, "--offset", "100"], f"no byte 100 in {ODD}: it has 100"),
    ],
)
def test_invalid_arguments_are_errors(
    runs: tuple[Path, Path], cli: Cli, options: list[str], reason: str
) -> None:
    outcome = cli("blame", runs[1], *options)
    assert outcome.status == 2
    assert reason in outcome.stderr and outcome.stderr.count("\n") == 1


def test_partly_overwritten_tensor(run_path: Path, cli: Cli) -> None:
    w = Writer(run_path)
    w.born(0, bytes(4096))
    w.name(0, 0, 1000, "torn", "f32")
    w.name(0, 500, 100, "hole", "f32")
    w.epoch("sync", "full")
    w.close()
    for verb in (["blame"], ["rewind", "-e", "0", "--summary"]):
        outcome = cli(verb[0], run_path, *verb[1:], "-r", "torn")
        assert outcome.status == 2
        places = "region 0 from byte 0, region 0 from byte 600"
        assert f"'torn' is not in one place ({places}): use --region and --o" in outcome.stderr


# ---- rewind ----


def test_rewind_restores_tensors(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = tt.open(runs[1])
    found = rewind(run, 1, [LARGE, SMALL, 0], shapes=[f"{LARGE}=1024,-1"], dtypes=["0=u64"])
    assert [part.name for part in found.parts] == [LARGE, SMALL, "region-0"]
    assert found.parts[0].as_dict()["offset"] == 1000
    save(found, tmp_path / "out.npz")
    arrays = np.load(tmp_path / "out.npz")
    whole = run.read(1, 0)
    assert arrays[LARGE].shape == (1024, 768)
    assert arrays[LARGE].tobytes() == whole[1000 : 1000 + (3 << 20)].tobytes()
    assert arrays[SMALL].tobytes() == whole[5 << 20 : (5 << 20) + 4096].tobytes()
    assert arrays["region-0"].tobytes() == whole.tobytes()
    save(rewind(run, 1, [SMALL]), tmp_path / "one.bin")
    assert (tmp_path / "one.bin").read_bytes() == arrays[SMALL].tobytes()
    save(rewind(run, 1, [LARGE, SMALL]), tmp_path / "out.safetensors")
    data = (tmp_path / "out.safetensors").read_bytes()
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert (head[LARGE]["dtype"], head[SMALL]["dtype"]) == ("F32", "BF16")
    large, small, _ = summaries(found)
    assert (large.elements, large.nan, large.max) == (3 << 18, 1, 2.0)
    assert (small.elements, small.zero, small.max) == (2048, 2047, 1.0)


@pytest.mark.parametrize("offset", [1, 65533])
def test_tensor_items_across_blocks(run_path: Path, tmp_path: Path, offset: int) -> None:
    numbers = np.arange(40_000, dtype="f4")
    w = Writer(run_path)
    w.born(0, bytes(offset) + numbers.tobytes() + b"end")
    w.name(0, offset, 160_000, "odd", "f32")
    w.epoch("sync", "full")
    w.close()
    found = rewind(tt.open(run_path), 0, ["odd"])
    save(found, tmp_path / "odd.npy")
    assert (np.load(tmp_path / "odd.npy") == numbers).all()
    (summary,) = summaries(found)
    assert (summary.elements, summary.min, summary.max) == (40_000, 0, 39_999)


# ---- tables ----


def test_tables_contain_tensor_names(runs: tuple[Path, Path], cli: Cli) -> None:
    run = tt.open(runs[1])
    found = query(run, Query("labels", 'type == "bf16"'))
    assert found["tensor"].tolist() == [SMALL]
    assert SMALL in cli("query", runs[1], "--table", "labels").stdout
    (of,) = memory(run)
    assert of.tensors["tensor"].tolist() == [LARGE, SMALL, ODD]
    shown = cli("memory", runs[1]).stdout
    assert "Tensors in epoch 0" in shown and LARGE in shown
    said = json.loads(cli("memory", runs[1], "--json").stdout)
    assert said[0]["tensors"][0]["tensor"] == LARGE


def test_run_without_tensor_names(small: Writer, run_path: Path, cli: Cli) -> None:
    (small.path / "labels.bin").unlink()
    process = tt.open(run_path).process(0)
    assert tensor_at(process, 0, 0, epoch=0) is None and tensor_at(None, 0, 0) is None
    assert len(query(tt.open(run_path), Query("labels"))) == 0
    assert "Tensors" not in cli("memory", run_path).stdout
    listed = "no region 'layer' in process 0: `ttanalyze query --table regions` lists them\n"
    assert cli("blame", run_path, "-r", "layer").stderr.endswith(listed)
