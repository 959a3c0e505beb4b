"""The capture kernels, run by the simulator's PTX interpreter, against xxhash and plain Python.

Every byte a kernel may touch is known to the harness, so a read or write beside a region, the
ring or the list fails the launch.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import cffi
import pytest
import xxhash

ROOT = Path(__file__).resolve().parent.parent
INTERPOSE = ROOT / "interpose"
CAPTURE = INTERPOSE / "capture"
BLOCK = 65536
THREADS = 128  # TT_DIGEST_THREADS
LAST = 0xFFFFFF
FULL, DISCARD = 1, 2
REGION_ALL = 1
WRITTEN = 1
OVERFLOW, DISCARDED, FINAL = 1, 2, 4
MAGIC, EPOCH, WRAP = 0x4B4E4843, 1, 2
HEADER, ENTRY = 64, 32
FUNCTIONS = """
void harness_allow(uint64_t, uint64_t, bool);
void harness_forbid_all(void);
void harness_at_write(uint64_t, void (*)(void));
void *harness_load(const char *, char *, size_t);
int harness_launch(void *, const char *, unsigned, unsigned, uint64_t, const void *, size_t,
                   char *, size_t);
uint64_t harness_entry_mix(const struct tt_chunk_entry *);
uint64_t harness_chunk_mix(const struct tt_chunk *);
uint64_t harness_chunk_payload(uint64_t);
uint64_t harness_chunk_size(uint64_t, uint64_t);
uint64_t harness_payload_size(uint64_t);
int harness_small(uint64_t, uint64_t, uint64_t);
"""


def structs(path: Path, *names: str) -> str:
    """The definitions of the named structs, as the header spells them."""
    text = path.read_text()
    found = [
        re.search(rf"^struct {name} \{{.*?^\}};", text, re.DOTALL | re.MULTILINE) for name in names
    ]
    return "\n".join(match[0] for match in found if match)


@dataclass
class Interpreter:
    ffi: cffi.FFI
    lib: Any
    module: Any

    def launch(self, name: str, ctas: int, seed: int, params: Any) -> None:
        error = self.ffi.new("char[]", 400)
        size = self.ffi.sizeof(self.ffi.typeof(params).item)
        status = self.lib.harness_launch(
            self.module, name.encode(), ctas, THREADS, seed, params, size, error, 400
        )
        assert status == 0, self.ffi.string(error).decode()


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    sources = [
        str(ROOT / "tests" / "kernels_harness.c"),
        *map(str, sorted((INTERPOSE / "sim" / "ptx").glob("*.c"))),
    ]
    flags = [
        "-std=gnu11",
        "-O2",
        "-shared",
        "-fPIC",
        f"-I{INTERPOSE}",
        f"-I{INTERPOSE / 'include'}",
    ]
    subprocess.run(["gcc", *flags, "-o", str(library), *sources, "-lm", "-lpthread"], check=True)
    ffi = cffi.FFI()
    ffi.cdef(structs(INTERPOSE / "include" / "format.h", "tt_chunk", "tt_chunk_entry"))
    names = ["region", "params", "control", "status"]
    ffi.cdef(structs(CAPTURE / "kernels.h", *(f"tt_capture_{name}" for name in names)))
    ffi.cdef(FUNCTIONS)
    lib = ffi.dlopen(str(library))
    error = ffi.new("char[]", 400)
    module = lib.harness_load((CAPTURE / "capture.ptx").read_bytes(), error, 400)
    assert module != ffi.NULL, ffi.string(error).decode()
    return Interpreter(ffi, lib, module)


class Memory:
    """A zeroed buffer whose address is a multiple of 256."""

    def __init__(self, ffi: cffi.FFI, size: int) -> None:
        self.owner = ffi.new("char[]", size + 256)
        start = int(ffi.cast("uintptr_t", self.owner))
        self.address = (start + 255) // 256 * 256
        self.view = memoryview(ffi.buffer(self.owner))[self.address - start :][:size]


Block = tuple[int, int]  # region number, block number


@dataclass
class Bed:
    """Regions at odd places in one arena, with digests, control block, list, ring and mailbox."""

    run: Interpreter
    spans: list[tuple[int, int]]  # offset in the arena, size
    ring_size: int
    ctas: int = 1
    seed: int = 0
    epoch: int = -1
    sequence: int = 0
    tail: int = 0
    part: int = 0
    first: int = 0
    last: int = LAST
    all_listed: set[int] = field(default_factory=set)
    readable: bool = True
    by_warp: bool = False  # each block by a warp, not by a CTA
    waiting: Any = None  # keeps the function of at_write

    def __post_init__(self) -> None:
        ffi = self.run.ffi
        self.arena = Memory(
            ffi, max((offset + size for offset, size in self.spans), default=0) + 16
        )
        self.arena.view[:] = random.Random(len(self.spans)).randbytes(len(self.arena.view))
        self.table = ffi.new("struct tt_capture_region[]", len(self.spans))
        self.blocks: list[Block] = []
        payload = 0
        for i, (offset, size) in enumerate(self.spans):
            entry = self.table[i]
            entry.base, entry.size, entry.payload = self.arena.address + offset, size, payload
            entry.first_block, entry.region = len(self.blocks), 1000 + i
            count = -(-size // BLOCK)
            self.blocks += [(i, block) for block in range(count)]
            payload += sum(
                self.run.lib.harness_payload_size(self.length((i, block))) for block in range(count)
            )
        self.payload = payload
        self.digests = Memory(ffi, 8 * len(self.blocks))
        for entry in self.table:
            entry.digests = self.digests.address + 8 * entry.first_block
        self.control = Memory(ffi, ffi.sizeof("struct tt_capture_control"))
        self.scratch = Memory(ffi, ENTRY * len(self.blocks))
        self.ring = Memory(ffi, self.ring_size)
        self.status = ffi.new("struct tt_capture_status *")
        self.released = ffi.new("uint32_t *")

    def address(self, p: Any) -> int:
        return int(self.run.ffi.cast("uintptr_t", p))

    def length(self, block: Block) -> int:
        return min(BLOCK, self.spans[block[0]][1] - block[1] * BLOCK)

    def contents(self, block: Block) -> bytes:
        start = self.spans[block[0]][0] + block[1] * BLOCK
        return bytes(self.arena.view[start : start + self.length(block)])

    def allow(self, writable_regions: bool = False) -> None:
        ffi, lib = self.run.ffi, self.run.lib
        lib.harness_forbid_all()
        for entry in self.table if self.readable else []:
            lib.harness_allow(entry.base, entry.size, writable_regions)
        lib.harness_allow(self.address(self.table), ffi.sizeof(self.table), False)
        lib.harness_allow(self.address(self.status), ffi.sizeof("struct tt_capture_status"), True)
        lib.harness_allow(self.address(self.released), ffi.sizeof("uint32_t"), True)
        for memory in (self.digests, self.control, self.scratch, self.ring):
            lib.harness_allow(memory.address, len(memory.view), True)

    def launch(self, kernel: str, flags: int) -> None:
        """Work of the program is released when the epoch ends, and not before."""
        for entry in self.table:
            entry.flags = REGION_ALL if entry.region - 1000 in self.all_listed else 0
        self.allow()
        params = {
            "regions": self.address(self.table),
            "control": self.control.address,
            "scratch": self.scratch.address,
            "ring": self.ring.address,
            "ring_size": self.ring_size,
            "tail": self.tail % 2**64,
            "status": self.address(self.status),
            "sequence": self.sequence,
            "payload": self.payload,
            "released": self.address(self.released),
            "region_count": len(self.spans),
            "blocks": len(self.blocks),
            "first": self.first,
            "last": self.last,
            "flags": flags,
            "epoch": self.epoch,
            "part": self.part,
            "number": self.epoch + 1,
        }
        self.run.launch(
            kernel, self.ctas, self.seed, self.run.ffi.new("struct tt_capture_params *", params)
        )
        ended = self.status.sequence == self.sequence and self.status.flags & FINAL
        assert (self.released[0] == self.epoch + 1) == bool(ended)

    def at_write(self, address: int, act: Callable[[], None]) -> None:
        """Acts as another stream or the host when a kernel writes to the address next."""
        self.waiting = self.run.ffi.callback("void(void)", act)
        self.run.lib.harness_at_write(address, self.waiting)

    def end_address(self) -> int:
        """What a kernel writes last: then the host may start the next epoch in any stream."""
        return self.address(self.status) + self.run.ffi.offsetof(
            "struct tt_capture_status", "sequence"
        )

    def read_status(self) -> Any:
        assert (self.status.sequence, self.status.epoch, self.status.part) == (
            self.sequence,
            self.epoch,
            self.part,
        )
        return self.status

    def gather(self, flags: int = 0) -> Any:
        self.sequence += 1
        self.launch("tt_capture_gather", flags)
        return self.read_status()

    def capture(self, full: bool) -> Any:
        """One epoch, as the host does it; the status record."""
        self.epoch += 1
        self.part, self.first, self.last = 0, 0, LAST
        self.sequence += 1
        kernel = "tt_capture_digest_small" if self.by_warp else "tt_capture_digest"
        self.launch(kernel, FULL if full else 0)
        if not full:
            self.launch("tt_capture_gather", 0)
        return self.read_status()

    def head(self) -> int:
        return int(self.run.ffi.cast("struct tt_capture_control *", self.control.address).head)

    def stored_digests(self) -> dict[Block, int]:
        words = self.digests.view.cast("Q")
        return {block: words[i] for i, block in enumerate(self.blocks)}

    def read_chunk(self, expected_head: int, written: Sequence[Block] = ()) -> list[Block]:
        """Checks the chunk of the last status and everything in it; the blocks in entry order.
        written: those that say that they were, after the epoch listed them.
        """
        ffi, lib, status = self.run.ffi, self.run.lib, self.status
        assert not status.flags & OVERFLOW
        rest = self.ring_size - expected_head % self.ring_size
        if status.position != expected_head:
            wrap = ffi.cast("struct tt_chunk *", self.ring.address + expected_head % self.ring_size)
            assert (wrap.magic, wrap.kind, wrap.position, wrap.size) == (
                MAGIC,
                WRAP,
                expected_head,
                rest,
            )
            assert wrap.check == lib.harness_chunk_mix(wrap)
            assert status.position == expected_head + rest and status.size > rest
        at = self.ring.address + status.position % self.ring_size
        assert status.position % self.ring_size + status.size <= self.ring_size
        assert status.position + status.size - self.tail <= self.ring_size
        assert self.head() == status.position + status.size
        header = ffi.cast("struct tt_chunk *", at)
        assert (header.magic, header.kind, header.epoch, header.part) == (
            MAGIC,
            EPOCH,
            self.epoch,
            self.part,
        )
        assert (header.position, header.size, header.count) == (
            status.position,
            status.size,
            status.count,
        )
        assert header.payload == lib.harness_chunk_payload(header.count)
        assert header.size == lib.harness_chunk_size(header.count, status.payload)
        assert header.check == lib.harness_chunk_mix(header)
        entries = ffi.cast("struct tt_chunk_entry *", at + HEADER)
        mixes, end, found = 0, 0, []
        for i in range(header.count):
            entry = entries[i]
            block = (entry.region - 1000, entry.block)
            contents = self.contents(block)
            assert (entry.length, entry.offset) == (len(contents), end)
            assert entry.more == (WRITTEN if block in written else 0)
            assert entry.digest == xxhash.xxh3_64_intdigest(contents), block
            assert (
                bytes(
                    ffi.buffer(ffi.cast("char *", at + header.payload + entry.offset), entry.length)
                )
                == contents
            )
            mixes += lib.harness_entry_mix(entries + i)
            end += lib.harness_payload_size(entry.length)
            found.append(block)
        assert end == status.payload
        assert mixes % 2**64 == header.entries_check == status.entries_check
        return found

    def change(self, blocks: list[Block]) -> None:
        """Flips one bit in each block, in its first, its last or any byte."""
        rng = random.Random(len(blocks))
        for region, block in blocks:
            length = self.length((region, block))
            at = (
                self.spans[region][0]
                + block * BLOCK
                + rng.choice([0, length - 1, rng.randrange(length)])
            )
            self.arena.view[at] ^= 1 << rng.randrange(8)


def pack(sizes: list[int], shifts: list[int]) -> list[tuple[int, int]]:
    spans, at = [], 0
    for i, size in enumerate(sizes):
        at = (at + 15) // 16 * 16 + shifts[i % len(shifts)]
        spans.append((at, size))
        at += size + 1
    return spans


SMALL = [1, 2, 3, 4, 8, 9, 16, 17, 31, 32, 128, 129, 200, 240]
LONG = [
    241,
    256,
    257,
    319,
    320,
    321,
    1000,
    1023,
    1024,
    1025,
    1088,
    1089,
    2048,
    4095,
    4096,
    4097,
    8192,
    9000,
]
LARGE = [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 4096, 2 * BLOCK + 777]
MIXED = pack([4096, 1, 2 * BLOCK + 100, 300, BLOCK, 7, 5000, BLOCK + 8192], [0, 1, 0, 4])
BIG_RING = 2 << 20


@pytest.fixture(params=[(1, 0), (3, 0), (4, 7)], ids=["one CTA", "three CTAs", "shuffled"])
def grid(request: pytest.FixtureRequest) -> tuple[int, int]:
    ctas, seed = request.param
    return ctas, seed


both_ways = pytest.mark.parametrize("by_warp", [False, True], ids=["by CTA", "by warp"])


@both_ways
@pytest.mark.parametrize("shift", [0, 1, 4, 8])
@pytest.mark.parametrize("sizes", [SMALL, LONG, LARGE], ids=["short", "long", "blocks"])
def test_full_epoch_digests_and_copies_everything(
    interpreter: Interpreter, sizes: list[int], shift: int, by_warp: bool
) -> None:
    bed = Bed(interpreter, pack(sizes, [shift]), BIG_RING, ctas=2, by_warp=by_warp)
    status = bed.capture(full=True)
    assert status.flags == FINAL
    assert bed.read_chunk(0) == bed.blocks
    assert bed.stored_digests() == {
        block: xxhash.xxh3_64_intdigest(bed.contents(block)) for block in bed.blocks
    }


@both_ways
@pytest.mark.parametrize("shift", [0, 1, 2, 8])
def test_first_delta_computes_equal_digests(
    interpreter: Interpreter, shift: int, by_warp: bool
) -> None:
    sizes = SMALL + LONG + LARGE
    bed = Bed(interpreter, pack(sizes, [shift]), BIG_RING, ctas=2, by_warp=by_warp)
    bed.capture(full=False)
    assert sorted(bed.read_chunk(0)) == bed.blocks
    assert bed.stored_digests() == {
        block: xxhash.xxh3_64_intdigest(bed.contents(block)) for block in bed.blocks
    }


GROUPS = {
    "pages": [4096] * 11,
    "rounds": [1024, 2048, 3072, 8192, 1024, 1024],
    "any": [700, 241, 1025, 1087, 1088, 1089, 8191, 8192, 1536, 5000, 2047],
    "with short ones": [4096, 240, 700, 1, 3000, 16, 4096, 128],
    "with large ones": [4096, 8193, 700, 4096, BLOCK, 1024, 4096, 300, 4096],
}


@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_blocks_that_share_a_warp(interpreter: Interpreter, sizes: list[int]) -> None:
    bed = Bed(interpreter, pack(3 * sizes, [0]), BIG_RING, seed=7, by_warp=True)
    assert bed.capture(full=True).flags == FINAL
    assert bed.read_chunk(0) == bed.blocks
    for changed in ([], bed.blocks[::3], bed.blocks):
        bed.change(changed)
        head = bed.head()
        bed.tail = head
        assert bed.capture(full=False).flags == FINAL
        assert sorted(bed.read_chunk(head)) == changed
    assert bed.stored_digests() == {
        block: xxhash.xxh3_64_intdigest(bed.contents(block)) for block in bed.blocks
    }


@both_ways
def test_delta_lists_exactly_what_changed(
    interpreter: Interpreter, grid: tuple[int, int], by_warp: bool
) -> None:
    bed = Bed(interpreter, MIXED, BIG_RING, *grid, by_warp=by_warp)
    bed.capture(full=True)
    changes: list[list[Block]] = [[], [(1, 0)], [(2, 0), (2, 2), (6, 0)], bed.blocks, [(7, 1)]]
    for changed in changes:
        bed.change(changed)
        head = bed.head()
        bed.tail = head
        assert bed.capture(full=False).flags == FINAL
        assert sorted(bed.read_chunk(head)) == changed


@both_ways
def test_region_marked_full_is_listed_whole(
    interpreter: Interpreter, grid: tuple[int, int], by_warp: bool
) -> None:
    bed = Bed(interpreter, MIXED, BIG_RING, *grid, by_warp=by_warp)
    bed.capture(full=True)
    bed.all_listed = {2, 5}
    bed.change([(0, 0)])
    head = bed.head()
    bed.capture(full=False)
    assert sorted(bed.read_chunk(head)) == [block for block in bed.blocks if block[0] in (0, 2, 5)]


def test_ring_wraps(interpreter: Interpreter, grid: tuple[int, int]) -> None:
    bed = Bed(interpreter, MIXED, 8 * BLOCK, *grid)
    rng = random.Random(1)
    wraps = 0
    bed.capture(full=True)
    for _ in range(12):
        changed = sorted(rng.sample(bed.blocks, 3))
        bed.change(changed)
        head = bed.head()
        bed.tail = head
        bed.capture(full=False)
        assert sorted(bed.read_chunk(head)) == changed
        wraps += bed.status.position != head
    assert wraps >= 1


@pytest.mark.parametrize("full", [False, True])
def test_epoch_larger_than_the_ring_comes_in_parts(
    interpreter: Interpreter, grid: tuple[int, int], full: bool
) -> None:
    bed = Bed(interpreter, MIXED, 4 * BLOCK, *grid)
    status = bed.capture(full)
    assert (status.flags, status.count, status.payload) == (OVERFLOW, len(bed.blocks), bed.payload)
    assert bed.head() == 0 and not any(bed.ring.view)
    assert set(bed.stored_digests().values()) == {0}
    seen: list[Block] = []
    for first in range(0, len(bed.blocks), 2):
        bed.first, bed.last = first, min(first + 2, len(bed.blocks))
        head = bed.head()
        bed.tail = head - 4 * BLOCK  # a full ring first: the part can be tried again
        assert bed.gather().flags == OVERFLOW
        bed.tail = head
        status = bed.gather()
        seen += bed.read_chunk(head)
        assert status.flags == (FINAL if bed.last == len(bed.blocks) else 0)
        bed.part += 1
    assert sorted(seen) == bed.blocks
    assert not full or seen == bed.blocks
    head = bed.head()
    bed.tail = head
    assert bed.capture(full=False).count == 0
    assert bed.read_chunk(head) == []


def test_digest_matches_contents_written_during_capture(
    interpreter: Interpreter, grid: tuple[int, int]
) -> None:
    """The contents that go into the ring are those that were hashed, whoever writes when."""
    bed = Bed(interpreter, MIXED, BIG_RING, *grid)
    bed.capture(full=True)
    head = bed.head()
    changed = bed.blocks[::2]
    bed.change(changed)
    bed.epoch += 1
    bed.sequence += 1
    bed.launch("tt_capture_digest", 0)
    written = changed[1::2]
    bed.change(written[::-1])
    assert bed.gather().count == len(changed)
    assert sorted(bed.read_chunk(head, written)) == changed
    head = bed.head()
    assert bed.capture(full=False).count == 0
    assert bed.read_chunk(head) == []


@pytest.mark.parametrize("by_warp", [False, True])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_digest_ends_an_epoch_without_changes(
    interpreter: Interpreter, grid: tuple[int, int], by_warp: bool, cancelled: bool
) -> None:
    """The gather after it does nothing."""
    bed = Bed(interpreter, MIXED, BIG_RING, *grid, by_warp=by_warp)
    bed.capture(full=True)
    head = bed.head()
    bed.epoch += 1
    bed.sequence += 1
    bed.part, bed.first, bed.last = 0, 0, LAST
    control = interpreter.ffi.cast("struct tt_capture_control *", bed.control.address)
    control.cancelled = bed.epoch + 1 if cancelled else 0
    bed.launch(f"tt_capture_digest{'_small' if by_warp else ''}", 0)
    status = bed.read_status()
    assert (status.flags, status.count) == ((DISCARDED if cancelled else 0) | FINAL, 0)
    assert cancelled or bed.read_chunk(head) == []
    before, status.size = bed.head(), 1
    bed.launch("tt_capture_gather", 0)
    assert status.size == 1 and bed.head() == before


def test_discarded_changes_are_listed_again(
    interpreter: Interpreter, grid: tuple[int, int]
) -> None:
    bed = Bed(interpreter, MIXED, BIG_RING, *grid)
    bed.capture(full=True)
    before, head = bed.stored_digests(), bed.head()
    bed.change([(2, 1), (3, 0)])
    bed.tail = head - BIG_RING
    assert bed.capture(full=False).flags == OVERFLOW
    assert bed.gather(DISCARD).flags == DISCARDED | FINAL
    assert bed.stored_digests() == before and bed.head() == head
    bed.tail = head
    bed.change([(0, 0)])
    bed.capture(full=False)
    assert sorted(bed.read_chunk(head)) == [(0, 0), (2, 1), (3, 0)]


@pytest.mark.parametrize("full", [True, False])
def test_a_cancelled_epoch_reads_no_memory(
    interpreter: Interpreter, full: bool, grid: tuple[int, int]
) -> None:
    bed = Bed(interpreter, MIXED, BIG_RING, *grid)
    bed.capture(full=True)
    head = bed.tail = bed.head()
    control = interpreter.ffi.cast("struct tt_capture_control *", bed.control.address)
    control.cancelled = bed.epoch + 2
    bed.change([(2, 1)])
    bed.readable = False
    assert bed.capture(full).flags == DISCARDED | FINAL
    assert bed.head() == head
    bed.readable = True
    bed.capture(full=True)
    assert bed.read_chunk(head) == bed.blocks


@pytest.mark.parametrize("ends", ["gather", "discard", "digest"])
def test_the_next_epoch_may_begin_when_the_host_sees_the_end(
    interpreter: Interpreter, grid: tuple[int, int], ends: str
) -> None:
    """It may be that of a graph in another stream, before the last kernel has ended."""
    bed = Bed(interpreter, MIXED, BIG_RING, *grid)
    bed.capture(full=True)
    old = [] if ends == "digest" else [(0, 0)]
    bed.change(old)
    bed.tail = bed.head() - BIG_RING if ends == "discard" else 0
    bed.epoch += 1
    bed.sequence += 1
    head = bed.head()
    changed = [(2, 1), (3, 0), (4, 0), (7, 1)]

    def begin_next() -> None:
        nonlocal head
        head = bed.head()
        bed.change(changed)
        bed.epoch += 1
        bed.launch("tt_capture_digest", 0)
        bed.epoch -= 1

    if ends == "digest":
        bed.at_write(bed.end_address(), begin_next)
    bed.launch("tt_capture_digest", 0)
    if ends == "discard":
        assert bed.gather().flags == OVERFLOW
        bed.tail = 0
        bed.sequence += 1
    if ends != "digest":
        bed.at_write(bed.end_address(), begin_next)
    bed.launch("tt_capture_gather", DISCARD if ends == "discard" else 0)
    assert bed.read_status().flags & FINAL
    bed.epoch += 1
    bed.gather()
    assert sorted(bed.read_chunk(head)) == old * (ends == "discard") + changed


def test_a_discard_without_a_list_ends(interpreter: Interpreter, grid: tuple[int, int]) -> None:
    """The host asks for one where it could not hand over an epoch that had ended."""
    bed = Bed(interpreter, MIXED, BIG_RING, *grid)
    bed.capture(full=True)
    bed.capture(full=False)
    head = bed.head()
    assert bed.gather(DISCARD).flags == DISCARDED | FINAL
    bed.change([(2, 1)])
    bed.capture(full=False)
    assert bed.read_chunk(head) == [(2, 1)]


@both_ways
@pytest.mark.parametrize("changes", ["all", "some", "none"])
def test_no_memory_is_read_after_the_release(
    interpreter: Interpreter, grid: tuple[int, int], changes: str, by_warp: bool
) -> None:
    """The program may write it then, or free it. The control block is ready for the next epoch."""
    bed = Bed(interpreter, MIXED, BIG_RING, *grid, by_warp=by_warp)
    bed.capture(full=True)
    bed.change([(2, 1), (3, 0)] if changes == "some" else [])
    control = interpreter.ffi.cast("struct tt_capture_control *", bed.control.address)
    left: list[int] = []

    def release() -> None:
        bed.readable = False
        bed.allow()
        left.extend([control.cursor, control.entries_check, control.next, control.done])
        left.append(control.listed)

    bed.at_write(bed.address(bed.released), release)
    bed.capture(full=changes == "all")
    assert left == [0] * 5


def test_an_epoch_that_is_cancelled_while_it_is_copied(
    interpreter: Interpreter, grid: tuple[int, int]
) -> None:
    """Entries that some CTAs have copied are not in the sum of the next epoch."""
    bed = Bed(interpreter, MIXED, BIG_RING, *grid)
    bed.capture(full=True)
    head = bed.tail = bed.head()
    control = interpreter.ffi.cast("struct tt_capture_control *", bed.control.address)
    bed.change([(0, 0), (2, 1), (3, 0)])
    bed.epoch += 1
    bed.sequence += 1
    bed.launch("tt_capture_digest", 0)
    bed.at_write(bed.digests.address, lambda: setattr(control, "cancelled", bed.epoch + 1))
    assert bed.gather().flags == DISCARDED | FINAL
    assert bed.head() == head
    bed.capture(full=True)
    assert bed.read_chunk(head) == bed.blocks


@pytest.mark.parametrize(
    ("count", "size", "beside", "small"),
    [
        (100_000, 700, 0, True),
        (100_000, 4096, 0, True),
        (100_000, 4096, 800_000, True),
        (1000, 4096, 0, False),  # a CTA for each
        (100_000, 8192, 0, True),
        (100_000, 16384, 0, False),
        (100_000, BLOCK, 0, False),
    ],
)
def test_which_kernel_digests_regions(
    interpreter: Interpreter, count: int, size: int, beside: int, small: bool
) -> None:
    """One allocation beside many small ones does not change it: beside is its size."""
    blocks, payload = count + -(-beside // BLOCK), count * size + beside
    assert interpreter.lib.harness_small(blocks, payload, 132) == small


def test_without_a_ring_everything_overflows(interpreter: Interpreter) -> None:
    bed = Bed(interpreter, MIXED, 0)
    assert bed.capture(full=True).flags == OVERFLOW
    assert bed.gather(DISCARD).flags == DISCARDED | FINAL
    assert bed.capture(full=False).flags == OVERFLOW


def test_epoch_of_no_regions(interpreter: Interpreter) -> None:
    bed = Bed(interpreter, [], BLOCK, ctas=2)
    for full in (True, False):
        head = bed.head()
        assert (bed.capture(full).flags, bed.status.count) == (FINAL, 0)
        assert bed.read_chunk(head) == []


def test_chunk_that_fills_the_ring_exactly(interpreter: Interpreter) -> None:
    size = interpreter.lib.harness_chunk_size(2, 2 * BLOCK)
    bed = Bed(interpreter, [(0, 2 * BLOCK)], size)
    for _ in range(3):
        head = bed.head()
        bed.tail = head
        assert bed.capture(full=True).position == head
        assert bed.read_chunk(head) == bed.blocks
    assert bed.capture(full=True).flags == OVERFLOW


@pytest.fixture
def build_ptx() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_ptx", CAPTURE / "build_ptx.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ptx_is_current(build_ptx: ModuleType) -> None:
    assert build_ptx.check(build_ptx.find_nvcc()) is None


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        ("#define TT_BLOCK_SIZE 65536", "#define TT_BLOCK_SIZE 32768", True),
        ("uint64_t entries_check;", "uint64_t sum;", True),
        ("TT_TRIGGER_SYNC = 1", "TT_TRIGGER_SYNC = 100", False),
        ("uint64_t captured_ns;", "uint64_t read_ns;", False),
    ],
)
def test_ptx_matches_the_format_it_uses(
    old: str, new: str, matters: bool, build_ptx: ModuleType
) -> None:
    header = (ROOT / "interpose" / "include" / "format.h").read_text()
    sources = (CAPTURE / "capture.cuh").read_text() + (CAPTURE / "kernels.h").read_text()
    assert old in header
    used = build_ptx.declarations(header, sources)
    assert (build_ptx.declarations(header.replace(old, new), sources) != used) == matters
