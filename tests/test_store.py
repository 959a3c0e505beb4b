"""The run directory as a reader finds it: layout, contents, retention, JSON files."""

from __future__ import annotations

import codecs
import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import xxhash

from tests.drain_run import (
    BLOCK,
    FFI,
    FILES,
    FULL,
    LANES,
    NONE,
    Store,
    check_epochs,
    check_header,
    data_files,
    noise,
    records,
    segments,
    sizes,
    string,
)
from ttanalyze.format import layout


def test_files_follow_the_format(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    label = s.string("größe".encode())
    assert s.string(b"other") > label == s.string("größe".encode())
    assert s.region(0, base=1 << 40, size=1 << 37, label=label)
    assert drain.store_function(
        s.s, FFI.new("struct tt_function *", {"id": 5, "name": label, "registers": 40})
    )
    module = FFI.new("struct tt_module *", {"id": 1, "kind": 2, "path": NONE})
    image = noise(1, 300_001)
    assert drain.store_module(s.s, module, FFI.from_buffer(image), len(image))
    assert drain.store_module(s.s, FFI.new("struct tt_module *", {"id": 2}), FFI.NULL, 77)
    assert s.epoch(0, True, {0: [noise(2), noise(3, 1), noise(4, 33)]}, seq=9, bytes_read=7)
    s.close()
    assert sorted(p.name for p in s.process.iterdir()) == sorted(
        [
            *FILES.keys() - {"events.bin"},
            "strings.bin",
            "data-00000.bin",
            "modules",
            "manifest.json",
        ]
    )
    check_header(s.process / "strings.bin", 9, 1)
    region = records(s.process, "regions.bin")[0]
    assert (region["base"], region["size"]) == (1 << 40, 1 << 37)
    assert string(s.process, int(region["label"])) == "größe"
    assert records(s.process, "functions.bin")[0]["registers"] == 40
    modules = records(s.process, "modules.bin")
    assert [int(m["size"]) for m in modules] == [300_001, 77]
    assert int(modules[0]["image"]) == xxhash.xxh3_64_intdigest(image)
    assert modules[1]["image"] == 0
    assert [p.name for p in (s.process / "modules").iterdir()] == [
        f"{int(modules[0]['image']):016x}"
    ]
    assert (s.process / "modules" / f"{int(modules[0]['image']):016x}").read_bytes() == image
    epoch = check_epochs(s.process)[0]
    assert (epoch["seq"], epoch["bytes_read"], epoch["bytes_stored"]) == (9, 7, BLOCK + 1 + 33)
    blocks = records(s.process, "blocks.bin")
    assert list(blocks["offset"]) == [64, 64 + BLOCK, 64 + BLOCK + 32]
    assert list(blocks["length"]) == [BLOCK, 1, 33]
    digests = records(s.process, "digests.bin")
    assert [tuple(map(int, d)) for d in digests] == [(0, 3, 0)]


def test_files_have_creation_times(drain: Any, tmp_path: Path) -> None:
    before = time.time_ns()
    for deterministic in (False, True):
        s = Store(drain, tmp_path / f"run{deterministic}", deterministic=deterministic)
        assert s.epoch(0, True, {})
        s.close()
        created = int(check_header(s.process / "epochs.bin", 3, 160)["created_ns"])
        done = int(check_epochs(s.process)[0]["done_ns"])
        if deterministic:
            assert (created, done) == (0, 0)
        else:
            assert before <= created <= time.time_ns()
            assert done > 0


@pytest.mark.parametrize("piece", [1, 63, 64, 65, 1000, 1024, 5000])
def test_digest_of_pieces_equals_the_whole(drain: Any, piece: int) -> None:
    data = noise(piece, 6000)
    wrong = [
        n
        for n in [*range(300), *range(1000, 1100), *range(2040, 2060), 5999, 6000]
        if drain.stream_digest(data, n, piece) != xxhash.xxh3_64_intdigest(data[:n])
    ]
    assert wrong == []


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 20_000])
def test_span_checks(drain: Any, tmp_path: Path, count: int) -> None:
    s = Store(drain, tmp_path / "run")
    assert s.epoch(0, True, {})
    assert s.epoch(1, False, {r: [b"x" * (r % 7 + 1)] for r in range(count)})
    s.close()
    epochs = check_epochs(s.process)
    assert [int(e["blocks_count"]) for e in epochs] == [0, count]


# ---- contents ----


def test_contents_are_stored_once(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    a, b = noise(1), noise(2, 4000)
    assert s.epoch(0, True, {0: [a, b, a], 1: [a]})
    assert s.epoch(1, False, {0: [a, a[:4000]]})
    s.close()
    epochs = check_epochs(s.process)
    assert [int(e["bytes_stored"]) for e in epochs] == [BLOCK + 4000, 4000]
    assert [int(e["blocks_count"]) for e in epochs] == [4, 2]
    offsets = list(records(s.process, "blocks.bin")["offset"])
    assert offsets[0] == offsets[2] == offsets[3] == offsets[4]
    assert len(set(offsets)) == 3


def test_lanes_of_a_segment(drain: Any, tmp_path: Path) -> None:
    """Each lane has its data file from its first contents on; contents are stored once in all."""
    s = Store(drain, tmp_path / "run", retain=1)
    assert s.region(0, size=4 * BLOCK)
    for number in range(3):
        pieces = [noise(10 * number + i, BLOCK) for i in range(2)]
        assert drain.store_epoch_begin(s.s, number, True, True)
        for lane, piece in enumerate([pieces[0], pieces[1], pieces[0], b"last"]):
            assert s.block(0, lane, piece, lane)
        if number == 1:
            drain.store_epoch_abandon(s.s)
            assert drain.store_epoch_begin(s.s, number, False, True)
        assert s.commit(number, flags=0 if number == 1 else FULL)
        base = number // 2 * LANES
        assert data_files(s.process) == [base, base + 1, base + 3]
    s.close()
    first, _, last = check_epochs(s.process)
    assert [int(first["bytes_stored"]), int(last["bytes_stored"])] == [2 * BLOCK + 4] * 2


def test_table_of_contents_is_bounded_and_correct(drain: Any) -> None:
    def place(i: int) -> int:
        return 32 * (i + 2) + i % LANES

    table, offset = FFI.new("struct dedup *"), FFI.new("uint64_t *")
    drain.dedup_init(table, 1 << 20)
    digests = [random.Random(i).getrandbits(64) for i in range(200_000)]
    for i, digest in enumerate(digests):
        drain.dedup_put(table, digest, i % BLOCK + 1, place(i))
        if i == 1000:
            assert table.count * 8 < 4 * i  # writers wait while it grows
            known = [
                drain.dedup_find(table, d, k + 1, offset) and offset[0] == place(k)
                for k, d in enumerate(digests[:i])
            ]
            assert all(known)
    assert table.count * 128 <= 1 << 20
    hits = 0
    for i, digest in enumerate(digests):
        assert not drain.dedup_find(table, digest, i % BLOCK + 2, offset)
        if drain.dedup_find(table, digest, i % BLOCK + 1, offset):
            assert offset[0] == place(i)
            hits += 1
    assert hits > 50_000
    ends = [0, 32 * 150_002, 32 * 200_002, 32 * 100_002]
    drain.dedup_drop(table, FFI.new("uint64_t[]", ends))
    assert not any(
        drain.dedup_find(table, d, i % BLOCK + 1, offset)
        for i, d in enumerate(digests)
        if 32 * (i + 2) >= ends[i % LANES]
    )
    assert drain.dedup_find(table, digests[199_998], 199_998 % BLOCK + 1, offset)
    drain.dedup_clear(table)


def test_invalid_references_are_refused(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    assert drain.store_epoch_begin(s.s, 0, True, True)
    refers = FFI.new("struct tt_block *", {"digest": 1, "length": 100, "offset": 64})
    assert not drain.store_blocks(s.s, refers, 1, FFI.NULL, 0)
    large = FFI.new("struct tt_block *", {"digest": 1, "length": BLOCK + 1})
    assert not drain.store_blocks(s.s, large, 1, FFI.from_buffer(noise(1, BLOCK + 1)), 0)
    assert s.block(0, 0, noise(1))
    assert s.commit(0)
    s.close()
    assert len(check_epochs(s.process)) == 1


def test_blocks_outside_an_epoch_are_refused(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    assert not s.block(0, 0, b"x")
    assert not drain.store_digest(s.s, 0, 1, 1)
    assert not s.commit(0)
    assert s.reason() is None
    assert s.epoch(0, True, {})
    assert not s.fill(2, False, {})
    assert "epoch 2 instead of 1" in (s.reason() or "")
    s.close()
    assert len(check_epochs(s.process)) == 1


def test_abandoned_epoch_leaves_no_data(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run", retain=1)
    many = {r: [noise(r, 40), noise(r + 100_000)] for r in range(20)}
    assert s.epoch(0, True, {0: [noise(1)]})
    before = sizes(s.process)
    for full in (False, True):
        assert s.fill(1, full, many)
        drain.store_epoch_abandon(s.s)
        assert sizes(s.process) == before
    assert s.epoch(1, False, {0: [noise(100_001)], 1: [noise(1, 40)]})
    s.close()
    assert [int(e["bytes_stored"]) for e in check_epochs(s.process)] == [BLOCK, BLOCK + 40]


def test_retain_keeps_what_the_last_epochs_need(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run", retain=3)
    kept = []
    for n in range(13):
        assert s.epoch(n, n % 4 == 0, {0: [noise(n)], 1: [noise(7)]})
        kept.append(segments(s.process))
    s.close()
    # Epochs n-2 to n are kept: they need the segment of the last full epoch up to n-2.
    assert kept == [
        [max(n - 2, 0) // 4 + i for i in range(n // 4 - max(n - 2, 0) // 4 + 1)] for n in range(13)
    ]
    epochs = check_epochs(s.process)
    assert [int(e["segment"]) for e in epochs] == [n // 4 * LANES for n in range(13)]
    flags = [e["flags"] for e in json.loads((s.process / "manifest.json").read_text())["epochs"]]
    assert ["dropped" in f for f in flags] == [n < 8 for n in range(13)]


def test_retain_considers_every_context(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run", retain=1)
    assert s.region(0, context=0)
    assert s.region(1, context=1)
    assert s.epoch(0, True, {0: [noise(0)]}, context=0)
    assert s.epoch(1, True, {1: [noise(1)]}, context=1)
    for n in range(2, 6):
        assert s.epoch(n, True, {0: [noise(n)]}, context=0)
    assert segments(s.process)[0] == 1, "the other context's only full epoch"
    assert s.region(1, op=2, context=1, epoch=6)
    assert s.epoch(6, True, {0: [noise(6)]}, context=0)
    assert segments(s.process) == [6]
    s.close()


def test_retain_passes_over_epochs_without_contents(drain: Any, tmp_path: Path) -> None:
    """They begin no segment, need none, and are no base of later ones."""
    s = Store(drain, tmp_path / "run", retain=2)
    kept = []
    for n in range(9):
        assert s.epoch(n, n % 2 == 0, {0: [noise(n)]}, bare=n % 4 != 0)
        kept.append(segments(s.process))
    s.close()
    assert kept == [[0], [0], [0], [0], [0, 1], [1], [1], [1], [1, 2]]
    blocks, epochs = (records(s.process, name) for name in ("blocks.bin", "epochs.bin"))
    wanted = [layout.NO_SEGMENT if n % 4 else n // 4 * LANES for n in range(9)]
    assert epochs["segment"].tolist() == blocks["segment"].tolist() == wanted
    assert blocks["digest"].tolist() == [xxhash.xxh3_64_intdigest(noise(n)) for n in range(9)]


def test_without_retain_there_is_one_segment(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    for n in range(6):
        assert s.epoch(n, n % 2 == 0, {0: [noise(n)]})
    s.close()
    assert segments(s.process) == [0]
    check_epochs(s.process)


# ---- JSON ----


def test_manifest_has_the_expected_text(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    label = s.string(b'say "hi"\\\n\xff')
    for i in range(7):
        assert s.region(i, kind=i + 1, size=4096 + i, epoch=i // 3)
    assert s.region(7, kind=16, flags=0)
    assert s.region(2, op=3, label=label)
    assert s.region(4, op=2, epoch=2)
    assert s.epoch(0, True, {3: [b"a"], 0: [b"b"], 1: [b"c"]})
    assert s.epoch(1, False, {}, trigger=3, label=label, flags=2 | 4 | 8 | 16 | 32)
    assert s.epoch(2, False, {2: [b"d"]}, trigger=8)
    s.close()
    text = (s.process / "manifest.json").read_bytes()
    odd = rb'"say \"hi\"\\\n' + "\ufffd".encode() + b'"'
    assert text == (
        b'{"process":0,"regions":[\n'
        b'{"id":0,"kind":"device","size":4096,"label":null,"born":0,"died":null},\n'
        b'{"id":1,"kind":"managed","size":4097,"label":null,"born":0,"died":null},\n'
        b'{"id":2,"kind":"async","size":4098,"label":' + odd + b',"born":0,"died":null},\n'
        b'{"id":3,"kind":"vmm","size":4099,"label":null,"born":1,"died":null},\n'
        b'{"id":4,"kind":"global","size":4100,"label":null,"born":1,"died":2},\n'
        b'{"id":5,"kind":"ipc","size":4101,"label":null,"born":1,"died":null},\n'
        b'{"id":6,"kind":"arena","size":4102,"label":null,"born":2,"died":null}],"epochs":[\n'
        b'{"epoch":0,"trigger":"sync","label":null,"flags":["full"],"digests":'
        b'{"0":"0000000000000000","1":"0000000000000001","3":"0000000000000003"}},\n'
        b'{"epoch":1,"trigger":"kernel-before","label":' + odd + b',"flags":'
        b'["touched","loose","refused","dropped","gap"],"digests":{}},\n'
        b'{"epoch":2,"trigger":"graph","label":null,"flags":[],"digests":{"2":"0000000000000202"}}]}'
    )
    merged = (tmp_path / "run" / "manifest.json").read_bytes()
    head = b'{"format":"ttanalyze-manifest","version":%d,' % layout.VERSION
    head += b'"block_size":65536,"digest":"xxh3-64",'
    head += b'"processes":['
    assert merged == head + text + b"]}"
    assert orjson.loads(merged)["processes"][0]["regions"][2]["label"] == 'say "hi"\\\n\ufffd'


@pytest.mark.long
def test_manifest_of_very_many_regions(drain: Any, tmp_path: Path) -> None:
    s = Store(drain, tmp_path / "run")
    region = FFI.new("struct tt_region *", {"kind": 1, "flags": 1, "label": NONE, "size": 8})
    count = 600_000
    for i in range(count):
        region.op, region.id, region.epoch = 1, i, i % 1000
        assert drain.store_region(s.s, region)
        if i % 2:
            region.op, region.epoch = 2, i % 1000 + 1
            assert drain.store_region(s.s, region)
    region.op, region.id, region.epoch = 2, 10, 77
    assert drain.store_region(s.s, region)
    s.close()
    regions = orjson.loads((s.process / "manifest.json").read_bytes())["regions"]
    assert [r["id"] for r in regions] == list(range(count))
    assert all(
        r["died"] == (i % 1000 + 1 if i % 2 else 77 if i == 10 else None)
        for i, r in enumerate(regions)
    )


def one_each(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("one-each", one_each)


def test_json_strings_escape_any_bytes(drain: Any) -> None:
    pick = random.Random(5)
    interesting = [
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98\x80",
        b"\xe2\x82",
        b"\x00\x1f\x7f",
        b'"\\/',
    ]
    for _ in range(3000):
        raw = b"".join(
            pick.choice([pick.randbytes(3), pick.choice(interesting), b"abc"])
            for _ in range(pick.randrange(12))
        )
        j = FFI.new("struct json *")
        drain.json_begin(j, FFI.NULL, FFI.NULL)
        drain.json_string_n(j, raw, len(raw))
        text = FFI.string(drain.json_text(j))
        assert json.loads(text) == orjson.loads(text) == raw.decode("utf-8", "one-each")
        drain.json_free(j)


def test_json_writer_builds_documents(drain: Any) -> None:
    j = FFI.new("struct json *")
    drain.json_begin(j, FFI.NULL, FFI.NULL)
    drain.json_open(j, b"{")
    writers: dict[bytes, Callable[[], object]] = {
        b"n": lambda: drain.json_u64(j, 2**64 - 1),
        b"zero": lambda: drain.json_u64(j, 0),
        b"yes": lambda: drain.json_bool(j, True),
        b"none": lambda: drain.json_string(j, FFI.NULL),
        b"raw": lambda: drain.json_raw(j, b'{"a":[]}'),
        b"hex": lambda: drain.json_hex16(j, 0xABC),
    }
    for key, write in writers.items():
        drain.json_key(j, key)
        write()
    drain.json_key(j, b"list")
    drain.json_open(j, b"[")
    for n in range(3000):
        drain.json_u64(j, n)
    drain.json_close(j, b"]")
    drain.json_close(j, b"}")
    document: dict[str, object] = {
        "n": 2**64 - 1,
        "zero": 0,
        "yes": True,
        "none": None,
        "raw": {"a": []},
        "hex": "0000000000000abc",
    }
    assert FFI.string(drain.json_text(j)) == orjson.dumps({**document, "list": list(range(3000))})
    drain.json_free(j)


def test_run_json_joins_processes(drain: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = time.time_ns()
    first, second, silent = Store(drain, run), Store(drain, run), Store(drain, run)
    assert [s.process.name for s in (first, second, silent)] == ["p0", "p1", "p2"]
    assert drain.store_process_index(second.s) == 1
    assert drain.store_process(first.s, b'{"process":0,"status":"running"}')
    assert drain.store_process(second.s, b'{"process":1}')
    document = orjson.loads((run / "run.json").read_bytes())
    assert list(document) == ["format", "version", "created_ns", "processes"]
    assert (document["format"], document["version"]) == ("ttanalyze-run", layout.VERSION)
    assert before <= document["created_ns"] <= time.time_ns()
    assert document["processes"] == [{"process": 0, "status": "running"}, {"process": 1}]
    document["exit"] = {"code": 3, "text": 'a,"exit":{"b":1}'}
    (run / "run.json").write_bytes(orjson.dumps(document))
    assert drain.store_process(first.s, b'{"process":0,"status":"complete"}')
    again = orjson.loads((run / "run.json").read_bytes())
    assert again == {
        **document,
        "processes": [{"process": 0, "status": "complete"}, {"process": 1}],
    }
    for s in (first, second, silent):
        s.close()
    processes = orjson.loads((run / "manifest.json").read_bytes())["processes"]
    assert [p["process"] for p in processes] == [0, 1, 2]
    assert sorted(p.name for p in run.iterdir()) == ["manifest.json", "p0", "p1", "p2", "run.json"]


@pytest.mark.long
def test_processes_started_together_share_a_run(stress: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    running = [
        subprocess.Popen([stress, "store", run, "6", "0"], stdout=subprocess.DEVNULL)
        for _ in range(8)
    ]
    assert [p.wait() for p in running] == [0] * 8
    assert len(orjson.loads((run / "run.json").read_bytes())["processes"]) == 8
    assert [
        p["process"] for p in orjson.loads((run / "manifest.json").read_bytes())["processes"]
    ] == list(range(8))


def test_adjacent_blocks_are_written_once(drain: Any, tmp_path: Path) -> None:
    """Equal ones among them are stored once, short ones keep their neighbours' alignment."""
    a, b, short = noise(1), noise(2), noise(3)[:100]
    pieces = [a, a, short, b, short, a]
    s = Store(drain, tmp_path / "run")
    assert drain.store_epoch_begin(s.s, 0, True, True)
    records, contents = FFI.new("struct tt_block[]", len(pieces)), b""
    for i, piece in enumerate(pieces):
        digest = xxhash.xxh3_64_intdigest(piece)
        records[i] = {"block": i, "digest": digest, "length": len(piece), "offset": len(contents)}
        contents += piece + bytes(-len(piece) % 32)
    assert drain.store_blocks(s.s, records, len(pieces), FFI.from_buffer(contents), 0)
    assert s.commit(0)
    data = (s.process / "data-00000.bin").read_bytes()
    for record, piece in zip(records, pieces, strict=True):
        assert data[record.offset : record.offset + record.length] == piece
        assert record.offset % 32 == 0
    assert records[0].offset == records[1].offset == records[5].offset
    assert records[2].offset == records[4].offset
    assert len(data) < 64 + 2 * BLOCK + 100 + 3 * 32
    s.close()
