"""Damaged, truncated and hostile files: one line that names file and place, or right answers."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import ttanalyze as tt
from tests import rundir, support
from tests.rundir import Writer, small_run
from ttanalyze.format import layout, manifest
from ttanalyze.format.files import KINDS
from ttanalyze.format.process import Process
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text
from ttanalyze.verbs.verify import verify

RECORDS = [name for name in KINDS if name != "strings.bin"]
BINARY = [*KINDS, "data-00000.bin"]
USED_BY_ALL = ["regions.bin", "epochs.bin", "functions.bin", "modules.bin"]
OF_CALLS = ["events.bin", "frames.bin", "timeline.bin", "graphs.bin"]
CHECKED = [*USED_BY_ALL, *OF_CALLS, "labels.bin"]
TABLES = ("epochs", "regions", "events", "activities", "digests", "functions", "modules", "labels")
LINE = re.compile(r"[^\n]+: (offset \d+|[\w\[\]., ]+): [^\n]+")


def use_all(path: Path, writer: Writer | None = None) -> None:
    """Opens a run and uses all of it; contents that are given must be those that were recorded."""
    run = tt.open(path)
    for table in TABLES:
        getattr(run, table)
    run.manifest()
    for process in run.processes:
        for event in process.events:
            assert len(process.params(event)) in (0, event["params_size"])
            assert all(line < 1 << 32 for _, _, line in process.stack(int(event["stack"])))
        for graph in range(len(process.graphs)):
            for seq in process.graphs.changes(graph).tolist():
                nodes = process.graphs.nodes(graph, seq)
                assert sorted(process.graphs.order(graph, seq).tolist()) == [*range(len(nodes))]
                assert all(len(process.graphs.data(n)) == n["data_size"] for n in nodes)
        for epoch in range(len(process.epochs)):
            for region, parts in process.labels.all_parts(epoch=epoch):
                assert all(process.labels.part(region, part).name for part in parts)
    assert info_text(info(run))
    assert isinstance(run.warnings, list)
    report = verify(run, keep_going=True)
    assert report.same or any(d.kind == "stored" for d in report.differences)
    for epoch in range(len(run.epochs)):
        for region, contents in (writer.history[epoch] if writer else {}).items():
            assert run.read(epoch, region).tobytes() == contents


def refuses(path: Path, name: str, reason: str = "") -> str:
    """Using the run raises one FormatError that names the file; gives its text."""
    with pytest.raises(tt.FormatError) as caught:
        use_all(path)
    message = str(caught.value)
    assert LINE.fullmatch(message), message
    assert name in message.partition(": ")[0]
    assert reason in message
    return message


@pytest.fixture
def folder(small: Writer) -> Path:
    return small.path


# ---- headers: every kind of file, every way ----


def patched(path: Path, at: int, data: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("length", [0, 1, 8, 63])
def test_truncated_header(folder: Path, run_path: Path, name: str, length: int) -> None:
    with (folder / name).open("r+b") as f:
        f.truncate(length)
    if (name, length) == ("epochs.bin", 0):  # as of a process killed before it made its files
        assert len(tt.open(run_path).epochs) == 0
    else:
        assert f"offset {length}: cut short" in refuses(run_path, name)


@pytest.mark.parametrize("name", BINARY)
def test_bad_magic(folder: Path, run_path: Path, name: str) -> None:
    patched(folder / name, 0, b"\x7fELF")
    assert "offset 0: not a file of a ttanalyze run" in refuses(run_path, name)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("sealed", [True, False])
def test_newer_version(folder: Path, run_path: Path, name: str, sealed: bool) -> None:
    patched(folder / name, 8, (layout.VERSION + 6).to_bytes(4, "little"))
    if sealed:
        rundir.reseal_header(folder / name)
    this = f"this one reads up to {layout.VERSION}"
    reason = f"offset 8: made by a newer ttanalyze (format {layout.VERSION + 6}; {this})"
    assert reason in refuses(run_path, name)


@pytest.mark.parametrize("name", BINARY)
def test_bad_header_check(folder: Path, run_path: Path, name: str) -> None:
    patched(folder / name, 33, b"\xaa")
    assert "offset 56: the header does not match its check" in refuses(run_path, name)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("at", "field"), [(12, "kind"), (16, "header size"), (20, "record size"), (24, "index")]
)
def test_wrong_header_member(folder: Path, run_path: Path, name: str, at: int, field: str) -> None:
    patched(folder / name, at, (99).to_bytes(4, "little"))
    rundir.reseal_header(folder / name)
    assert f"offset {at}: {field} 99, expected" in refuses(run_path, name)


@pytest.mark.parametrize("name", BINARY)
def test_not_a_regular_file(folder: Path, run_path: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(tt.Error, match=rf"{name}: not a regular file"):
        use_all(run_path)


# ---- records ----


@pytest.mark.parametrize("name", CHECKED)
def test_flipped_byte_in_a_checked_record(folder: Path, run_path: Path, name: str) -> None:
    size = KINDS[name][1].itemsize
    raw = (folder / name).read_bytes()
    assert len(raw) >= 64 + size
    for at in range(64, 64 + size, 5):
        patched(folder / name, at, bytes([raw[at] ^ 0x40]))
        assert "offset 64: the record does not match its check" in refuses(run_path, name)
        (folder / name).write_bytes(raw)


@pytest.mark.parametrize("name", ["digests.bin", "blocks.bin"])
def test_flipped_byte_in_a_span(folder: Path, run_path: Path, name: str) -> None:
    raw = (folder / name).read_bytes()
    for at in range(64, len(raw), 13):
        patched(folder / name, at, bytes([raw[at] ^ 1]))
        assert "do not match the epoch's check" in refuses(run_path, name)
        (folder / name).write_bytes(raw)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("number", 7, "epoch numbers are consecutive from 0"),
        ("trigger", 0, "unknown trigger 0"),
        ("trigger", 99, "unknown trigger 99"),
        ("flags", 1 << 20, "unknown flags"),
        ("digests_first", 1 << 63, "the span ends after the last record of digests.bin"),
        ("digests_count", 2**64 - 1, "the span ends after the last record of digests.bin"),
        ("digests_first", 1, "the span does not follow the last one"),
        ("blocks_first", 2, "the span does not follow the last one"),
        ("blocks_count", 1 << 40, "the span ends after the last record of blocks.bin"),
        ("flags", 8, "a refused epoch has no contents"),
        ("flags", 16, "a dropped epoch has no contents"),
        ("label", 3, "no string begins here"),
        ("label", 1 << 31, "no string begins here"),
    ],
)
def test_absurd_epochs(folder: Path, run_path: Path, field: str, value: int, reason: str) -> None:
    rundir.edit(folder / "epochs.bin", 0, **{field: value})
    rundir.reseal_records(folder / "epochs.bin")
    refuses(run_path, "strings.bin" if field == "label" else "epochs.bin", reason)


@pytest.mark.parametrize(
    ("index", "field", "value", "reason"),
    [
        (0, "op", 9, "unknown op 9"),
        (0, "kind", 12, "unknown kind"),
        (0, "flags", 1 << 31, "unknown flags"),
        (1, "id", 0, "born a second time"),
        (4, "id", 77, "no such region"),
        (4, "epoch", 0, ""),
        (0, "epoch", 4, ""),
    ],
)
def test_absurd_regions(
    folder: Path, run_path: Path, index: int, field: str, value: int, reason: str
) -> None:
    rundir.edit(folder / "regions.bin", index, **{field: value})
    rundir.reseal_records(folder / "regions.bin")
    refuses(run_path, "regions.bin" if reason else "bin", reason)


def test_region_that_dies_twice_or_before_its_birth(run_path: Path) -> None:
    w = small_run(run_path)
    raw = (w.path / "regions.bin").read_bytes()
    death = next(
        raw[at : at + 96]
        for at in range(64, len(raw), 96)
        if raw[at] == layout.enum("region_op")["TT_REGION_DIED"]
    )
    (w.path / "regions.bin").write_bytes(raw + death)
    refuses(run_path, "regions.bin", "dies a second time")
    (w.path / "regions.bin").write_bytes(raw.replace(death, b""))
    w.regions[8].contents = b""
    early = np.frombuffer(death, layout.REGION).copy()
    early["id"], early["epoch"] = 8, 1
    (w.path / "regions.bin").write_bytes(raw + rundir.seal(early))
    refuses(run_path, "regions.bin", "dies before it is born")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("kind", 6, "not an activity"),
        ("kind", 99, "not an activity"),
        ("flags", 8, "unknown flags"),
        ("end_ns", 1, "it ended before it began"),
        ("end_ns", 1 << 63, "no time"),
        ("name", 3, "no string begins here"),
    ],
)
def test_absurd_activities(
    folder: Path, run_path: Path, field: str, value: int, reason: str
) -> None:
    rundir.edit(folder / "timeline.bin", 0, **{field: value})
    rundir.reseal_records(folder / "timeline.bin")
    message = refuses(run_path, "strings.bin" if field == "name" else "timeline.bin", reason)
    if field != "name":
        at = 64 + layout.ACTIVITY.fields[field][1]  # type: ignore[index]
        assert f"offset {at}: " in message


def reseal_span(folder: Path, name: str, epoch: int) -> None:
    """Makes an epoch's check of its span right again."""
    raw = (folder / "epochs.bin").read_bytes()
    record = np.frombuffer(raw[64 + 160 * epoch :][:160], layout.EPOCH)[0]
    size = KINDS[f"{name}.bin"][1].itemsize
    at = 64 + int(record[f"{name}_first"]) * size
    span = (folder / f"{name}.bin").read_bytes()[at : at + int(record[f"{name}_count"]) * size]
    check = xxhash.xxh3_64_intdigest(span)
    rundir.edit(folder / "epochs.bin", epoch, **{f"{name}_check": check})
    rundir.reseal_records(folder / "epochs.bin")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("region", 99, "no such region"),
        ("region", 2, "the region is not captured"),
        ("region", 8, "the region does not live in this epoch"),
        ("region", 0, ""),
        ("block", 4, ""),
        ("block", 0, "listed twice in one epoch"),
        ("block", 2**32 - 1, "the region has no such block"),
        ("length", 65535, "not the block's length"),
        ("length", 0, "not the block's length"),
        ("segment", 4, "not of the epoch's segment"),
        ("segment", 3, "data-00003.bin is missing"),
        ("offset", 0, "outside data-00000.bin"),
        ("offset", 63, "outside data-00000.bin"),
        ("offset", 2**64 - 1, "outside data-00000.bin"),
        ("offset", 2**64 - 65536, "outside data-00000.bin"),
        ("offset", 1 << 40, "outside data-00000.bin"),
    ],
)
def test_absurd_blocks(folder: Path, run_path: Path, field: str, value: int, reason: str) -> None:
    index = 4 if field == "region" and value == 0 else 1
    rundir.edit(folder / "blocks.bin", index, **{field: value})
    reseal_span(folder, "blocks", 0)
    refuses(run_path, "blocks.bin", reason)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("region", 99, "no such region"),
        ("region", 2, "the region is not captured"),
        ("region", 7, "the region does not live in this epoch"),
        ("region", 1, "listed twice in one epoch"),
        ("changed", 5, "more blocks than the region has"),
    ],
)
def test_absurd_digests(folder: Path, run_path: Path, field: str, value: int, reason: str) -> None:
    rundir.edit(folder / "digests.bin", 0, **{field: value})
    reseal_span(folder, "digests", 0)
    refuses(run_path, "digests.bin", reason)


def test_wrong_digest_with_a_correct_checksum(folder: Path, run_path: Path) -> None:
    """Contents that do not give the recorded digest are not handed out."""
    rundir.edit(folder / "digests.bin", 0, digest=12345)
    reseal_span(folder, "digests", 0)
    with pytest.raises(tt.FormatError, match="the region's digest is not that of its blocks"):
        tt.open(run_path).read(0, 0)


def test_damaged_contents_are_not_handed_out(small: Writer, run_path: Path) -> None:
    patched(small.path / "data-00000.bin", 64 + 65536 + 17, b"\x00\x01\x02")
    run = tt.open(run_path)
    with pytest.raises(tt.FormatError, match=r"data-00000.bin: offset 65600: block 1 of region 0"):
        run.read(0, 0)
    assert run.read(0, 0, stop=65536).tobytes() == small.history[0][0][:65536]
    assert run.read(0, 1).tobytes() == small.history[0][1]


@pytest.mark.parametrize(
    ("kind", "seq", "reason"),
    [(99, 1, "offset 80: not an event"), (1, 0, "offset 64: not an event")],
)
def test_absurd_events(folder: Path, run_path: Path, kind: int, seq: int, reason: str) -> None:
    rundir.edit(folder / "events.bin", 0, kind=kind, seq=seq)
    rundir.reseal_records(folder / "events.bin")
    refuses(run_path, "events.bin", reason)


def said(small: Writer) -> list[Any] | str:
    """What there is in the files of calls, their parameters and texts, or why there is none."""
    try:
        process = Process(small.path, 0)
        return [
            process.events.tolist(),
            [records.tolist() for records in process.activities.pieces()],
            [process.params(event) for event in process.events],
            [process.strings.get(offset) for offset in small.texts.values()],
        ]
    except tt.FormatError as e:
        return str(e)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["events.bin", "timeline.bin", "params.bin", "strings.bin"])
def test_flipped_bit_anywhere(small: Writer, name: str) -> None:
    """Such as one that makes a used slot look like an unused one, or the other way round."""
    path, dtype, source = small.path / name, KINDS[name][1], random.Random(name)
    end = path.stat().st_size
    small.append(name, bytes(dtype.itemsize))
    raw, before = path.read_bytes(), said(small)
    if name == "params.bin":
        end = raw.index(b"fourteen bytes") + 14
    kind = dtype.fields["kind"][1] if dtype.fields else None
    for at in range(64, len(raw)):
        for bit in range(8) if (at - 64) % dtype.itemsize == kind else [source.randrange(8)]:
            patched(path, at, bytes([raw[at] ^ 1 << bit]))
            now = said(small)
            refused = isinstance(now, str) and re.search(
                rf"{name}: offset \d+: .* (match|fit)", now
            )
            assert refused or (now == before and at >= end), (at, bit, now)
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "a string of 4294967295 bytes does not fit"),
        (rundir.text_record(b"\xff\xfe"), "not UTF-8"),
    ],
)
def test_absurd_strings(folder: Path, run_path: Path, data: bytes, reason: str) -> None:
    patched(folder / "strings.bin", 64, data)
    refuses(run_path, "strings.bin", reason)


def test_name_offset_past_the_end_of_file(small: Writer, run_path: Path, cli: support.Cli) -> None:
    rundir.edit(small.path / "functions.bin", 0, name=1 << 31)
    rundir.reseal_records(small.path / "functions.bin")
    small.close("running")
    done = cli("events", run_path, "--format", "csv")
    assert done.status == 2
    assert re.fullmatch(
        r"ttanalyze: .*strings.bin: offset 2147483648: no string begins here\n", done.stderr
    )


def test_missing_string_table(folder: Path, run_path: Path) -> None:
    (folder / "strings.bin").unlink()
    refuses(run_path, "strings.bin", "the file is missing")


def test_duplicate_ids(folder: Path, run_path: Path) -> None:
    raw = (folder / "functions.bin").read_bytes()
    (folder / "functions.bin").write_bytes(raw + raw[64:128])
    refuses(run_path, "functions.bin", "a second record with id 0")


def test_unknown_module_kind(folder: Path, run_path: Path) -> None:
    rundir.edit(folder / "modules.bin", 0, kind=44)
    rundir.reseal_records(folder / "modules.bin")
    refuses(run_path, "modules.bin", "unknown kind 44")


@pytest.mark.parametrize("name", ["digests.bin", "blocks.bin", "regions.bin"])
def test_missing_file_that_epochs_need(folder: Path, run_path: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(tt.FormatError):
        use_all(run_path)


# ---- JSON ----


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "offset 0: not JSON"),
        ('{"format":"ttanalyze-run","version":1', "offset 37: not JSON"),
        ('{"é": nope}', "offset 7: not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "offset 0: not a JSON object"),
        ("{}", "format: expected 'ttanalyze-run'"),
        ('{"format":"ttanalyze-manifest","version":1}', "format: expected 'ttanalyze-run'"),
        ('{"format":"ttanalyze-run"}', "version: no version"),
        ('{"format":"ttanalyze-run","version":"1"}', "version: no version"),
        (
            f'{{"format":"ttanalyze-run","version":{layout.VERSION + 1}}}',
            f"version: made by a newer ttanalyze (format {layout.VERSION + 1}; "
            f"this one reads up to {layout.VERSION})",
        ),
        ('{"format":"ttanalyze-run","version":0}', "version: format version 0 does not exist"),
        ('{"format":"ttanalyze-run","version":1,"processes":{}}', "processes: expected a list"),
        (
            '{"format":"ttanalyze-run","version":1,"processes":[{"argv":"x"}]}',
            "processes[0].argv: expected a list",
        ),
        ('{"format":"ttanalyze-run","version":1,"exit":3}', "exit: expected an object"),
        (
            '{"format":"ttanalyze-run","version":1,"exit":{"signal":"x"}}',
            "exit.signal: expected a whole number or null",
        ),
    ],
)
def test_bad_run_json(small: Writer, run_path: Path, text: str, reason: str) -> None:
    (run_path / "run.json").write_text(text)
    refuses(run_path, "run.json", reason)


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("pid", "1", "pid: expected a whole number"),
        ("pid", True, "pid: expected a whole number"),
        ("timeline", [], "timeline: expected an object"),
        ("timeline", {"asked": 1}, "timeline.asked: expected a string"),
        ("timeline", {"reason": 1}, "timeline.reason: expected a string or null"),
        ("timeline", {"missed": None}, "timeline.missed: expected a whole number"),
        (
            "timeline",
            {"clock_error_ns": "1"},
            "timeline.clock_error_ns: expected a whole number or null",
        ),
        ("calls", [1], "calls: expected a list, each item a string"),
        ("devices", [{"memory": "x"}], "devices[0].memory: expected a whole number"),
        ("threads", [[1]], "threads: expected a list, each item an object"),
        ("threads", [{"cpu_ns": "x"}], "threads[0].cpu_ns: expected a whole number"),
        ("options", {"TT_RETAIN": 3}, "options.TT_RETAIN: expected a string"),
        ("overhead", {"gpu_ns": []}, "overhead.gpu_ns: expected a whole number"),
        ("counters", {"path": ""}, "counters.path: expected a whole number"),
        ("counters", {"events": 1.5}, "counters.events: expected a whole number"),
        ("status", None, "status: expected a string"),
        ("warnings", "all", "warnings: expected a list"),
        ("ended_ns", "soon", "ended_ns: expected a whole number or null"),
        ("reason", 5, "reason: expected a string or null"),
        ("ring", {"bytes": "x"}, "ring.bytes: expected a whole number"),
        ("ring", None, "ring: expected an object"),
    ],
)
def test_bad_process_json(
    folder: Path, run_path: Path, member: str, value: object, reason: str
) -> None:
    info = json.loads((folder / "process.json").read_text())
    info[member] = value
    (folder / "process.json").write_text(json.dumps(info))
    refuses(run_path, "process.json", reason)


# ---- files of absurd size ----

HUGE = 1 << 42  # bytes, all but the first of them a hole


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*USED_BY_ALL, "strings.bin", "process.json", "../run.json"])
def test_terabyte_file_is_refused_without_reading_it(
    folder: Path, run_path: Path, name: str
) -> None:
    """Without as much memory: what is not right in it is found where it begins."""
    path = folder / name
    size = path.stat().st_size
    if name == "strings.bin":
        label = path.read_bytes().index(b"weights")
        patched(path, label - 8, b"\xff\xff\xff\xff")
        size = label + len("weights") + 1  # the next text's length has a zero there
    with path.open("r+b") as f:
        f.truncate(HUGE)
    message = limited(run_path)
    assert path.name in message
    wrong = (
        "a zero byte in a string"
        if path.suffix == ".json" or name == "strings.bin"
        else "its check"
    )
    assert wrong in message
    at = re.search(r"offset (\d+)", message)
    assert at is not None
    assert size - layout.EPOCH.itemsize <= int(at[1]) <= size


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["digests.bin", "blocks.bin", "data-00000.bin"])
def test_terabytes_after_the_committed_end_are_ignored(
    folder: Path, run_path: Path, name: str
) -> None:
    with (folder / name).open("r+b") as f:
        f.truncate(HUGE)
    assert limited(run_path) == ""


def test_terabytes_of_unused_event_slots_are_skipped(folder: Path, run_path: Path) -> None:
    seqs = tt.open(run_path).events["seq"].tolist()
    with (folder / "events.bin").open("r+b") as f:
        last = f.read()[-128:]
        f.truncate(64 + HUGE)
        f.seek(64 + HUGE)
        f.write(last)
    assert tt.open(run_path).events["seq"].tolist() == [*seqs, seqs[-1]]


def limited(run: Path) -> str:
    """What verifying and summing up a run says, in a process that may take 2 GiB of memory."""
    program = (
        "import resource, sys, numpy, pandas, orjson, xxhash\n"
        "from ttanalyze.cli import run_command\n"
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, (held + (2 << 30),) * 2)\n"
        f"sys.exit(run_command(['verify', {str(run)!r}]) or run_command(['info', {str(run)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=support.ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == (2 if done.stderr else 0), done.stderr
    assert done.stderr.count("\n") <= 1
    return done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("size", "region"),
    [(1 << 63, 0), ((1 << 64) - 1, 0), (1 << 52, 1)],
)
def test_region_of_absurd_size(folder: Path, run_path: Path, size: int, region: int) -> None:
    rundir.edit(folder / "regions.bin", region, size=size)
    rundir.reseal_records(folder / "regions.bin")
    message = limited(run_path)
    assert "blocks.bin: offset" in message or "not the block's length" in message
    with pytest.raises(tt.Error):
        tt.open(run_path).read(0, region)


# ---- at random ----


def flip(path: Path, source: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(source.choice([1, 1, 1, 4])):
        raw[source.randrange(len(raw))] ^= 1 << source.randrange(8)
    path.write_bytes(raw)


def cut(path: Path, source: random.Random) -> None:
    with path.open("r+b") as f:
        f.truncate(source.randrange(path.stat().st_size + 1))


def reseal(path: Path, source: random.Random) -> None:
    """A flipped byte below checks that are right: what only a hostile file has."""
    flip(path, source)
    if path.name in CHECKED:
        rundir.reseal_records(path)
    elif path.name in ("digests.bin", "blocks.bin"):
        rundir.reseal_header(path)
        for epoch in range(5):
            reseal_span(path.parent, path.name.removesuffix(".bin"), epoch)
    if path.suffix == ".bin":
        rundir.reseal_header(path)


@pytest.mark.sampled
@pytest.mark.parametrize("change", [flip, cut, reseal])
@pytest.mark.parametrize("seed", range(4))
def test_random_damage(
    run_path: Path, tmp_path: Path, change: Callable[[Path, random.Random], None], seed: int
) -> None:
    """Whatever happens to a file: an error that says so, or what was recorded, and nothing else."""
    source = random.Random(f"{change.__name__} {seed}")
    writer = small_run(run_path)
    names = [*(f"p0/{n}" for n in BINARY), "p0/process.json", "run.json"]
    copy = tmp_path / "copy"
    for _ in range(60):
        shutil.copytree(run_path, copy)
        change(copy / source.choice(names), source)
        said = error_of(copy, None if change is reseal else writer)
        assert said is None or "\n" not in said
        assert said is None or str(copy) in said or "lost" in said or "no " in said
        shutil.rmtree(copy)


def harmless(path: Path) -> Any:
    """Returns the part of a manifest that is compared with a run without refused epochs."""
    value = json.loads(path.read_text())
    for process in value["processes"]:
        for epoch in process["epochs"]:
            del epoch["flags"]
            epoch["digests"] = {int(k): int(v, 16) for k, v in epoch["digests"].items()}
    return value


@pytest.mark.sampled
@pytest.mark.parametrize("change", [flip, cut])
@pytest.mark.parametrize("seed", range(3))
def test_random_damage_to_a_manifest(
    run_path: Path, tmp_path: Path, change: Callable[[Path, random.Random], None], seed: int
) -> None:
    """An error with the place, a difference, or a manifest that says the same as before."""
    source = random.Random(f"manifest {change.__name__} {seed}")
    small_run(run_path)
    run = tt.open(run_path)
    golden, copy = tmp_path / "golden.json", tmp_path / "copy.json"
    golden.write_text(manifest.text(run.manifest()))
    outcomes = set()
    for _ in range(200):
        shutil.copy(golden, copy)
        change(copy, source)
        same, said = compared(run, copy)
        if said is not None:
            assert LINE.fullmatch(said), said
            assert said.startswith(f"{copy}: ")
        elif same:
            assert harmless(copy) == harmless(golden)
        outcomes.add((same, said is None))
    assert (False, False) in outcomes


def compared(run: tt.Run, path: Path) -> tuple[bool, str | None]:
    """Whether the run agrees with a manifest, or else the error."""
    try:
        return verify(run, path, keep_going=True).same, None
    except tt.FormatError as e:
        return False, str(e)


def error_of(path: Path, writer: Writer | None) -> str | None:
    """What the run's use ended with; anything but an error of ours fails the test."""
    try:
        use_all(path, writer)
    except tt.Error as e:
        return str(e)
    return None


@pytest.mark.parametrize(
    ("index", "members", "reason"),
    [
        (0, {"region": 99}, "no such region"),
        (0, {"size": 0}, "no part of the region"),
        (0, {"offset": 3 * 65536 + 100}, "no part of the region"),
        (0, {"offset": 2 * 65536 + 101}, "no part of the region"),
        (1, {"size": 1 << 63}, "no part of the region"),
        (1, {"offset": (1 << 64) - 8}, "no part of the region"),
        (0, {"region": 7, "epoch": 0}, "the region does not live then"),
        (2, {"epoch": 4}, "the region does not live then"),
        (1, {"epoch": 0}, "before that of an earlier record"),
        (1, {"label": 60}, "no string begins here"),
        (0, {"type": 1 << 20}, "no string begins here"),
    ],
)
def test_invalid_names(
    small: Writer, run_path: Path, index: int, members: dict[str, int], reason: str
) -> None:
    path = run_path / "p0" / "labels.bin"
    rundir.edit(path, index, **members)
    rundir.reseal_records(path)
    name = "strings.bin" if "string" in reason else "labels.bin"
    refuses(run_path, name, reason)


# Of small_run: a graph of four nodes, a node of it anew, and a graph of one, which ends.
@pytest.mark.parametrize(
    ("index", "members", "reason"),
    [
        (0, {"op": 9}, "unknown op 9"),
        (0, {"graph": 3}, "graphs are not numbered in order"),
        (0, {"node": 3}, "a node that the graph does not have"),
        (0, {"node": 5}, "a graph's nodes do not follow it in order"),
        (0, {"flags": 4}, "nodes of an unknown graph"),
        (0, {"data_size": 24}, "not a number of edges"),
        (0, {"kind": 1}, "not a kind of node"),
        (1, {"kind": 99}, "not a kind of node"),
        (1, {"kind": 0}, "not a kind of node"),
        (2, {"node": 7}, "a graph's nodes do not follow it in order"),
        (2, {"graph": 1}, "a graph that was not made"),
        (3, {"parent": 2}, "not a node before it"),
        (5, {"node": 4}, "a node that the graph does not have"),
        (5, {"graph": 1}, "a graph that was not made"),
        (6, {"graph": 2}, "graphs are not numbered in order"),
        (8, {"graph": 2}, "a graph that was not made"),
        (8, {"op": 1}, "graphs are not numbered in order"),
        (8, {"seq": 1 << 63}, "not the number of a call"),
    ],
)
def test_invalid_graphs(
    small: Writer, run_path: Path, index: int, members: dict[str, int], reason: str
) -> None:
    path = run_path / "p0" / "graphs.bin"
    rundir.edit(path, index, **members)
    rundir.reseal_records(path)
    refuses(run_path, "graphs.bin", reason)


def test_destroyed_graph_does_not_change(small: Writer, run_path: Path) -> None:
    small.node(1, 0, small.seq, "empty")
    refuses(run_path, "graphs.bin", "a graph that was destroyed")


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ([(0, 1), (1, 0)], "data of graph 2 are edges that form a cycle"),
        ([(0, 2)], "data of graph 2 are not edges between nodes of one graph"),
        ([(0, 9)], "data of graph 2 are not edges between nodes of one graph"),
        ([(0, 0)], "data of graph 2 are edges that form a cycle"),
    ],
)
def test_invalid_edges(
    small: Writer, run_path: Path, edges: list[tuple[int, int]], reason: str
) -> None:
    inside = {"kind": "empty", "parent": 1}
    small.graph([{"kind": "empty"}, {"kind": "graph"}, inside], edges, small.seq)
    refuses(run_path, "graphdata.bin", reason)


def test_changed_or_truncated_graph_data(small: Writer, run_path: Path) -> None:
    path = run_path / "p0" / "graphdata.bin"
    raw = path.read_bytes()
    for at in range(64, len(raw), 7):
        patched(path, at, bytes([raw[at] ^ 1]))
        refuses(run_path, "graphdata.bin", "do not match their check")
        path.write_bytes(raw)
    path.write_bytes(raw[:-1])
    refuses(run_path, "graphdata.bin", "do not lie in the file")


def test_last_graph_may_lack_nodes(small: Writer, run_path: Path) -> None:
    """As of a process that was killed meanwhile."""
    small.graph([{"kind": "empty"}, {"kind": "empty"}], [], small.seq)
    path = run_path / "p0" / "graphs.bin"
    path.write_bytes(path.read_bytes()[: -layout.GRAPH_RECORD.itemsize])
    use_all(run_path, small)
    assert len(tt.open(run_path).processes[0].graphs) == 2


def test_parameters_past_the_end_of_file(small: Writer, run_path: Path) -> None:
    """As in a run whose params.bin was cut short."""
    path = run_path / "p0" / "params.bin"
    events = tt.open(run_path).processes[0].events
    first = events[events["params"] != 0][0]
    assert tt.open(run_path).processes[0].params(first) == b"fourteen bytes"
    path.write_bytes(path.read_bytes()[:-11])
    assert "offset 64: the parameters of launch" in refuses(run_path, "params.bin")


@pytest.mark.parametrize(
    ("index", "members", "reason"),
    [
        (0, {"depth": 1}, "the frames of a stack are not in order"),
        (1, {"depth": 2}, "the frames of a stack are not in order"),
        (1, {"stack": 9}, "the frames of a stack are not in order"),
        (2, {"stack": 1}, "not a new number"),
        (0, {"stack": 0}, "the frames of a stack are not in order"),
        (0, {"count": 3}, "frames are missing"),
        (2, {"kind": 7}, "unknown kind 7"),
    ],
)
def test_invalid_frames(
    small: Writer, run_path: Path, index: int, members: dict[str, int], reason: str
) -> None:
    path = run_path / "p0" / "frames.bin"
    rundir.edit(path, index, **members)
    rundir.reseal_records(path)
    refuses(run_path, "frames.bin", reason)


def test_last_stack_may_lack_frames(small: Writer, run_path: Path) -> None:
    """As a process leaves it that is killed just then."""
    path = run_path / "p0" / "frames.bin"
    whole = path.read_bytes()
    rundir.edit(path, 2, count=2)
    rundir.reseal_records(path)
    process = tt.open(run_path).processes[0]
    assert [line for _, _, line in process.stack(1)] == [12, 40]
    assert process.stack(2) == []
    path.write_bytes(whole[:-1])
    assert tt.open(run_path).processes[0].stack(2) == []
