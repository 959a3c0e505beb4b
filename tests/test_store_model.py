"""What the recorder's own store writes, the model reads: contents, digests and manifest."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.drain_run import Store
from tests.rundir import digest_of
from ttanalyze.format import layout, manifest
from ttanalyze.verbs.verify import verify

BLOCK = layout.BLOCK_SIZE
CAPTURED, BORN, DIED, LABEL = 1, 1, 2, 3
FULL, REFUSED = 1, 8


def cut(
    store: Store, number: int, memory: dict[int, bytes], known: dict[int, bytes], flags: int
) -> None:
    """Commits an epoch of all regions in memory; known: as they were when last captured."""
    lib = store.lib
    full = bool(flags & FULL)
    assert lib.store_epoch_begin(store.s, number, full, True)
    for region, contents in {} if flags & REFUSED else memory.items():
        before = known.get(region)
        if before == contents and not full:
            continue
        changed = 0
        for i in range(layout.blocks_of(len(contents))):
            part = slice(i * BLOCK, (i + 1) * BLOCK)
            if full or before is None or before[part] != contents[part]:
                assert store.block(region, i, contents[part])
                changed += 1
        assert lib.store_digest(store.s, region, digest_of(contents), changed)
        known[region] = contents
    assert store.commit(number, flags=flags, label=store.string(b'k\x7f\xff"\n'))


@pytest.mark.sampled
@pytest.mark.parametrize("retain", [0, 6])
@pytest.mark.parametrize("seed", range(4))
def test_reader_restores_what_the_store_wrote(
    drain: Any, tmp_path: Path, seed: int, retain: int
) -> None:
    source = random.Random(seed)
    store = Store(drain, tmp_path / "run", retain=retain)
    memory: dict[int, bytes] = {}
    known: dict[int, bytes] = {}
    history = []
    born = 0
    for number in range(60):
        for _ in range(source.randrange(3)):
            memory[born] = source.randbytes(source.choice([1, 4096, BLOCK, 3 * BLOCK + 7]))
            size = len(memory[born])
            store.region(born, BORN, size=size, epoch=number, kind=source.choice([1, 3, 5]))
            born += 1
        for region in list(memory):
            if source.random() < 0.05:
                del memory[region]
                known.pop(region, None)
                store.region(region, DIED, epoch=number)
            elif source.random() < 0.4:
                at = source.randrange(len(memory[region]))
                old = memory[region]
                memory[region] = old[:at] + source.randbytes(1) + old[at + 1 :]
            elif source.random() < 0.1:
                store.region(region, LABEL, label=store.string(f"näme {region}".encode()))
        flags = FULL if number % 8 == 0 else source.choice([0, 0, 0, REFUSED])
        cut(store, number, memory, known, flags)
        history.append({} if flags & REFUSED else dict(known))
    assert drain.store_process(store.s, b'{"process":0,"status":"complete"}')
    store.close()
    run = tt.open(tmp_path / "run")
    assert manifest.text(run.manifest()) == (tmp_path / "run" / "manifest.json").read_text()
    report = verify(run)
    assert report.same, report.to_json()
    assert (report.digest_only > 0) == (retain > 0)
    kept = range(60 - retain, 60) if retain else range(60)
    for epoch in kept:
        for region, contents in history[epoch].items():
            assert run.read(epoch, region).tobytes() == contents


def test_events_and_several_processes(drain: Any, tmp_path: Path) -> None:
    for number in range(3):
        store = Store(drain, tmp_path / "run")
        store.region(0, size=3, epoch=0)
        cut(store, 0, {0: b"abc"}, {}, FULL)
        assert drain.store_process(store.s, f'{{"process":{number},"status":"complete"}}'.encode())
        store.close()
    run = tt.open(tmp_path / "run")
    assert [p.index for p in run.processes] == [0, 1, 2]
    assert manifest.text(run.manifest()) == (tmp_path / "run" / "manifest.json").read_text()
    assert run.read(0, 0, process=2).tobytes() == b"abc"
    assert verify(run).region_epochs == 3
    assert [p["process"] for p in run.info["processes"]] == [0, 1, 2]
