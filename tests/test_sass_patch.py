"""The patcher: what it makes of cubins of each architecture, by a reader of its own."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from tests import sass_patcher as sp
from tests.test_kernel_checksums import entry, fatbin, lz4
from ttanalyze.code import fatbin as fatbins

DATA = Path(__file__).parent / "data" / "sass"
CUBINS = sorted(DATA.glob("patch_*.cubin"))
BRANCH, BRANCH_IF, NUMBER, SLEEP = 0x947, 0x547, 0x882, 0x95D
LONGEST = 32  # instructions of a delay

pytestmark = [pytest.mark.native, pytest.mark.large]


@pytest.fixture(scope="module")
def patcher(tmp_path_factory: pytest.TempPathFactory) -> sp.Patcher:
    return sp.build(tmp_path_factory.mktemp("sass"))


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    offset: int
    size: int
    info: int


class Elf:
    """Just what is asked about; it raises where a table lies outside the file."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        self.phoff, self.shoff = struct.unpack_from("<QQ", image, 32)
        self.phnum, _, self.shnum, names = struct.unpack_from("<HHHH", image, 56)
        raw = [
            struct.unpack_from("<IIQQQQIIQQ", image, self.shoff + 64 * i) for i in range(self.shnum)
        ]
        at = raw[names][4]
        self.sections = [
            Section(
                image[at + s[0] : image.index(b"\0", at + s[0])].decode(), s[1], s[4], s[5], s[7]
            )
            for s in raw
        ]
        self.segments = [
            struct.unpack_from("<IIQQQQQQ", image, self.phoff + 56 * i) for i in range(self.phnum)
        ]

    def section(self, name: str) -> Section:
        return next(s for s in self.sections if s.name == name)

    def contents(self, s: Section) -> bytes:
        assert s.offset + s.size <= len(self.image)
        return self.image[s.offset : s.offset + s.size]

    def code(self, kernel: str) -> list[tuple[int, int]]:
        return list(struct.iter_unpack("<QQ", self.contents(self.section(f".text.{kernel}"))))

    def symbol_size(self, kernel: str) -> int:
        names = self.contents(self.section(".strtab"))
        for name, _, _, _, size in self._symbols():
            if names[name : names.index(b"\0", name)].decode() == kernel:
                return size
        raise KeyError(kernel)

    def _symbols(self) -> Iterator[tuple[int, int, int, int, int]]:
        for name, info, other, section, _, size in struct.iter_unpack(
            "<IBBHQQ", self.contents(self.section(".symtab"))
        ):
            if info & 15 == 2:
                yield name, info, other, section, size

    def attributes(self, kernel: str) -> dict[int, bytes]:
        """Those with data."""
        data, at, out = self.contents(self.section(f".nv.info.{kernel}")), 0, {}
        while at < len(data):
            form, kind, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == 4:
                out[kind] = data[at : at + size]
                at += size
        return out


def target(architecture: int, at: int, low: int, high: int) -> int:
    """Where a branch leads that is at a place."""
    words = low >> 34 | (high & 0x3FFFF) << 30
    bits = 48
    if architecture >= 90:
        words, bits = words << 8 | low >> 16 & 0xFF, 56
    if words >> (bits - 1):
        words -= 1 << bits
    return at + 16 + words * 4


REUSE = 15 << 58
# R2UR, S2UR, ULDC, LDCU, UMOV, UIADD3, ULOP3, REDUX, VOTEU
UNIFORM_WRITERS = {0x2CA, 0x3C2, 0x9C3, 0xAB9, 0x7AC, 0x882, 0x890, 0x290, 0x892, 0x3C4, 0x886}


def check_detours(architecture: int, old: list[tuple[int, int]], new: list[tuple[int, int]]) -> int:
    """That every instruction is what it was, there or in a detour that comes back; their number."""
    moved = 0
    for i, (low, high) in enumerate(old):
        at_low, at_high = new[i]
        if (at_low, at_high | REUSE) == (low, high | REUSE):
            continue
        assert at_low & 0xFFFF == 0x7000 | BRANCH
        to = target(architecture, i * 16, at_low, at_high)
        assert to >= len(old) * 16
        delay = new[to // 16 : to // 16 + LONGEST].index((low, high & ~REUSE))
        assert not delay or new[to // 16 + delay - 1][0] & 0xFFF == BRANCH_IF
        to += 16 * delay
        back = new[to // 16 + 1]
        assert back[0] & 0xFFFF == 0x7000 | BRANCH
        assert target(architecture, to + 16, *back) == i * 16 + 16
        assert not new[i - 1][1] & REUSE
        moved += 1
    return moved


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_every_instruction_is_patched(patcher: sp.Patcher, path: Path) -> None:
    image = path.read_bytes()
    cubin = patcher.open(image)
    assert f"patch_{cubin.architecture}" in path.stem
    done = cubin.patch()
    assert done.refused == [None] * len(cubin.kernels)
    assert done.image
    old, new = Elf(image), Elf(done.image)
    for kernel, moved in zip(cubin.kernels, done.moved, strict=True):
        before, after = old.code(kernel.name), new.code(kernel.name)
        assert check_detours(cubin.architecture, before, after) == moved
        assert moved > 0.75 * sum(low != 0x7918 for low, _ in before)
        assert moved == len(before) - cubin.reasons(kernel).total()
        assert new.symbol_size(kernel.name) == len(after) * 16
        # what is said about instructions is said about where they are now
        was, now = old.attributes(kernel.name), new.attributes(kernel.name)
        for kind, each in ((0x1C, 4), (0x28, 4), (0x31, 4), (0x39, 16)):
            for at in range(0, len(was.get(kind, b"")), each):
                x, y = (struct.unpack_from("<I", data[kind], at)[0] // 16 for data in (was, now))
                assert before[x][0] == after[y][0]
                assert was[kind][at + 4 : at + each] == now[kind][at + 4 : at + each]
    for s, t in zip(old.sections, new.sections, strict=True):
        assert (s.name, s.kind, s.info) == (t.name, t.kind, t.info)
        if not s.name.startswith((".text.", ".nv.info.", ".symtab", ".nv.capmerc")) and s.kind != 8:
            assert old.contents(s) == new.contents(t)
    texts = [s for s in new.sections if s.name.startswith(".text.")]
    assert any(
        kind == 1 and all(at <= s.offset and s.offset + s.size <= at + size for s in texts)
        for kind, _, at, _, _, size, _, _ in new.segments
    )
    assert patcher.open(done.image).patch().image  # a cubin as any other


def test_delay_points_are_patched_exactly_or_refused(patcher: sp.Patcher) -> None:
    image = (DATA / "patch_90a.cubin").read_bytes()
    cubin = patcher.open(image)
    scale = next(k for k in cubin.kernels if k.name == "scale")
    branch = next(i * 16 for i, why in enumerate(cubin.refusals(scale)) if why == "control flow")
    done = cubin.patch(scale, [sp.Point(16, sp.FIXED, 2_500_000), sp.Point(32, sp.EMPTY)])
    assert done.image
    assert done.moved[scale.index] == 2
    old, new = Elf(image), Elf(done.image)
    code = new.code("scale")
    assert check_detours(90, old.code("scale"), code) == 2
    added = code[len(old.code("scale")) :]
    cycles = [low >> 32 for low, _ in added if low & 0xFFF == NUMBER]
    assert cycles == [2_500_000 * 1.98]
    # no other thread of the warp may run on meanwhile
    assert not any(low & 0xFFF == SLEEP for low, _ in added)
    for other in cubin.kernels:
        if other != scale:
            assert old.code(other.name) == new.code(other.name)
    for points, reason, at in (
        ([sp.Point(16), sp.Point(branch)], "control flow", branch),
        ([sp.Point(24)], "no instruction at this offset", 24),
        ([sp.Point(1 << 20)], "no instruction at this offset", 1 << 20),
        ([sp.Point(32), sp.Point(16)], "points are not in ascending order", 16),
        ([sp.Point(16, sp.FIXED, 1 << 30)], "the delay is too long", 16),
    ):
        done = cubin.patch(scale, points)
        assert done.image is None
        assert done.refused[scale.index] == reason
        assert done.refused_at[scale.index] == at


def uniforms(low: int) -> set[int]:
    """Uniform registers that an instruction of a delay writes."""
    first = low >> 16 & 0xFF
    writes = low & 0xFFF not in {BRANCH, BRANCH_IF, 0x28C, 0x918}
    return {first, first + 1} if low & 0xFFF == 0x8A5 else {first} if writes else set()


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
@pytest.mark.parametrize("mode", [sp.FIXED, sp.RANDOM, sp.CLUSTER, sp.CLUSTER_FIXED])
def test_delays_use_free_registers(patcher: sp.Patcher, path: Path, mode: int) -> None:
    image = path.read_bytes()
    cubin = patcher.open(image)
    for kernel in cubin.kernels:
        reasons = cubin.reasons(kernel, mode)
        if mode >= sp.CLUSTER and cubin.architecture < 90:
            assert reasons["the architecture has no clusters"]
            continue
        assert reasons == cubin.reasons(kernel)
        refusals = cubin.refusals(kernel, mode)
        places = [16 * i for i, why in enumerate(refusals) if not why]
        points = [sp.Point(place, mode, 2000, 100, 0x87654321) for place in places]
        done = cubin.patch(kernel, points)
        assert done.image
        old, new = Elf(image).code(kernel.name), Elf(done.image).code(kernel.name)
        assert check_detours(cubin.architecture, old, new) == len(points)
        begin = target(cubin.architecture, places[0], *new[places[0] // 16]) // 16
        moved = old[places[0] // 16][0]
        end = next(i for i in range(begin, begin + LONGEST) if new[i][0] == moved)
        used = set().union(*(uniforms(low) for low, _ in new[begin:end]))
        assert len(used) in (3, 4)
        written = {low >> 16 & 0xFF for low, _ in old if low & 0xFFF in UNIFORM_WRITERS}
        assert not written & used


def test_damaged_images_are_refused(patcher: sp.Patcher) -> None:
    image = (DATA / "patch_90a.cubin").read_bytes()
    rng = random.Random(1)
    for n in range(300):
        damaged = bytearray(image)
        for _ in range(rng.choice((1, 1, 4, 40))):
            where = rng.choice((64, len(image), 8000))
            at = rng.randrange(min(where, len(image)))
            if rng.random() < 0.5:  # in the headers of sections
                at = struct.unpack_from("<Q", image, 40)[0] + rng.randrange(64 * 40)
            damaged[at % len(image)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if n % 5 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        try:
            cubin = patcher.open(bytes(damaged))
        except ValueError:
            continue
        cubin.patch()


PTX, ELF, LZ4, ZSTD, EXACT = 1, 2, 0x2000, 0x8000, 0x100000


def packed(cubin: bytes, flags: int, architecture: int) -> bytes:
    contents = lz4(cubin) if flags & LZ4 else zstandard.compress(cubin)
    return entry(contents, flags=flags, size=len(cubin), arch=architecture)


def test_patched_image_replaces_the_fatbin_entry_of_the_device(patcher: sp.Patcher) -> None:
    cubins = {p.stem[6:]: p.read_bytes() for p in CUBINS}
    patched = {name: patcher.open(image).patch().image for name, image in cubins.items()}
    text = b".version 8.0\n.target sm_80\n"
    image = fatbin(
        entry(cubins["80"], arch=80),
        packed(cubins["86"], LZ4, 86),
        entry(cubins["90a"], flags=EXACT, arch=90),
        packed(cubins["90a"], ZSTD, 90),
        entry(text, kind=PTX, arch=80),
        packed(cubins["100a"], ZSTD | EXACT, 100),
    )

    def taken(*devices: int) -> list[tuple[int, str]] | None:
        made = patcher.fatbin(image, *devices)
        if made is None:
            return None
        entries = list(fatbins.entries(made))
        out = []
        for e in entries:
            assert e.contents is not None
            if e.kind == PTX:
                assert e.contents.rstrip(b"\0") == text
            else:
                name = next(n for n, i in patched.items() if i and e.contents.startswith(i))
                out.append((e.architecture, name))
        assert sum(e.kind == PTX for e in entries) == 1
        return out

    assert taken(80) == [(80, "80")]
    assert taken(87) == taken(89) == [(86, "86")]
    assert taken(90) == [(90, "90a"), (90, "90a")]
    assert taken(100, 80) == [(80, "80"), (100, "100a")]
    assert not any((taken(75), taken(103), taken(120), taken()))
    rng = random.Random(2)
    for _ in range(200):
        damaged = bytearray(image)
        for _ in range(rng.choice((1, 3, 30))):
            begin = 16 if rng.random() < 0.5 else rng.randrange(16, len(image) - 64)
            damaged[begin + rng.randrange(64)] = rng.choice((0, 1, 0x80, 0xFF, rng.randrange(256)))
        patcher.fatbin(bytes(damaged), 90, 86)


@pytest.mark.parametrize("kind", [0x66, 0x7E])
def test_attributes_of_newer_compilers(kind: int, patcher: sp.Patcher) -> None:
    """Kernels of CUDA 13.4 have one that nobody names; others may refer to instructions."""
    image = bytearray((DATA / "patch_90a.cubin").read_bytes())
    place = image.index(struct.pack("<BBH", 4, 0x37, 4))  # the version of the API
    image[place + 1] = kind
    cubin = patcher.open(bytes(image))
    refused = [cubin.refusals(kernel) for kernel in cubin.kernels]
    assert refused.count("unknown attribute") == (kind == 0x7E)


def test_an_attribute_of_pairs_follows_its_instructions(patcher: sp.Patcher) -> None:
    """Kernels with atomics of 16 bits have one: instructions, each with its register."""
    image = (DATA / "patch_90a.cubin").read_bytes()
    said = {
        k.name: Elf(image).attributes(k.name).get(0x1C, b"") for k in patcher.open(image).kernels
    }
    name, exits = next((name, data) for name, data in said.items() if len(data) == 8)
    head = struct.pack("<BBH", 4, 0x1C, 8)
    assert image.count(head + exits) == 1
    other = image.replace(head + exits, struct.pack("<BBH", 4, 0x2E, 8) + exits)
    offsets, pairs = (patcher.open(given).patch().image for given in (image, other))
    assert offsets and pairs
    moved, pair = Elf(offsets).attributes(name)[0x1C], Elf(pairs).attributes(name)[0x2E]
    assert moved[:4] != exits[:4] and moved[4:] != exits[4:]
    assert pair == moved[:4] + exits[4:]
