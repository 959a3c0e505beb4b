"""Runs written from Python, as large as is asked for and faster than any program records them.

They are good in every respect that a reader checks, and their contents are what their digests
say. What is measured on them is the reader alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ttanalyze.format import layout, manifest, open_run
from ttanalyze.format.digest import checks_of
from ttanalyze.format.files import DATA_KIND, KINDS
from ttanalyze.format.layout import HEADER_SIZE, NO_ID, Array

ALIGN = 32  # contents begin at multiples of this
EVENTS = 1 << 16  # written at a time
BASE = 0x7F0000000000
KERNELS = [f"_Z4stepILi{i}EEvPfi" for i in range(7)]


def write(
    run: Path,
    regions: int,
    epochs: int,
    changed: int,
    size: int,
    launches: int = 0,
    altered: int | None = None,
    missing: Sequence[int] = (),
) -> None:
    """A run of one process with `regions` regions of `size` bytes, at most a block's.

    Every epoch, `changed` other regions, by turns, get contents that none had before. regions,
    epochs, changed at least 1. launches: before each epoch, which is then cut at a wait. altered:
    an epoch whose contents are others than they would be. missing: launches that are left out.
    """
    folder = run / "p0"
    folder.mkdir(parents=True)
    which, counts = _changes(regions, epochs, changed)
    contents = np.random.default_rng(0).bytes(len(which) * size)
    if altered is not None:
        first, last = (int(counts[:e].sum()) * size for e in (altered, altered + 1))
        other = np.random.default_rng(1).bytes(last - first)
        contents = contents[:first] + other + contents[last:]
    digests = _hash(memoryview(contents), size)
    stride = -(-size // ALIGN) * ALIGN

    padded = np.zeros((len(which), stride), "u1")
    padded[:, :size] = np.frombuffer(contents, "u1").reshape(len(which), size)
    lead = bytes(-HEADER_SIZE % ALIGN)
    (folder / "data-00000.bin").write_bytes(header(*DATA_KIND) + lead + padded.tobytes())

    blocks = np.zeros(len(which), layout.BLOCK)
    blocks["region"], blocks["digest"], blocks["length"] = which, digests, size
    blocks["offset"] = HEADER_SIZE + len(lead) + np.arange(len(which), dtype="u8") * stride
    of_regions = np.zeros(len(which), layout.DIGEST)
    of_regions["region"], of_regions["changed"] = which, 1
    of_regions["digest"] = _hash(memoryview(digests.tobytes()), 8)

    records = {
        "regions.bin": regions_of(regions, size),
        "digests.bin": of_regions,
        "blocks.bin": blocks,
        "epochs.bin": epochs_of(counts, regions, size, launches, digests=of_regions, blocks=blocks),
    }
    if launches:
        records["functions.bin"], records["strings.bin"] = _functions()
    for name, (kind, dtype) in KINDS.items():
        body = records[name].tobytes() if name in records else b""
        (folder / name).write_bytes(header(kind, dtype) + body)
    if launches:
        with (folder / "events.bin").open("ab") as file:
            for events in _events(regions, epochs, launches, missing):
                file.write(events.tobytes())
    info = process_info(len(counts))
    (folder / "process.json").write_text(json.dumps(info))
    head = {"format": "ttanalyze-run", "version": layout.VERSION, "created_ns": 0}
    (run / "run.json").write_text(json.dumps({**head, "processes": [info]}))
    (run / "manifest.json").write_text(manifest.text(open_run(run).manifest()))


def add_events(run: Path, count: int, kernels: int) -> None:
    """`count` calls of two threads, most of them launches of `kernels` kernels by turns."""
    folder = run / "p0"
    functions = np.zeros(kernels, layout.FUNCTION)
    functions["id"], functions["module"] = np.arange(kernels), NO_ID
    with (folder / "strings.bin").open("ab") as strings:
        for i in range(kernels):
            name = f"_Z{len(f'kernel{i}')}kernel{i}IfEvPT_i".encode()
            functions["name"][i] = strings.tell()
            strings.write(text(name))
    with (folder / "functions.bin").open("ab") as file:
        file.write(sealed(functions).tobytes())
    kinds = [layout.EVENT_KINDS.index(k) for k in ("launch", "launch", "launch", "copy", "sync")]
    with (folder / "events.bin").open("ab") as file:
        for first in range(0, count, EVENTS):
            number = np.arange(first, min(first + EVENTS, count), dtype="u8")
            events = np.zeros(len(number), layout.EVENT)
            events["seq"], events["time_ns"] = number + 1, number * 1000
            events["kind"] = np.array(kinds)[number % len(kinds)]
            events["thread"], events["call"] = 1 + number // 512 % 2, layout.NO_CALL
            events["id"] = number % kernels
            events["bytes"] = number * 2654435761 % (1 << 24)
            file.write(sealed(events).tobytes())


def add_activities(run: Path) -> None:
    """Adds GPU times for launches and copies of a run, one after the other."""
    asked = [layout.EVENT_KINDS.index(kind) for kind in ("launch", "copy")]
    process = open_run(run).process(0)
    with (process.path / "timeline.bin").open("ab") as file:
        for events in process.event_pieces():
            some = events[np.isin(events["kind"], asked)]
            made = np.zeros(len(some), layout.ACTIVITY)
            for name in ("seq", "kind", "stream", "bytes"):
                made[name] = some[name]
            made["begin_ns"] = some["time_ns"] + np.uint64(2000)
            made["end_ns"], made["name"] = made["begin_ns"] + np.uint64(900), NO_ID
            file.write(sealed(made).tobytes())


def write_region(run: Path, size: int) -> None:
    """A run of one epoch and one region, of `size` bytes, a multiple of a block's."""
    write(run, 1, 1, 1, layout.BLOCK_SIZE)
    folder = run / "p0"
    blocks = np.zeros(size // layout.BLOCK_SIZE, layout.BLOCK)
    number = np.arange(len(blocks), dtype="u8")
    blocks["block"], blocks["length"] = number, layout.BLOCK_SIZE
    blocks["offset"] = HEADER_SIZE + number * np.uint64(layout.BLOCK_SIZE)
    random = np.random.default_rng(0)
    with (folder / "data-00000.bin").open("wb") as data:
        data.write(header(*DATA_KIND))
        for i in range(len(blocks)):
            contents = random.bytes(layout.BLOCK_SIZE)
            blocks["digest"][i] = xxhash.xxh3_64_intdigest(contents)
            data.write(contents)
    digests = np.zeros(1, layout.DIGEST)
    digests["changed"] = len(blocks)
    digests["digest"] = xxhash.xxh3_64_intdigest(blocks["digest"].tobytes())
    epochs = epochs_of(np.ones(1, "u8"), 1, size, digests=digests, blocks=blocks)
    epochs["blocks_count"], epochs["blocks_check"] = (
        len(blocks),
        xxhash.xxh3_64_intdigest(blocks.tobytes()),
    )
    records = {"regions": regions_of(1, size), "digests": digests, "blocks": blocks}
    for name, body in {**records, "epochs": sealed(epochs)}.items():
        (folder / f"{name}.bin").write_bytes(header(*KINDS[f"{name}.bin"]) + body.tobytes())
    (run / "manifest.json").write_text(manifest.text(open_run(run).manifest()))


def enlarge(run: Path, size: int) -> None:
    """Makes a run `size` bytes larger by a hole that no epoch refers to, so it takes no disk."""
    with (run / "p0" / "data-00000.bin").open("r+b") as data:
        data.truncate(data.seek(0, 2) + size)


def _changes(regions: int, epochs: int, changed: int) -> tuple[Array, Array]:
    """The regions that change, epoch after epoch, and how many each epoch has. First all."""
    later = np.arange((epochs - 1) * changed, dtype="u8") % np.uint64(regions)
    which = np.concatenate([np.arange(regions, dtype="u8"), later]).astype("u4")
    return which, np.array([regions] + [changed] * (epochs - 1), "u8")


def _hash(data: memoryview, size: int) -> Array:
    """The digest of each piece of `size` bytes."""
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(data[at : at + size]) for at in range(0, len(data), size)], "u8")


def regions_of(count: int, size: int) -> Array:
    out = np.zeros(count, layout.REGION)
    number = np.arange(count)
    out["op"] = layout.enum("region_op")["TT_REGION_BORN"]
    out["kind"] = layout.enum("region_kind")["TT_REGION_DEVICE"]
    out["id"], out["seq"], out["size"], out["flags"] = number, number + 1, size, layout.CAPTURED
    out["base"] = BASE + number.astype("u8") * np.uint64(layout.BLOCK_SIZE)
    out["label"] = out["module"] = NO_ID
    return sealed(out)


def _events(regions: int, epochs: int, launches: int, missing: Sequence[int]) -> Iterator[Array]:
    """Each epoch's launches, of KERNELS by turns, and the wait that it is cut at. In pieces."""
    left_out = np.array(missing, "u8")
    for first in range(0, epochs * (launches + 1), EVENTS):
        number = np.arange(first, min(first + EVENTS, epochs * (launches + 1)), dtype="u8")
        out = np.zeros(len(number), layout.EVENT)
        out["seq"], out["time_ns"], out["thread"] = number + 1 + regions, number * 100, 1
        out["kind"] = layout.EVENT_KINDS.index("launch")
        out["id"], out["stream"], out["call"] = number % len(KERNELS), 1, layout.NO_CALL
        out["grid"], out["block"] = (64, 1, 1), (256, 1, 1)
        wait = number % (launches + 1) == launches
        out["kind"][wait], out["id"][wait] = layout.EVENT_KINDS.index("sync"), NO_ID
        launch = number - number // (launches + 1)
        yield sealed(out[wait | ~np.isin(launch, left_out)])


def _functions() -> tuple[Array, Array]:
    """The kernels, and the strings that are their names."""
    out = np.zeros(len(KERNELS), layout.FUNCTION)
    texts = [text(name.encode()) for name in KERNELS]
    ends = np.cumsum([len(text) for text in texts])
    out["id"], out["module"] = np.arange(len(KERNELS)), NO_ID
    out["name"] = HEADER_SIZE + np.append(0, ends[:-1])
    return sealed(out), np.frombuffer(b"".join(texts), "u1")


def epochs_of(counts: Array, regions: int, size: int, launches: int = 0, **spans: Array) -> Array:
    """Epochs with so many records each. spans: these records, for their checks."""
    out = np.zeros(len(counts), layout.EPOCH)
    number = np.arange(len(counts))
    first = np.cumsum(counts) - counts
    out["number"], out["time_ns"] = number, number * 1000
    out["seq"] = regions + (number + 1) * (launches + 1)
    out["done_ns"], out["label"], out["regions"] = number * 1000 + 500, NO_ID, regions
    out["trigger"] = layout.TRIGGERS.index("sync")
    out["flags"][0] = layout.FULL
    out["bytes_read"] = regions * size
    out["bytes_changed"] = out["bytes_stored"] = counts * np.uint64(size)
    for kind in ("digests", "blocks"):
        out[f"{kind}_first"], out[f"{kind}_count"] = first, counts
    for kind, of in spans.items():
        for i, (begin, count) in enumerate(zip(first.tolist(), counts.tolist(), strict=True)):
            span = of[begin : begin + count].tobytes()
            out[f"{kind}_check"][i] = xxhash.xxh3_64_intdigest(span)
    return sealed(out)


def header(kind: int, dtype: np.dtype[Any]) -> bytes:
    out = np.zeros(1, layout.HEADER)
    out["magic"] = np.frombuffer(layout.MAGIC, "u1")
    out["version"], out["kind"], out["header_size"] = layout.VERSION, kind, HEADER_SIZE
    out["record_size"] = dtype.itemsize
    return sealed(out).tobytes()


def sealed(records: Array) -> Array:
    """The records, with their check members filled in."""
    records["check"] = checks_of(records)
    return records


def text(raw: bytes) -> bytes:
    """A text as it is in strings.bin."""
    check = xxhash.xxh3_64_intdigest(raw) & 0xFFFFFFFF
    return len(raw).to_bytes(4, "little") + check.to_bytes(4, "little") + raw


def process_info(epochs: int) -> dict[str, Any]:
    return {
        "process": 0,
        "pid": 1,
        "argv": ["./generated"],
        "cwd": "/",
        "started_ns": 0,
        "ended_ns": 0,
        "status": "complete",
        "reason": None,
        "deterministic": False,
        "driver_version": 13000,
        "devices": [],
        "options": {},
        "ring": {"bytes": 0, "memory": "none"},
        "counters": {"events": 0, "events_lost": 0, "epochs": epochs},
        "unknown_calls": [],
        "warnings": [],
        "calls": [],
    }
