"""Writes run directories as the recorder does, from Python, for tests of what reads them.

A Writer keeps the memory of its regions and stores what changed when an epoch is cut. What a
test then damages or removes is its own business; `reseal_header` and `reseal_records` make the
checks right again after an edit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ttanalyze.format import layout
from ttanalyze.format.files import DATA_KIND, KINDS
from ttanalyze.format.layout import BLOCK_SIZE, HEADER_SIZE, NO_ID

CALLS = ["cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel", "cuCtxSynchronize", "cuMemcpyHtoD_v2"]
CALLS += ["cuMemFreeAsync", "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"]
CALLS += ["cuMemcpyDtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpy2D_v2", "cuStreamBatchMemOp_v2"]


def header(kind: int, record_size: int, index: int = 0) -> bytes:
    out = np.zeros(1, layout.HEADER)
    out["magic"] = np.frombuffer(layout.MAGIC, "u1")
    out["version"], out["kind"], out["header_size"] = layout.VERSION, kind, HEADER_SIZE
    out["record_size"], out["index"], out["created_ns"] = record_size, index, 1_700_000_000_000
    return seal(out)


def seal(records: np.ndarray[Any, Any]) -> bytes:
    """The bytes of records whose check members have been filled in, but those of unused slots."""
    assert records.dtype.fields is not None
    covered = int(records.dtype.fields["check"][1])
    if records.dtype == layout.EVENT:
        covered = records.itemsize
    low = (1 << 8 * records.dtype["check"].itemsize) - 1
    slots = records.dtype in (layout.EVENT, layout.ACTIVITY)
    records["check"] = 0
    for i in range(len(records)):
        if not slots or records["kind"][i]:
            records["check"][i] = digest(records[i].tobytes()[:covered]) & low
    return records.tobytes()


def record(dtype: np.dtype[Any], **values: Any) -> np.ndarray[Any, Any]:
    out = np.zeros(1, dtype)
    for key, value in values.items():
        out[key] = value
    return out


def reseal_header(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[:HEADER_SIZE] = seal(np.frombuffer(bytes(raw[:HEADER_SIZE]), layout.HEADER).copy())
    path.write_bytes(raw)


def reseal_records(path: Path) -> None:
    raw = path.read_bytes()
    dtype = KINDS[path.name][1]
    whole = HEADER_SIZE + (len(raw) - HEADER_SIZE) // dtype.itemsize * dtype.itemsize
    sealed = seal(np.frombuffer(raw[HEADER_SIZE:whole], dtype).copy())
    path.write_bytes(raw[:HEADER_SIZE] + sealed + raw[whole:])


def edit(path: Path, index: int, **values: Any) -> None:
    """Overwrites members of one record, without touching any check."""
    dtype = KINDS[path.name][1]
    raw = bytearray(path.read_bytes())
    at = HEADER_SIZE + index * dtype.itemsize
    changed = np.frombuffer(bytes(raw[at : at + dtype.itemsize]), dtype).copy()
    for key, value in values.items():
        changed[key] = value
    raw[at : at + dtype.itemsize] = changed.tobytes()
    path.write_bytes(raw)


def tell_endings(run: Path) -> None:
    """Has the processes of a run say how their files end, as those recorded now do."""
    for path in run.glob("p*/process.json"):
        info = json.loads(path.read_text())
        info["files"] = {
            file.name: {"size": file.stat().st_size, "check": f"{digest(file.read_bytes()):016x}"}
            for file in sorted(path.parent.glob("*.bin"))
            if file.name in KINDS
        }
        for name in ("digests.bin", "blocks.bin"):  # the checks of epochs.bin are theirs
            info["files"][name]["check"] = None
        path.write_text(json.dumps(info))


def forget_endings(run: Path) -> None:
    """Takes that away again, as whoever edits files on purpose would."""
    for path in run.glob("p*/process.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "files": {}}))


def text_record(raw: bytes) -> bytes:
    """A text as it is in strings.bin."""
    return np.array([len(raw), digest(raw) & 0xFFFFFFFF], "<u4").tobytes() + raw


def digest(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def digest_of(memory: bytes) -> int:
    """A region's digest, computed the plain way."""
    blocks = [memory[i : i + BLOCK_SIZE] for i in range(0, len(memory), BLOCK_SIZE)]
    digests = b"".join(xxhash.xxh3_64_intdigest(b).to_bytes(8, "little") for b in blocks)
    return xxhash.xxh3_64_intdigest(digests)


@dataclass
class Memory:
    """A region while it is written: contents, those last captured, and their blocks' digests."""

    size: int
    contents: bytes
    kind: int
    captured: bool
    context: int
    base: int
    known: dict[int, int] = field(default_factory=dict)
    seen: bytes | None = None


class Writer:
    """One process of a run directory.

    Epochs take the contents that `write` set. segments: begin a data file at each full epoch.
    """

    def __init__(self, run: Path, index: int = 0, segments: bool = False) -> None:
        self.run = run
        self.index = index
        self.segments = segments
        self.path = run / f"p{index}"
        self.path.mkdir(parents=True)
        for name, (kind, dtype) in KINDS.items():
            (self.path / name).write_bytes(header(kind, dtype.itemsize))
        self.segment = 0
        self._begin_segment()
        self.regions: dict[int, Memory] = {}
        self.history: list[dict[int, bytes]] = []  # at each epoch, by region, as last captured
        self.seq = 0
        self.records = {"digests": 0, "blocks": 0}
        self.texts: dict[str, int] = {}
        self.graphs = 0
        self.warnings: list[str] = []

    # ---- pieces ----

    def append(self, name: str, data: bytes) -> int:
        """Appends bytes; gives the offset they begin at."""
        path = self.path / name
        at = path.stat().st_size
        with path.open("ab") as f:
            f.write(data)
        return at

    def string(self, text: str | None) -> int:
        if text is None:
            return NO_ID
        if text not in self.texts:
            self.texts[text] = self.append("strings.bin", text_record(text.encode()))
        return self.texts[text]

    def piece(self, data: bytes) -> int:
        """Adds a launch's parameters, or records, to params.bin; gives their place."""
        raw = digest(data).to_bytes(8, "little") + data
        return self.append("params.bin", raw + bytes(-len(raw) % 16)) // 16

    def stack(self, number: int, frames: list[tuple[str, str, int]]) -> None:
        """Frames are function, file and line, the innermost first."""
        for depth, (function, file, line) in enumerate(frames):
            members = {"stack": number, "depth": depth, "count": len(frames), "kind": 1}
            places = {"function": self.string(function), "file": self.string(file), "line": line}
            self.append("frames.bin", seal(record(layout.FRAME, **members, **places)))

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def event(self, kind: str, call: str | None = None, **values: Any) -> int:
        seq = self.next_seq()
        members: dict[str, Any] = {"id": NO_ID, "thread": 4711, "stream": 1}
        members |= {"time_ns": seq * 1000, **values}
        number = CALLS.index(call) if call else layout.NO_CALL
        which = layout.EVENT_KINDS.index(kind)
        out = record(layout.EVENT, seq=seq, kind=which, call=number, **members)
        self.append("events.bin", seal(out))
        return seq

    def activity(
        self, kind: str, seq: int, begin: int, end: int, name: str | None = None, **values: Any
    ) -> None:
        """What came of the call with that seq; name: of a kernel, mangled. Without a kind it is an
        unused slot.
        """
        members: dict[str, Any] = {"stream": 1, "name": self.string(name), **values}
        members |= {"seq": seq, "begin_ns": begin, "end_ns": end}
        which = layout.EVENT_KINDS.index(kind) if kind else 0
        self.append("timeline.bin", seal(record(layout.ACTIVITY, kind=which, **members)))

    # ---- regions ----

    def born(
        self,
        region: int,
        contents: bytes,
        kind: str = "device",
        label: str | None = None,
        captured: bool = True,
        context: int = 0,
        base: int | None = None,
        **members: Any,
    ) -> None:
        """members: of the event, such as its thread."""
        which = layout.REGION_KINDS.index(kind)
        seq = self.event("alloc", "cuMemAlloc_v2", id=region, bytes=len(contents), **members)
        base = 0x7F0000000000 + (region << 24) if base is None else base
        self.regions[region] = Memory(len(contents), contents, which, captured, context, base)
        self._region("TT_REGION_BORN", region, seq, "cuMemAlloc_v2", self.string(label))

    def died(self, region: int, call: str | None = "cuMemFree_v2") -> None:
        seq = self.event("free", call, id=region)
        self._region("TT_REGION_DIED", region, seq, call, NO_ID)
        del self.regions[region]

    def label(self, region: int, label: str) -> None:
        self._region("TT_REGION_LABEL", region, self.next_seq(), None, self.string(label))

    def name(
        self,
        region: int,
        offset: int,
        size: int,
        name: str | None,
        type: str | None = None,  # noqa: A002
        start: int = 0,
    ) -> None:
        """Names a part of a region, or with None takes its names away."""
        members = {"region": region, "offset": offset, "size": size, "start": start}
        texts = {"label": self.string(name), "type": self.string(type)}
        when = {"seq": self.seq, "epoch": len(self.history)}
        self.append("labels.bin", seal(record(layout.LABEL, **members, **texts, **when)))

    def _region(self, op: str, region: int, seq: int, call: str | None, label: int) -> None:
        memory = self.regions[region]
        out = record(
            layout.REGION,
            op=layout.enum("region_op")[op],
            id=region,
            base=memory.base,
            size=memory.size,
            kind=memory.kind,
            flags=layout.CAPTURED if memory.captured else 0,
            context=memory.context,
            seq=seq,
            time_ns=seq * 1000,
            epoch=len(self.history),
            label=label,
            call=CALLS.index(call) if call else NO_ID,
            module=NO_ID,
        )
        self.append("regions.bin", seal(out))

    def write(self, region: int, offset: int, data: bytes) -> None:
        memory = self.regions[region]
        assert offset + len(data) <= memory.size
        old = memory.contents
        memory.contents = old[:offset] + data + old[offset + len(data) :]

    # ---- epochs ----

    def _begin_segment(self) -> None:
        kind, dtype = DATA_KIND
        self.data = f"data-{self.segment:05d}.bin"
        (self.path / self.data).write_bytes(header(kind, dtype.itemsize, self.segment))
        self.stored: dict[tuple[int, int], int] = {}

    def _store(self, digest: int, contents: bytes) -> int:
        key = digest, len(contents)
        if key not in self.stored:
            size = (self.path / self.data).stat().st_size
            self.append(self.data, bytes(-size % 32))
            self.stored[key] = self.append(self.data, contents)
        return self.stored[key]

    def epoch(
        self,
        trigger: str = "sync",
        *flags: str,
        label: str | None = None,
        context: int = 0,
        only: list[int] | None = None,
        whole: Sequence[int] = (),
        bare: bool = False,
        seq: int | None = None,
        **times: int,
    ) -> int:
        """Cuts an epoch; flags: names. only: the regions that are looked at. whole: those of which
        all blocks are listed. bare: their contents are not stored. seq: of the call that
        it was cut at, by default one of its own. times: time_ns, captured_ns, done_ns. Gives its
        number.
        """
        number = len(self.history)
        full, some = "full" in flags, "touched" in flags
        if full and self.segments and self.history and not bare:
            self.segment += 1
            self._begin_segment()
        digests, blocks = [], []
        seen = {r: m for r, m in self.regions.items() if m.captured and m.context == context}
        for region, memory in seen.items():
            if "refused" in flags or (only is not None and region not in only):
                continue
            changed = self._changed(memory, full or region in whole)
            memory.seen = memory.contents
            if not changed and memory.known and not some:
                continue
            digests.append((region, len(changed), digest_of(memory.contents)))
            for i in changed:
                piece = memory.contents[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
                memory.known[i] = xxhash.xxh3_64_intdigest(piece)
                if "dropped" in flags:
                    continue
                place = HEADER_SIZE, len(piece), layout.NO_SEGMENT
                if not bare:
                    place = self._store(memory.known[i], piece), len(piece), self.segment
                blocks.append((region, i, memory.known[i], *place))
        bits = sum(layout.EPOCH_FLAGS[name] for name in flags)
        digest_span = np.array(digests, layout.DIGEST).tobytes()
        block_span = np.array(blocks, layout.BLOCK).tobytes()
        self.append("digests.bin", digest_span)
        self.append("blocks.bin", block_span)
        seq = self.event("epoch", "cuCtxSynchronize", id=number) if seq is None else seq
        times = {"time_ns": seq * 1000, "done_ns": seq * 1000 + 500, **times}
        out = record(
            layout.EPOCH,
            **times,
            number=number,
            trigger=layout.TRIGGERS.index(trigger),
            flags=bits,
            context=context,
            seq=seq,
            label=self.string(label),
            segment=layout.NO_SEGMENT if bare and blocks else self.segment,
            digests_first=self.records["digests"],
            digests_count=len(digests),
            blocks_first=self.records["blocks"],
            blocks_count=len(blocks),
            bytes_read=sum(m.size for m in seen.values()),
            bytes_changed=sum(b[4] for b in blocks),
            digests_check=xxhash.xxh3_64_intdigest(digest_span),
            blocks_check=xxhash.xxh3_64_intdigest(block_span),
            regions=len(seen),
        )
        self.append("epochs.bin", seal(out))
        self.records["digests"] += len(digests)
        self.records["blocks"] += len(blocks)
        self.history.append({r: m.seen for r, m in self.regions.items() if m.seen is not None})
        return number

    @staticmethod
    def _changed(memory: Memory, full: bool) -> list[int]:
        out = []
        for i in range(layout.blocks_of(memory.size)):
            piece = memory.contents[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
            digest = xxhash.xxh3_64_intdigest(piece)
            if full or memory.known.get(i) != digest:
                out.append(i)
        return out

    # ---- kernels and modules ----

    def module(self, module: int, path: str | None = None, kind: str = "ptx") -> None:
        which = layout.MODULE_KINDS.index(kind)
        members = {"image": 0xABCD + module, "size": 1234, "seq": self.next_seq()}
        out = record(layout.MODULE, id=module, kind=which, path=self.string(path), **members)
        self.append("modules.bin", seal(out))

    def function(self, function: int, name: str, module: int = 0, **members: int) -> None:
        given = {"registers": 24, "max_threads": 1024, "param_bytes": 28, "param_count": 4}
        given |= {"id": function, "name": self.string(name), "module": module, **members}
        out = record(layout.FUNCTION, **given)
        self.append("functions.bin", seal(out))

    def graph(
        self,
        nodes: list[dict[str, Any]],
        edges: list[tuple[int, int]] = [],  # noqa: B006
        seq: int | None = None,
        remakes: int | None = None,
        **members: Any,
    ) -> int:
        """An executable graph, or what one consists of from here on. Gives its number."""
        graph = self.graphs if remakes is None else remakes
        self.graphs += remakes is None
        seq = self.next_seq() if seq is None else seq
        pairs = b"".join(
            record(layout.GRAPH_EDGE, **{"from": a, "to": b}).tobytes() for a, b in edges
        )
        op = "made" if remakes is None else "remade"
        self._graph_record(op, graph, seq, pairs, node=len(nodes), **members)
        for number, node in enumerate(nodes):
            self.node(graph, number, seq, **node)
        return graph

    def node(
        self,
        graph: int,
        node: int,
        seq: int,
        kind: str = "kernel",
        data: bytes = b"",
        **members: Any,
    ) -> None:
        """What a node does from a call on."""
        which = layout.names("node_kind", "TT_NODE_").index(kind)
        self._graph_record("node", graph, seq, data, node=node, kind=which, **members)

    def graph_ended(self, graph: int, seq: int) -> None:
        self._graph_record("ended", graph, seq, b"")

    def _graph_record(self, op: str, graph: int, seq: int, data: bytes, **members: Any) -> None:
        place: dict[str, Any] = {"data_size": len(data)}
        if data:
            place |= {"data": self.append("graphdata.bin", data), "data_check": digest(data)}
        given: dict[str, Any] = {"parent": NO_ID, "function": NO_ID, "context": NO_ID, **members}
        which = layout.enum("graph_op")[f"TT_GRAPH_{op.upper()}"]
        out = record(layout.GRAPH_RECORD, op=which, graph=graph, seq=seq, **place, **given)
        self.append("graphs.bin", seal(out))

    # ---- JSON ----

    def close(self, status: str = "complete", **members: Any) -> None:
        """Writes process.json, and run.json anew with all processes closed so far."""
        info = {
            "process": self.index,
            "pid": 1000 + self.index,
            "argv": ["./app", "--fast"],
            "cwd": "/tmp",
            "started_ns": 1_700_000_000_000_000_000,
            "ended_ns": None if status == "running" else 1_700_000_005_000_000_000,
            "status": status,
            "reason": None,
            "deterministic": False,
            "driver_version": 13000,
            "devices": [{"ordinal": 0, "name": "Test Device", "memory": 1 << 30}],
            "options": {"TT_OUT": "/tmp/run", "TT_EPOCH": "sync", "TT_RING_BYTES": ""},
            "ring": {"bytes": 1 << 26, "memory": "device"},
            "counters": {
                "events": self.seq,
                "events_lost": 0,
                "epochs": len(self.history),
                "epochs_refused": 0,
                "epochs_dropped": 0,
                "bytes_read": 1 << 20,
                "bytes_changed": 1 << 19,
                "bytes_stored": 1 << 18,
            },
            "unknown_calls": [],
            "warnings": self.warnings,
            "calls": CALLS,
            **members,
        }
        (self.path / "process.json").write_text(json.dumps(info))
        folders = sorted(self.run.glob("p*/process.json"))
        run = {
            "format": "ttanalyze-run",
            "version": layout.VERSION,
            "created_ns": 1_700_000_000_000_000_000,
            "processes": [json.loads(p.read_text()) for p in folders],
        }
        (self.run / "run.json").write_text(json.dumps(run))


def small_run(path: Path) -> Writer:
    """A run with everything in it: two contexts, deaths, labels, kernels, five epochs."""
    random = np.random.default_rng(5)
    w = Writer(path)
    w.module(0, "/opt/app/kernels.ptx")
    w.function(0, "_Z3addPfS_i")
    w.function(1, "scale")
    w.stack(1, [("step", "/opt/app/train.py", 12), ("<module>", "/opt/app/train.py", 40)])
    w.stack(2, [("<module>", "/opt/app/train.py", 41)])
    w.born(0, random.bytes(3 * BLOCK_SIZE + 100), label="weights")
    w.born(1, random.bytes(1))
    w.born(2, random.bytes(BLOCK_SIZE), kind="host", captured=False)
    params = {"params": w.piece(b"fourteen bytes"), "params_size": 14}
    add = w.event("launch", "cuLaunchKernel", id=0, grid=[4, 1, 1], block=[256, 1, 1], **params)
    w.activity("launch", add, add * 1000 + 200, add * 1000 + 700, "_Z3addPfS_i")
    w.epoch("sync", "full")
    w.activity("sync", w.seq, w.seq * 1000 + 20, w.seq * 1000 + 900, stream=0)
    w.write(0, 70000, b"changed")
    w.name(0, 65536, 65536, "layer.weight", "f32")
    w.name(0, 80000, 16, "layer:output")
    w.born(7, random.bytes(2 * BLOCK_SIZE), kind="global", context=1)
    scale = w.event("launch", "cuLaunchKernel", id=1, grid=[8, 1, 1], block=[128, 1, 1])
    w.epoch("kernel-after", label="scale")
    w.activity("", 0, 0, 0)
    w.activity("launch", scale, scale * 1000 + 2000, scale * 1000 + 2500, stream=0, flags=1)
    w.epoch("launch", context=1)
    w.write(1, 0, b"!")
    w.name(0, 80000, 8, None)
    w.died(0)
    w.label(1, "flag")
    w.born(8, bytes(BLOCK_SIZE), kind="async")
    w.epoch("api", label='say "cheese"\x7f\n')
    w.write(7, BLOCK_SIZE, b"\x00\x01")
    w.epoch("final", "full", context=1)
    some = w.graph(
        [
            {"function": 0, "data": b"sixteen bytes ..", "grid": [4, 1, 1], "block": [64, 1, 1]},
            {"kind": "graph"},
            {"kind": "set", "parent": 1, "dst": 0x1000, "bytes": 16, "reach": 16, "shared": 1},
            {"kind": "copy", "dst": 0x2000, "src": 0x1000, "bytes": 16, "reach": 16},
        ],
        [(0, 1), (1, 3)],
        w.seq,
    )
    w.node(some, 0, w.seq + 1, function=1, data=b"eight by")
    w.graph([{"kind": "empty"}], seq=w.seq)
    w.graph_ended(1, w.seq)
    w.close()
    return w


def busy_run(path: Path, seed: int, epochs: int = 60, **options: Any) -> Writer:
    """A run in which much happens at random: regions of several sizes come, change and go, in two
    contexts. flags: those that some epochs get besides full ones, such as dropped; every: how
    often an epoch is full. Writer.history has what was captured.
    """
    random = np.random.default_rng(seed)
    flags, every = options.pop("flags", ()), options.pop("every", 16)
    w = Writer(path, **options)
    w.function(0, "_Z3addPfS_i")
    sizes = [3 * BLOCK_SIZE + 1000, 1, BLOCK_SIZE, 2 * BLOCK_SIZE, 40, 5 * BLOCK_SIZE + 3]
    for i, size in enumerate(sizes):
        w.born(i, random.bytes(size), label=f"r{i}" if i % 2 else None, context=i % 2)
    for number in range(epochs):
        for region, memory in list(w.regions.items()):
            if random.random() < 0.5:
                continue
            w.event("launch", "cuLaunchKernel", id=0, grid=[4, 1, 1], block=[256, 1, 1])
            for _ in range(int(random.integers(1, 4))):
                at = int(random.integers(0, memory.size))
                w.write(region, at, random.bytes(min(memory.size - at, int(random.integers(1, 9)))))
        if number % 11 == 7:
            w.born(100 + number, random.bytes(BLOCK_SIZE // 2), context=0)
        if number % 11 == 3 and number > 11:
            w.died(100 + number - 7)
        context = int(random.random() < 0.3)
        odd = [str(random.choice(flags))] if len(flags) and number and random.random() < 0.3 else []
        full = number < 2 or (number % every == 0 and not odd)
        w.epoch("sync", *(["full"] if full else odd), context=number if number < 2 else context)
    w.close()
    return w


TWO_STREAMS_BASE = 1 << 40


def two_streams(path: Path) -> Writer:
    """Streams 16 and 17, and two allocations of 256 bytes from TWO_STREAMS_BASE on."""
    writer = Writer(path)
    for stream in (16, 17):
        writer.event("stream-create", stream=stream, bytes=1)
    writer.born(0, bytes(256), base=TWO_STREAMS_BASE, label="weights")
    writer.born(1, bytes(256), base=TWO_STREAMS_BASE + 256)
    return writer


def partly_read_run(path: Path) -> None:
    """The last of its two epochs did not read a region that a launch may have written to."""
    w = Writer(path)
    w.born(0, b"zero")
    w.born(1, b"one ")
    w.epoch("sync", "full")
    w.event("launch", "cuLaunchKernel", id=0)
    w.write(0, 0, b"Z")
    w.epoch("sync", "touched", only=[0])
    w.close()


def copy_of(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to
