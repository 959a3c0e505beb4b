"""Opening runs and reading them: tables, contents, manifests, what a killed run still holds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xxhash

import ttanalyze as tt
from tests import rundir
from tests.rundir import Writer, digest_of, small_run
from ttanalyze.format import contents, layout, manifest

BLOCK = layout.BLOCK_SIZE
TABLES = ["epochs", "regions", "events", "allocs", "activities", "ranges", "collectives", "digests"]
TABLES += ["labels", "graphs", "stacks", "modules", "functions", "traced"]


def check_contents(run: tt.Run, writer: Writer, process: int = 0) -> int:
    """Everything that can be read is what was written; gives how many regions that were."""
    read = 0
    for epoch, regions in enumerate(writer.history):
        for region, held in regions.items():
            assert run.read(epoch, region, process).tobytes() == held
            read += 1
    return read


def test_format_sizes_equal_the_header() -> None:
    sizes = {
        "HEADER": 64,
        "EVENT": 128,
        "REGION": 96,
        "EPOCH": 160,
        "DIGEST": 16,
        "BLOCK": 32,
        "FUNCTION": 64,
        "MODULE": 64,
    }
    assert {name: getattr(layout, name).itemsize for name in sizes} == sizes


def test_reader_restores_every_epoch(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    assert check_contents(run, small) == 13


def test_epochs_table(small: Writer, run_path: Path) -> None:
    epochs = tt.open(run_path).epochs
    assert list(epochs["epoch"]) == [0, 1, 2, 3, 4]
    assert list(epochs["trigger"]) == ["sync", "kernel-after", "launch", "api", "final"]
    assert epochs["label"].iloc[1] == "scale"
    assert epochs["label"].isna().tolist() == [True, False, True, False, True]
    assert epochs["full"].tolist() == [True, False, False, False, True]
    assert epochs["changed_blocks"].tolist() == [5, 1, 2, 2, 2]
    assert epochs["trigger"].dtype == "category"


def test_regions_table(small: Writer, run_path: Path) -> None:
    regions = tt.open(run_path).regions.set_index("region")
    assert regions["kind"].to_dict() == {
        0: "device",
        1: "device",
        2: "host",
        7: "global",
        8: "async",
    }
    assert regions.loc[0, "label"] == "weights"
    assert regions.loc[1, "label"] == "flag"  # it was given later
    assert regions["captured"].tolist() == [True, True, False, True, True]
    assert regions["born"].tolist() == [0, 0, 0, 1, 3]
    assert regions.loc[0, "died"] == 3
    assert regions["died"].isna().sum() == 4
    assert regions.loc[0, "death_call"] == "cuMemFree_v2"
    assert set(regions["call"]) == {"cuMemAlloc_v2"}


def test_events_table(small: Writer, run_path: Path) -> None:
    events = tt.open(run_path).events
    assert events["seq"].is_monotonic_increasing
    launches = events[events["kind"] == "launch"]
    assert launches["kernel"].tolist() == ["_Z3addPfS_i", "scale"]
    assert launches["grid_x"].tolist() == [4, 8]
    assert launches["block_x"].tolist() == [256, 128]
    assert set(events.loc[events["kind"] == "alloc", "call"]) == {"cuMemAlloc_v2"}
    assert events["kernel"].isna().sum() == len(events) - 2


def test_kernels_and_modules_tables(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    assert run.functions["name"].tolist() == ["_Z3addPfS_i", "scale"]
    assert run.functions["registers"].tolist() == [24, 24]
    assert run.modules["path"].tolist() == ["/opt/app/kernels.ptx"]
    assert run.modules["kind"].tolist() == ["ptx"]


def test_digests_equal_those_of_the_contents(small: Writer, run_path: Path) -> None:
    digests = tt.open(run_path).digests
    assert len(digests) == 7
    for row in digests.itertuples():
        assert row.digest == digest_of(small.history[row.epoch][row.region])  # type: ignore[index]


def test_tables_join_several_processes(run_path: Path) -> None:
    writers = []
    for index in range(3):
        w = Writer(run_path, index)
        w.function(0, f"kernel{index % 2}")
        w.born(0, bytes([index]) * 100)
        w.event("launch", "cuLaunchKernel", id=0)
        w.epoch("sync", "full")
        w.close()
        writers.append(w)
    run = tt.open(run_path)
    assert run.epochs["process"].tolist() == [0, 1, 2]
    launches = run.events[run.events["kind"] == "launch"]
    assert launches["kernel"].tolist() == ["kernel0", "kernel1", "kernel0"]
    assert launches["kernel"].dtype == "category"
    for index, w in enumerate(writers):
        assert check_contents(run, w, index) == 1
    with pytest.raises(tt.Error, match=r"no process 3 \(there are: 0-2\)"):
        run.read(0, 0, process=3)


def test_part_of_a_region_and_a_typed_view(run_path: Path) -> None:
    values = np.arange(100_000, dtype="<f4")
    w = Writer(run_path)
    w.born(0, values.tobytes())
    w.epoch("sync", "full")
    w.close()
    run = tt.open(run_path)
    assert (run.read(0, 0, dtype=np.float32) == values).all()
    part = run.read(0, 0, dtype="<f4", start=4 * 16000, stop=4 * 16800)
    place = np.array([4 * 16000, 4 * 16800], "u8")
    assert np.array_equal(run.read(0, 0, dtype="<f4", start=place[0], stop=place[1]), part)
    assert (part == values[16000:16800]).all()
    assert len(run.read(0, 0, start=400_000)) == 0
    with pytest.raises(tt.Error, match="bytes 0 to 400001 are not in region 0: it has 400000"):
        run.read(0, 0, stop=400_001)


def test_incomplete_last_item_is_an_error(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    assert len(run.read(0, 0, dtype="u4")) == (3 * BLOCK + 100) // 4
    with pytest.raises(tt.Error, match="196708 bytes don't divide into float64 items of 8"):
        run.read(0, 0, dtype="f8")
    with pytest.raises(tt.Error, match="can't be a view of memory"):
        run.read(0, 0, dtype=object)


@pytest.mark.parametrize(
    ("epoch", "region", "reason"),
    [
        (5, 0, "no epoch 5: process 0 has epochs 0 to 4"),
        (-1, 0, "no epoch -1"),
        (0, 3, "no region 3 in process 0"),
        (0, 2**32, "no region 4294967296"),
        (0, 2, "region 2 is not captured: only its life was recorded"),
        (3, 0, "region 0 does not exist in epoch 3: it lives from epoch 0 to epoch 2"),
        (0, 7, "region 7 does not exist in epoch 0: it lives from epoch 1 to the end"),
        (1, 7, "region 7 was not captured up to epoch 1"),
    ],
)
def test_unreadable_epochs_give_the_reason(
    small: Writer, run_path: Path, epoch: int, region: int, reason: str
) -> None:
    with pytest.raises(tt.Error, match=reason.replace("(", r"\(")):
        tt.open(run_path).read(epoch, region)


def test_regions_of_odd_sizes(run_path: Path) -> None:
    w = Writer(run_path)
    for region, size in enumerate([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK - 3]):
        w.born(region, os.urandom(size))
    w.epoch("sync", "full")
    w.close()
    run = tt.open(run_path)
    assert check_contents(run, w) == 6


def test_refused_epochs_show_their_changes_later(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, os.urandom(BLOCK * 2))
    w.epoch("sync", "full")
    w.write(0, 5, b"one")
    w.epoch("sync", "refused")
    w.epoch("sync", "gap")
    w.close()
    run = tt.open(run_path)
    with pytest.raises(tt.Error, match="epoch 1 was refused"):
        run.read(1, 0)
    assert run.read(2, 0).tobytes() == w.history[2][0]
    assert run.warnings == ["1 epoch was refused: it has no contents"]


def test_unchanged_contents_survive_dropped_epochs(run_path: Path) -> None:
    """Contents that changed in a dropped epoch are unknown until they are listed again."""
    w = Writer(run_path)
    w.born(0, os.urandom(BLOCK * 2))
    w.born(1, os.urandom(BLOCK))
    w.epoch("sync", "full")
    w.write(0, 5, b"one")
    w.epoch("sync", "dropped")
    w.write(0, BLOCK, b"two")
    w.epoch("sync")
    w.write(0, 0, b"three")
    w.epoch("sync")
    w.epoch("sync", "full")
    w.close()
    run = tt.open(run_path)
    assert run.read(0, 0).tobytes() == w.history[0][0]
    for epoch in (1, 2):
        with pytest.raises(tt.Error, match=f"region 0 in epoch {epoch} are lost"):
            run.read(epoch, 0)
    assert run.read(3, 0).tobytes() == w.history[3][0]
    assert run.read(4, 0).tobytes() == w.history[4][0]
    assert all(run.read(e, 1).tobytes() == w.history[e][1] for e in range(5))
    assert "1 epoch was stored without contents" in run.warnings[0]


def test_digests_survive_removed_data_files(run_path: Path) -> None:
    w = Writer(run_path, segments=True)
    w.born(0, os.urandom(BLOCK * 2))
    for step in range(6):
        w.epoch("sync", *(["full"] if step % 2 == 0 else []))
        w.write(0, step, b"x")
    w.close()
    (run_path / "p0" / "data-00000.bin").unlink()
    (run_path / "p0" / "data-00001.bin").unlink()
    run = tt.open(run_path)
    with pytest.raises(tt.Error, match=r"data-00001.bin: removed, its contents are gone"):
        run.read(3, 0)
    assert run.read(5, 0).tobytes() == w.history[5][0]
    assert run.epochs["dropped"].tolist() == [True] * 4 + [False] * 2
    flags = [epoch["flags"] for epoch in run.manifest()["processes"][0]["epochs"]]
    assert flags[0] == ["full", "dropped"]
    assert flags[4] == ["full"]
    assert run.warnings == ["4 epochs were removed to save space: only digests are left"]


def test_epochs_of_touched_regions(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, os.urandom(BLOCK))
    w.born(1, os.urandom(BLOCK))
    w.epoch("sync", "touched", only=[0])
    w.write(0, 0, b"0")
    w.epoch("sync", "touched", only=[0, 1])
    w.close()
    run = tt.open(run_path)
    with pytest.raises(tt.Error, match="region 1 was not captured up to epoch 0"):
        run.read(0, 1)
    assert run.read(1, 1).tobytes() == w.history[1][1]


def test_every_prefix_of_a_run_opens(small: Writer, run_path: Path, tmp_path: Path) -> None:
    """Whatever an append was cut short by, the epochs committed before it are there."""
    folder = run_path / "p0"
    size = (folder / "epochs.bin").stat().st_size
    for cut in range(64, size + 1, 23):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(run_path, copy)
        with (copy / "p0" / "epochs.bin").open("r+b") as f:
            f.truncate(cut)
        run = tt.open(copy)
        committed = (cut - 64) // 160
        assert len(run.epochs) == committed
        for epoch in range(committed):
            for region, held in small.history[epoch].items():
                assert run.read(epoch, region).tobytes() == held
        assert (len(run.warnings) == 1) == (committed < 5)
        shutil.rmtree(copy)


def test_torn_tails_are_ignored(small: Writer, run_path: Path) -> None:
    for path in (run_path / "p0").glob("*.bin"):
        with path.open("ab") as f:
            f.write(b"\xff" * 7)
    run = tt.open(run_path)
    assert check_contents(run, small) == 13
    assert len(run.events) == 13
    assert run.warnings == ["files end in records that no epoch committed"]


def test_killed_process_is_reported(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"abc")
    w.epoch("sync", "full")
    w.close("running")
    run = tt.open(run_path)
    assert run.warnings == [
        "it was killed or still runs: 1 epoch committed so far",
        "it did not record the sizes of its files: records may be lost",
    ]
    info = json.loads((run_path / "run.json").read_text())
    (run_path / "run.json").write_text(json.dumps({**info, "exit": {"status": 137, "signal": 9}}))
    warnings = tt.open(run_path).warnings
    assert warnings[0] == "it was killed by signal 9: 1 epoch committed by then"
    assert run.read(0, 0).tobytes() == b"abc"


def test_run_without_json_files_opens(small: Writer, run_path: Path) -> None:
    (run_path / "run.json").unlink()
    (run_path / "p0" / "process.json").unlink()
    run = tt.open(run_path)
    assert check_contents(run, small) == 13
    assert run.regions["call"].tolist() == ["call 0"] * 5


def test_process_killed_at_its_start(run_path: Path) -> None:
    small_run(run_path)
    (run_path / "p1").mkdir()
    run = tt.open(run_path)
    assert len(run.processes) == 2
    assert len(run.epochs) == 5
    assert run.warnings == [
        "process 1: it was killed or still runs: no epoch committed so far",
        "process 1: it did not record the sizes of its files: records may be lost",
    ]


def test_incomplete_files_of_a_killed_process(small: Writer, run_path: Path) -> None:
    (run_path / "p0" / "data-00001.bin").touch()
    other = run_path / "p1"
    other.mkdir()
    for name in ("strings.bin", "regions.bin", "digests.bin", "epochs.bin", "data-00000.bin"):
        (other / name).touch()
    run = tt.open(run_path)
    assert len(run.processes) == 2
    assert check_contents(run, small) == 13
    assert len(run.regions) == 5


def test_empty_run(run_path: Path) -> None:
    run_path.mkdir()
    (run_path / "run.json").write_text('{"format":"ttanalyze-run","version":1,"processes":[]}')
    run = tt.open(run_path)
    for table in (run.epochs, run.regions, run.events, run.digests, run.functions, run.modules):
        assert isinstance(table, pd.DataFrame)
        assert len(table) == 0
        assert "process" in table.columns
    assert run.warnings == ["no process was recorded"]


def test_missing_events_file_is_accepted(small: Writer, run_path: Path) -> None:
    (run_path / "p0" / "events.bin").unlink()
    assert len(tt.open(run_path).events) == 0


def test_unused_event_slots_are_skipped(small: Writer, run_path: Path) -> None:
    path = run_path / "p0" / "events.bin"
    raw = path.read_bytes()
    slots = [raw[64:][i : i + 128] for i in range(0, len(raw) - 64, 128)]
    path.write_bytes(raw[:64] + bytes(128 * 3) + b"".join(reversed(slots)) + bytes(128 * 500))
    events = tt.open(run_path).events
    assert len(events) == 13
    assert events["seq"].is_monotonic_increasing


def test_calls_between_two_points(run_path: Path) -> None:
    """Threads fill slots in runs of their own; some stay unused."""
    random = np.random.default_rng(11)
    slots = np.zeros(512 * 300, layout.EVENT)
    used = np.sort(random.choice(len(slots), 100_000, replace=False))
    order = np.arange(300)
    random.shuffle(order)
    slots["seq"][used] = np.arange(1, len(used) + 1)
    slots["kind"][used] = 1
    slots = slots.reshape(300, 512)[order].ravel()
    w = Writer(run_path)
    w.epoch("sync", "full")
    (w.path / "events.bin").write_bytes(w.path.joinpath("events.bin").read_bytes()[:64])
    w.append("events.bin", rundir.seal(slots))
    w.close()
    (process,) = tt.open(run_path).processes
    everything = process.events
    for after, until in ((0, 200_000), (0, 1), (500, 500), (500, 501), (70_000, 99_999), (9, 4)):
        inside = (everything["seq"] > after) & (everything["seq"] <= until)
        wanted = everything["seq"][inside].tolist()
        assert process.events_between(after, until)["seq"].tolist() == wanted
        for most in (1, 7, 1000):
            assert process.events_between(after, until, most)["seq"].tolist() == wanted[:most]


def test_part_of_a_region_reads_only_its_blocks(run_path: Path) -> None:
    """Also where others are lost, and over many epochs."""
    w = Writer(run_path)
    w.born(0, bytes(4 * BLOCK))
    w.epoch("sync", "full")
    for i in range(200):
        w.write(0, (i % 3) * BLOCK, bytes([i + 1]))
        w.epoch("sync", *(["dropped"] if i == 150 else []))
    w.close()
    run = tt.open(run_path)
    for epoch in (0, 1, 100, 150, 154, 200):
        memory = w.history[epoch][0]
        for block in range(3):
            start = block * BLOCK
            part = run.read(epoch, 0, start=start, stop=start + 9).tobytes()
            assert part == memory[start : start + 9]
    for epoch in (151, 152):
        with pytest.raises(tt.Error, match="are lost"):
            run.read(epoch, 0, start=3 * BLOCK)
    # All others are known again, and the region's digest tells that the last did not change.
    assert run.read(154, 0, start=3 * BLOCK).tobytes() == bytes(BLOCK)


def test_open_reads_headers_and_epochs_only(small: Writer, run_path: Path) -> None:
    """Damage elsewhere shows when it is used, which proves that opening did not read it."""
    data = run_path / "p0" / "data-00000.bin"
    raw = bytearray(data.read_bytes())
    raw[64:] = bytes(len(raw) - 64)
    data.write_bytes(raw)
    for name in ("regions.bin", "digests.bin", "blocks.bin", "events.bin"):
        path = run_path / "p0" / name
        raw = bytearray(path.read_bytes())
        raw[64:] = b"\xee" * (len(raw) - 64)
        path.write_bytes(raw)
    run = tt.open(run_path)
    assert len(run.epochs) == 5
    with pytest.raises(tt.FormatError):
        run.regions  # noqa: B018


def test_petabyte_region_needs_no_memory_to_open(run_path: Path) -> None:
    """Absurd sizes are refused by what is stored, before memory is asked for."""
    w = Writer(run_path)
    w.born(0, b"abc")
    w.epoch("sync", "full")
    w.regions[0].size = 1 << 50
    w._region("TT_REGION_DIED", 0, 99, None, layout.NO_ID)
    path = run_path / "p0" / "regions.bin"
    raw = bytearray(path.read_bytes())
    record = np.frombuffer(bytes(raw[64:160]), layout.REGION).copy()
    record["size"] = 1 << 50
    record["check"] = xxhash.xxh3_64_intdigest(record.tobytes()[:88])
    raw[64:160] = record.tobytes()
    path.write_bytes(raw)
    with pytest.raises(tt.FormatError, match="not the block's length"):
        tt.open(run_path).read(0, 0)


def test_region_larger_than_the_stored_data_is_lost(run_path: Path) -> None:
    """And the others of the epoch are not."""
    w = Writer(run_path)
    w.born(0, b"x" * 2 * BLOCK)
    w.born(1, b"y" * BLOCK)
    w.epoch("sync", "full")
    w.close()
    rundir.edit(w.path / "regions.bin", 0, size=1 << 50)
    rundir.reseal_records(w.path / "regions.bin")
    process = tt.open(run_path).processes[0]
    with pytest.raises(tt.Error, match=r"region 0 in epoch 0 are lost: at most"):
        contents.read(process, 0, 0)
    whole, lost = contents.snapshot_left(process, 0)
    assert whole["region"].tolist() == [1] and lost == (1 << 50) // BLOCK


@pytest.mark.parametrize("block", [0, 1, 2])
def test_damaged_block_is_named(run_path: Path, block: int) -> None:
    w = Writer(run_path)
    w.born(0, np.random.default_rng(1).bytes(3 * BLOCK))
    w.epoch("sync", "full")
    w.close()
    process = tt.open(run_path).processes[0]
    records = contents.block_records(process, 0, 0)
    assert records["block"].tolist() == [0, 1, 2]
    offset = int(records["offset"][block])
    data = bytearray((w.path / w.data).read_bytes())
    data[offset + 5] ^= 1
    (w.path / w.data).write_bytes(data)
    said = rf"{w.data}.*{offset}.*block {block} of region 0 does not match its digest"
    with pytest.raises(tt.FormatError, match=said):
        contents.read(process, 0, 0)
    with pytest.raises(tt.FormatError, match=said):
        contents.visit(process, records, lambda position, piece: None)
    with contents.DataFiles(process) as files, pytest.raises(tt.FormatError, match=said):
        files.compare(records, np.frombuffer(bytes(data[int(records["offset"][0]) :]), "u1"))


def test_batch_size_does_not_change_contents(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back to the first epoch, and the newest of each block counts."""
    w = Writer(run_path)
    w.born(0, bytes(4 * BLOCK))
    w.epoch("sync", "full")
    for i in range(40):
        for block in range(i % 3 + 1):
            w.write(0, block * BLOCK, bytes([i + 1]))
        w.epoch("sync")
    w.close()
    for batch in (1, 2, 5, 1 << 17):
        monkeypatch.setattr(contents, "BATCH_RECORDS", batch)
        assert check_contents(tt.open(run_path), w) == 41


def test_several_threads_visit_each_block_once(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions are those in all of the contents, whoever reads them."""
    monkeypatch.setattr(contents, "SHARE_BLOCKS", 2)
    monkeypatch.setattr(contents, "READ_BLOCKS", 2)
    w = Writer(run_path)
    for region, size in enumerate((5 * BLOCK, 7, 3 * BLOCK + 1)):
        w.born(region, np.random.default_rng(region).bytes(size))
    w.epoch("sync", "full")
    for i in range(3):
        w.write(0, i * 2 * BLOCK, bytes([i + 1]))
        w.epoch("sync")
    w.close()
    process = tt.open(run_path).processes[0]
    records, left_out = contents.snapshot_all(process, 3)
    assert left_out == []
    found: dict[int, bytes] = {}
    contents.visit(
        process,
        np.concatenate(list(records.values())),
        lambda position, piece: found.__setitem__(position, bytes(piece)),
    )
    assert b"".join(found[at] for at in sorted(found)) == b"".join(w.history[3].values())
    ends = np.cumsum([0, *(len(found[at]) for at in sorted(found))])
    assert sorted(found) == ends[:-1].tolist()


def test_manifest_equals_that_of_the_recorder(small: Writer, run_path: Path) -> None:
    made = tt.open(run_path).manifest()
    text = manifest.text(made)
    assert json.loads(text) == made
    lines = text.split("\n")
    assert lines[0] == (
        f'{{"format":"ttanalyze-manifest","version":{layout.VERSION},"block_size":65536,'
        '"digest":"xxh3-64",'
        '"processes":[{"process":0,"regions":['
    )
    assert lines[1] == (
        '{"id":0,"kind":"device","size":196708,"label":"weights","born":0,"died":3},'
    )
    digest = digest_of(small.history[1][0])
    assert lines[6] == (
        '{"epoch":1,"trigger":"kernel-after","label":"scale","flags":[],'
        f'"digests":{{"0":"{digest:016x}"}}}},'
    )
    assert '"label":"say \\"cheese\\"\\u007f\\n"' in lines[8]
    assert lines[-1].endswith("}]}]}")
    assert len(lines) == 1 + 4 + 5


def test_growing_run_stays_readable(run_path: Path) -> None:
    """What was committed when it was opened stays readable; what comes later is not seen."""
    w = Writer(run_path)
    w.born(0, os.urandom(BLOCK))
    w.epoch("sync", "full", label="first")
    run = tt.open(run_path)
    w.born(1, os.urandom(BLOCK), label="a label that is new")
    w.write(0, 0, b"other")
    w.epoch("sync", label="second")
    assert len(run.epochs) == 1
    assert run.read(0, 0).tobytes() == w.history[0][0]
    again = tt.open(run_path)
    assert again.epochs["label"].tolist() == ["first", "second"]
    assert again.regions["label"].iloc[1] == "a label that is new"


def test_unmet_options_get_a_warning(run_path: Path) -> None:
    Writer(run_path).close()
    run = tt.open(run_path)
    options = run.processes[0].info["options"]
    options |= {"TT_EPOCH": "graph-node:x", "TT_REPLAYABLE": "1", "TT_KERNEL": "y"}
    assert run.warnings == [
        "no epoch was cut: --epoch graph-node:x never applied",
        "no launch was recorded for replay: no kernel matches --kernel y",
    ]


def test_tables_without_rows_have_the_same_dtypes(small: Writer, tmp_path: Path) -> None:
    """Of a program that used no GPU, and of one that was killed early."""
    full = tt.open(small.path.parent)
    path = tmp_path / "none"
    path.mkdir()
    (path / "run.json").write_text('{"format": "ttanalyze-run", "version": 1, "processes": []}')
    early = Writer(tmp_path / "early")
    early.close("running")
    for run in (tt.open(path), tt.open(early.path.parent)):
        for name in TABLES:
            table = getattr(run, name)
            assert not len(table)
            assert table.dtypes.map(str).to_dict() == getattr(full, name).dtypes.map(str).to_dict()
