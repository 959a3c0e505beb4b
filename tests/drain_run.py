"""Builds the drain sources, writes runs with them and reads what they wrote by itself."""

from __future__ import annotations

import os
import random
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import xxhash

ROOT = Path(__file__).resolve().parent.parent
INTERPOSE = ROOT / "interpose"
STORE = INTERPOSE / "store"
STRESS = ROOT / "tests" / "programs" / "store_stress.c"
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-I{INTERPOSE}"]
FLAGS += [f"-I{INTERPOSE / 'include'}"]
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
DECLARED = "store/folder util/json_writer store/store store/events store/dedup"
HEADERS = ["include/format.h", *(f"{name}.h" for name in DECLARED.split())]
SOURCES = sorted(STORE.glob("*.c"))
SOURCES += [
    INTERPOSE / "util" / f"{name}.c" for name in ("clock", "json_writer", "recorder_thread")
]
STREAM = """#include "util/xxh3_stream.h"
uint64_t stream_digest(const void *data, size_t length, size_t piece)
{
	struct xxh3_stream s;

	xxh3_stream_begin(&s);
	for (size_t at = 0; at < length; at += piece)
		xxh3_stream_add(&s, (const char *)data + at, length - at < piece ? length - at : piece);
	return xxh3_stream_end(&s);
}
"""
NONE = 0xFFFFFFFF
BLOCK = 65536
HEADER = 64
LANES = 4
FULL = 1
DROPPED = 16
FILES = {
    "events.bin": (1, "tt_event"),
    "regions.bin": (2, "tt_region"),
    "epochs.bin": (3, "tt_epoch"),
    "digests.bin": (4, "tt_digest"),
    "blocks.bin": (5, "tt_block"),
    "functions.bin": (7, "tt_function"),
    "modules.bin": (8, "tt_module"),
}


def declarations() -> str:
    """The headers as cffi takes them: without preprocessor lines and inline functions."""
    text = "\n".join((INTERPOSE / h).read_text() for h in HEADERS)
    text = re.sub(r"^static inline.*?^}", "", text, flags=re.M | re.S)
    of_build = runpy.run_path(str(INTERPOSE / "include" / "format_ffi.py"))
    declared: str = of_build["declarations"](text)
    return declared + "uint64_t stream_digest(const void *, size_t, size_t);"


FFI: Any = cffi.FFI()
FFI.cdef(declarations())


def build(target: Path, sources: list[Path], *flags: str) -> Path:
    command = [
        "gcc",
        *FLAGS,
        *flags,
        f"-iquote{STORE}",
        "-o",
        str(target),
        *map(str, sources),
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return target


def build_library(folder: Path) -> Path:
    (folder / "stream.c").write_text(STREAM)
    # nodelete: the interpreter unloads libraries at its end, with the helper thread still in them.
    flags = ["-O2", "-shared", "-Wl,-z,nodelete"]
    return build(folder / "drain.so", [*SOURCES, folder / "stream.c"], *flags)


def run_stress(program: Path, *arguments: object) -> list[int]:
    done = subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [int(n) for n in done.stdout.split()]


# ---- a reader ----


def dtype(name: str) -> np.dtype[Any]:
    scalar = {"uint8_t": "u1", "uint16_t": "<u2", "uint32_t": "<u4", "uint64_t": "<u8"}
    fields: list[Any] = []
    for member, field in FFI.typeof(f"struct {name}").fields or []:
        if field.type.kind == "array":
            fields.append((member, scalar[field.type.item.cname], (field.type.length,)))
        else:
            fields.append((member, scalar[field.type.cname]))
    made = np.dtype(fields)
    assert made.itemsize == FFI.sizeof(f"struct {name}")
    return made


def check_header(path: Path, kind: int, record_size: int, index: int = 0) -> Any:
    raw = path.read_bytes()[:HEADER]
    header = np.frombuffer(raw, dtype("tt_file_header"))[0]
    assert bytes(header["magic"]) == b"TTRUN\r\n\x1a"
    assert (header["version"], header["header_size"]) == (1, HEADER)
    assert (header["kind"], header["record_size"], header["index"]) == (kind, record_size, index)
    assert int(header["check"]) == xxhash.xxh3_64_intdigest(raw[:-8])
    return header


def records(process: Path, name: str) -> Any:
    """All whole records of a file, its header and every record's check verified."""
    kind, struct = FILES[name]
    kept = dtype(struct)
    check_header(process / name, kind, kept.itemsize)
    raw = (process / name).read_bytes()[HEADER:]
    raw = raw[: len(raw) // kept.itemsize * kept.itemsize]
    found = np.frombuffer(raw, kept)
    for i in range(len(found) if "check" in (kept.names or ()) else 0):
        one = raw[i * kept.itemsize : (i + 1) * kept.itemsize]
        if struct == "tt_event":
            good = xxhash.xxh3_64_intdigest(one[:20] + bytes(4) + one[24:]) & 0xFFFFFFFF
            assert found[i]["check"] == (good if found[i]["kind"] else 0)
        else:
            assert int(found[i]["check"]) == xxhash.xxh3_64_intdigest(one[:-8])
    return found


def string(process: Path, offset: int) -> str | None:
    if offset == NONE:
        return None
    raw = (process / "strings.bin").read_bytes()
    size = int.from_bytes(raw[offset : offset + 4], "little")
    text = raw[offset + 8 : offset + 8 + size]
    check = xxhash.xxh3_64_intdigest(text) & 0xFFFFFFFF
    assert len(text) == size and check.to_bytes(4, "little") == raw[offset + 4 : offset + 8]
    return text.decode()


def segments(process: Path) -> list[int]:
    """Which segments there are data files of, counted from 0."""
    return sorted({index // LANES for index in data_files(process)})


def data_files(process: Path) -> list[int]:
    """The data files; one without a whole header was begun for an epoch that never came."""
    files = {int(p.name[5:10]): p for p in process.glob("data-*.bin") if p.stat().st_size >= HEADER}
    for index, path in files.items():
        check_header(path, 6, 1, index)
    return sorted(files)


def check_epochs(process: Path) -> Any:
    """Committed epochs: consecutive, spans checked, kept contents equal to their digests."""
    epochs = records(process, "epochs.bin")
    spans = {"digests": 0, "blocks": 0}
    there = data_files(process)
    data = {i: (process / f"data-{i:05}.bin").read_bytes() for i in there}
    for number, epoch in enumerate(epochs):
        assert epoch["number"] == number
        for name in spans:
            size = dtype(FILES[f"{name}.bin"][1]).itemsize
            assert epoch[f"{name}_first"] == spans[name]
            spans[name] += int(epoch[f"{name}_count"])
            at = HEADER + int(epoch[f"{name}_first"]) * size
            with open(process / f"{name}.bin", "rb") as file:
                file.seek(at)
                raw = file.read(int(epoch[f"{name}_count"]) * size)
            assert len(raw) == int(epoch[f"{name}_count"]) * size
            assert int(epoch[f"{name}_check"]) == xxhash.xxh3_64_intdigest(raw)
            if name == "blocks":
                for block in np.frombuffer(raw, dtype("tt_block")):
                    assert 0 <= int(block["segment"]) - int(epoch["segment"]) < LANES
                    assert block["offset"] % 32 == 0
                    if int(block["segment"]) in data:
                        at, length = int(block["offset"]), int(block["length"])
                        contents = data[int(block["segment"])][at : at + length]
                        assert xxhash.xxh3_64_intdigest(contents) == int(block["digest"])
                        assert len(contents) == length
    return epochs


# ---- a writer ----


KEPT: list[Any] = []  # what the library goes on using


def open_events(lib: Any, folder: Path, before: Callable[[], None] = lambda: None) -> str | None:
    """None, or why not. before: called once the folder is found."""
    found, error = FFI.new("struct folder *"), FFI.new("char[512]")
    KEPT.append(found)
    assert lib.folder_find(found, os.fsencode(folder))
    before()
    return None if lib.events_open(found, error, 512) else FFI.string(error).decode()


class Store:
    """An open store, by way of the C functions."""

    def __init__(
        self,
        lib: Any,
        run: Path,
        retain: int = 0,
        deterministic: bool = False,
        max_disk: int = 0,
    ) -> None:
        self.lib = lib
        self.path = FFI.new("char[]", os.fsencode(run))
        error = FFI.new("char[512]")
        given = {"deterministic": deterministic, "retain": retain, "max_disk": max_disk}
        config = FFI.new("store_config *", {"run_dir": self.path, **given})
        self.s = lib.store_open(config, error, 512)
        self.error = FFI.string(error).decode()
        self.bare = False
        if self.s != FFI.NULL:
            self.process = Path(os.fsdecode(FFI.string(lib.store_directory(self.s))))

    def region(self, number: int, op: int = 1, **members: Any) -> bool:
        given = {
            "op": op,
            "id": number,
            "kind": 1,
            "flags": 1,
            "size": 100,
            "label": NONE,
            "call": NONE,
            "module": NONE,
        }
        return bool(
            self.lib.store_region(self.s, FFI.new("struct tt_region *", {**given, **members}))
        )

    def block(self, region: int, block: int, contents: bytes, lane: int = 0) -> bool:
        """As the drain does: refers to contents that are stored already, appends others."""
        digest, place = xxhash.xxh3_64_intdigest(contents), FFI.new("uint64_t *")
        record = {"region": region, "block": block, "digest": digest, "length": len(contents)}
        blocks = FFI.new("struct tt_block *", record)
        if not self.lib.store_find(self.s, blocks, 1, place):
            return False
        source = FFI.NULL if place[0] or self.bare else FFI.from_buffer(contents)
        blocks.offset = place[0]
        return bool(self.lib.store_blocks(self.s, blocks, 1, source, lane))

    def fill(
        self, number: int, full: bool, contents: dict[int, list[bytes]], bare: bool = False
    ) -> bool:
        """Begins an epoch and adds these regions' blocks and digests. bare: without contents."""
        good = bool(self.lib.store_epoch_begin(self.s, number, full, not bare))
        self.bare = bare
        for region, blocks in contents.items():
            good = good and all(self.block(region, i, b) for i, b in enumerate(blocks))
            good = good and bool(
                self.lib.store_digest(self.s, region, number << 8 | region, len(blocks))
            )
        return good

    def commit(self, number: int, **members: Any) -> bool:
        epoch = FFI.new(
            "struct tt_epoch *", {"number": number, "trigger": 1, "label": NONE, **members}
        )
        return bool(self.lib.store_epoch_commit(self.s, epoch))

    def epoch(
        self,
        number: int,
        full: bool,
        contents: dict[int, list[bytes]],
        bare: bool = False,
        **members: Any,
    ) -> bool:
        return self.fill(number, full, contents, bare) and self.commit(
            number, **{"flags": FULL if full else 0, **members}
        )

    def string(self, text: bytes) -> int:
        return int(self.lib.store_string(self.s, text))

    def reason(self) -> str | None:
        text = FFI.new("char[512]")
        return FFI.string(text).decode() if self.lib.store_failed(self.s, text, 512) else None

    def digests_only(self) -> tuple[int, str] | None:
        since, text = FFI.new("uint32_t *"), FFI.new("char[512]")
        found = self.lib.store_digests_only(self.s, since, text, 512)
        return (since[0], FFI.string(text).decode()) if found else None

    def close(self) -> None:
        self.lib.store_close(self.s)


def noise(seed: int, size: int = BLOCK) -> bytes:
    return random.Random(seed).randbytes(size)


def sizes(process: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in process.glob("*.bin")}


def read_events(folder: Path) -> Any:
    """The used slots by seq; the file ends with a used one."""
    events = records(folder, "events.bin")
    assert (folder / "events.bin").stat().st_size == HEADER + len(events) * 128
    assert len(events) == 0 or events[-1]["kind"] != 0
    used = events[events["kind"] != 0]
    assert len(np.unique(used["seq"])) == len(used)
    assert np.array_equal(used["bytes"], used["seq"] * 3)
    return np.sort(used, order="seq")


PROGRAM = """
import os, resource, signal, sys
sys.path.insert(0, {root!r})
from tests import drain_run as t
from pathlib import Path
lib = t.FFI.dlopen({library!r})
run = Path({run!r})
"""


def program(body: str, library: Path, run: Path) -> subprocess.CompletedProcess[str]:
    """Runs body in a process of its own, as the traced program."""
    head = PROGRAM.format(root=str(ROOT), library=str(library), run=str(run))
    return subprocess.run(
        [sys.executable, "-c", head + body], capture_output=True, text=True, timeout=120
    )


def small_disk(folder: Path, size: int, limit: str) -> tuple[str, str]:
    """Makes folder a place for at most size bytes, or files of them, where no mount is allowed.

    What the program must do first, and what the system will say.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if limit == "disk" and subprocess.run(mount, capture_output=True).returncode == 0:
        return "", "No space left on device"
    prepare = "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    prepare += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
    return prepare, "File too large"


def unmount(folder: Path) -> None:
    if folder.is_mount():
        subprocess.run(["umount", folder], check=True)
