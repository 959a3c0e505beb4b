"""How memory changed over the epochs, against runs whose memory is known at every one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import ttanalyze as tt
from tests.rundir import Writer, busy_run
from ttanalyze.format import contents, history, layout
from ttanalyze.format.history import block_history, byte_history, changes, region_history
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process

SEEDS = [1, 2]


@pytest.fixture(autouse=True, params=["one batch", "many batches"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many batches":
        monkeypatch.setattr(history, "BATCH_RECORDS", 5)
        monkeypatch.setattr(history, "GAP_RECORDS", 2)
        monkeypatch.setattr(contents, "BATCH_RECORDS", 7)


def process_of(w: Writer) -> Process:
    return tt.open(w.run).process(0)


def states(w: Writer, region: int) -> dict[int, bytes]:
    """What a region was known to hold, by epoch."""
    return {e: known[region] for e, known in enumerate(w.history) if region in known}


def regions_of(w: Writer) -> list[int]:
    return sorted({region for known in w.history for region in known})


def blocks(memory: bytes) -> list[bytes]:
    return [memory[i : i + BLOCK_SIZE] for i in range(0, len(memory), BLOCK_SIZE)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("segments", [False, True])
def test_changed_blocks_of_every_epoch(run_path: Path, seed: int, segments: bool) -> None:
    w = busy_run(run_path, seed, segments=segments)
    process = process_of(w)
    for region in regions_of(w):
        wanted, before = [], None
        for epoch, memory in states(w, region).items():
            now = blocks(memory)
            if before is None:
                wanted.append((epoch, len(now)))
            elif now != before:
                differing = sum(a != b for a, b in zip(now, before, strict=True))
                wanted.append((epoch, differing))
            before = now
        found = changes(process, region)
        assert list(zip(found["epoch"].tolist(), found["changed"].tolist(), strict=True)) == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_contents_of_every_block(run_path: Path, seed: int) -> None:
    w = busy_run(run_path, seed)
    process = process_of(w)
    for region in regions_of(w):
        known = states(w, region)
        for block in range(len(blocks(next(iter(known.values()))))):
            wanted: list[tuple[int, int]] = []
            for epoch, memory in known.items():
                digest = xxhash.xxh3_64_intdigest(blocks(memory)[block])
                if not wanted or wanted[-1][1] != digest:
                    wanted.append((epoch, digest))
            found = block_history(process, region, block)
            pairs = zip(found["epoch"].tolist(), found["digest"].tolist(), strict=True)
            assert list(pairs) == wanted
            some = block_history(process, region, block, last=20)
            assert some["epoch"].tolist() == [e for e, _ in wanted if e <= 20]
            for record in found[:3]:
                raw = np.empty(int(record["length"]), "u1")
                row = np.zeros(1, layout.BLOCK)
                for name in layout.BLOCK.names or ():
                    row[name] = record[name]
                contents.read_blocks(process, row, raw)
                assert raw.tobytes() == blocks(known[int(record["epoch"])])[block]


RANGES = [(0, 1), (BLOCK_SIZE - 3, BLOCK_SIZE + 5), (100, 2 * BLOCK_SIZE + 7), (39, 40)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("span", RANGES)
def test_bytes_of_every_epoch(
    run_path: Path, seed: int, segments: bool, span: tuple[int, int]
) -> None:
    w = busy_run(run_path, seed, segments=segments)
    process = process_of(w)
    for region in regions_of(w):
        known = states(w, region)
        if len(next(iter(known.values()))) < span[1]:
            continue
        wanted: list[tuple[int, bytes]] = []
        for epoch, memory in known.items():
            data = memory[slice(*span)]
            if not wanted or wanted[-1][1] != data:
                wanted.append((epoch, data))
        found = byte_history(process, region, *span)
        assert [(v.first, v.data) for v in found] == wanted
        assert all(v.first == v.last for v in found)
        until = byte_history(process, region, *span, last=30)
        assert until == [v for v in found if v.first <= 30]


def at_epoch(versions: list[history.Version], epoch: int) -> history.Version:
    return [v for v in versions if v.first <= epoch][-1]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("segments", [False, True])
def test_lost_epochs_give_no_wrong_contents(run_path: Path, seed: int, segments: bool) -> None:
    """What was dropped is said to be gone, until it is known again; all else is as it was."""
    w = busy_run(run_path, seed, flags=("dropped", "refused"), segments=segments, every=8)
    run = tt.open(w.run)
    process = run.process(0)
    flags = process.epochs["flags"]
    gone = 0
    for region in regions_of(w):
        known = states(w, region)
        size = len(next(iter(known.values())))
        for start, stop in ((0, 1), (size - 1, size), (0, min(size, BLOCK_SIZE + 2))):
            versions = byte_history(process, region, start, stop)
            assert [v.first for v in versions] == sorted(v.first for v in versions)
            for version in versions:
                if version.data is None:
                    gone += 1
                    assert (flags[version.first : version.last + 1] & layout.DROPPED).any()
            for epoch, memory in known.items():
                version = at_epoch(versions, epoch)
                assert version.data in (None, memory[start:stop]), (region, start, epoch)
                if version.data and not flags[epoch] & (layout.REFUSED | layout.DROPPED):
                    read = run.read(epoch, region, start=start, stop=stop)
                    assert read.tobytes() == version.data
    assert gone


def test_contents_of_removed_segments_are_lost(run_path: Path) -> None:
    w = Writer(run_path, segments=True)
    w.born(0, bytes(100))
    for number in range(12):
        w.write(0, 5, bytes([number + 1]))
        w.epoch("sync", *(["full"] if number % 4 == 0 else []))
    w.close()
    (w.path / "data-00000.bin").unlink()
    versions = byte_history(process_of(w), 0, 5, 6)
    assert [(v.first, v.last, v.data) for v in versions] == [
        (0, 3, None),
        *((n, n, bytes([n + 1])) for n in range(4, 12)),
    ]
    assert byte_history(process_of(w), 0, 5, 6, last=2) == [history.Version(0, 2, None)]


def test_only_epochs_that_changed_a_region_are_read(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "GAP_RECORDS", 0)
    w = Writer(run_path)
    w.born(0, bytes(3 * BLOCK_SIZE))
    w.born(1, bytes(BLOCK_SIZE))
    for number in range(100):
        w.write(1, number, b"x")
        if number in (20, 60):
            w.write(0, BLOCK_SIZE, bytes([number]))
        w.epoch("sync", *(["full"] if number % 32 == 0 else []))
    w.close()
    process = process_of(w)
    looked: set[int] = set()
    real = Process.blocks

    def spy(self: Process, first: int, last: int) -> Any:
        looked.update(range(first, last))
        return real(self, first, last)

    monkeypatch.setattr(Process, "blocks", spy)
    found = byte_history(process, 0, BLOCK_SIZE, BLOCK_SIZE + 1)
    assert [(v.first, v.data) for v in found] == [(0, b"\0"), (20, b"\x14"), (60, b"<")]
    assert looked == {0, 20, 60}
    assert len(region_history(process, 0)) == 3 + 3  # those, and full ones that change nothing


def test_missing_regions_and_epochs_are_errors(small: Writer, run_path: Path) -> None:
    process = tt.open(run_path).process(0)
    for region, message in ((3, "no region 3"), (2, "region 2 is not captured"), (-1, "no region")):
        with pytest.raises(tt.Error, match=message):
            changes(process, region)
    with pytest.raises(tt.Error, match="no blocks 4 to 4 in region 0: it has 4"):
        block_history(process, 0, 4)
    for start, stop in ((0, 0), (-1, 2), (196708, 196709), (5, 4)):
        with pytest.raises(tt.Error, match="are not in region 0: it has 196708"):
            byte_history(process, 0, start, stop)
    w = Writer(run_path.parent / "large")
    w.born(0, bytes(2 << 20))
    w.epoch("sync", "full")
    w.close()
    with pytest.raises(tt.Error, match="1048577 bytes are too many for a history"):
        byte_history(process_of(w), 0, 0, (1 << 20) + 1)


def test_damage_is_an_error(small: Writer, run_path: Path) -> None:
    path = small.path / "data-00000.bin"
    raw = bytearray(path.read_bytes())
    raw[layout.HEADER_SIZE + 40] ^= 1
    path.write_bytes(raw)
    process = tt.open(run_path).process(0)
    assert len(changes(process, 0)) == 2, "contents are not looked at"
    with pytest.raises(tt.FormatError, match=r"data-00000.bin: offset 64: block 0 of region 0"):
        byte_history(process, 0, 0, 1)
    assert byte_history(process, 0, BLOCK_SIZE, BLOCK_SIZE + 1), "this block is good"


# ---- the state of several regions ----


@pytest.mark.parametrize("seed", SEEDS)
def test_snapshots_equal_captured_memory(run_path: Path, seed: int) -> None:
    w = busy_run(run_path, seed, flags=("dropped", "refused"), every=8)
    process = process_of(w)
    looked = 0
    for epoch in range(0, len(w.history), 3):
        if process.epochs["flags"][epoch] & (layout.REFUSED | layout.DROPPED):
            with pytest.raises(tt.Error, match=r"was refused|are lost"):
                contents.snapshot_all(process, epoch)
            continue
        try:
            found, missing = contents.snapshot_all(process, epoch)
        except tt.Error:
            assert (process.epochs["flags"][:epoch] & layout.DROPPED).any()
            continue
        looked += 1
        assert set(missing).isdisjoint(found)
        assert set(found) == {r for r in w.history[epoch] if epoch in states(w, r)}
        for region, records in found.items():
            out = np.empty(int(records["length"].sum()), "u1")
            contents.read_blocks(process, records, out)
            assert out.tobytes() == w.history[epoch][region]
            copy = np.zeros(len(out), "u1")
            contents.visit(process, records, partial(put, copy))
            assert copy.tobytes() == out.tobytes()
    assert looked > 2


def put(into: Array, position: int, piece: memoryview) -> None:
    into[position : position + len(piece)] = np.frombuffer(piece, "u1")


def test_part_of_a_region_is_read_alone(run_path: Path) -> None:
    w = busy_run(run_path, 5)
    process = process_of(w)
    for epoch in (10, 33, 59):
        for region in w.history[epoch]:
            whole = contents.block_records(process, epoch, region)
            for first, last in ((0, 1), (1, 3), (2, 100), (7, 9)):
                some = contents.block_records(process, epoch, region, first=first, last=last)
                assert some.tolist() == whole[first:last].tolist()
