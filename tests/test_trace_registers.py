"""Recording code for registers and bulk copies: which registers it stores, and where."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import pytest

from tests import sass_patcher as sp
from tests import sass_warp
from tests.test_sass_patch import target
from tests.test_trace_code import DATA, NVDISASM, OWN, code_of, detoured, disassemble
from ttanalyze.disassembly.decode import parsed
from ttanalyze.disassembly.registers import in_order

REGISTERS, TMA = 1 << 2, 1 << 5
ROW = 128  # bytes of a register of all lanes
STORE = re.compile(r"@P0 STG\.E desc\[UR\d+\]\[R\d+\.64(?:\+0x([0-9a-f]+))?\], (R\w+)$")
MAPPED, BULK = "UTMALDG.2D [UR4], [UR8]", "UBLKCP.S.G [UR4], [UR8], UR6"
COORDINATES, BARRIER, BLOCKS = 16, 8, 36
SCHEDULE = 0x1E2 << 40
COPIES = {  # what the payload has of uniform registers, by place
    (0x00000004080075B4, 0x08008000, MAPPED): {BARRIER: 5, COORDINATES: 6, COORDINATES + 4: 7},
    (0x00000A040C0073B4, 0x08009808, "UTMALDG.2D.MULTICAST [UR4], [UR12], UR8, desc[UR10]"): {
        BARRIER: 5,
        COORDINATES: 6,
        COORDINATES + 4: 7,
        BLOCKS: 8,
    },
    (0x00000008060073B4, 0x08050004, "UTMALDG.3D.IM2COL [UR8], [UR6], UR4"): {
        BARRIER: 9,
        COORDINATES: 10,
        COORDINATES + 4: 11,
        COORDINATES + 8: 12,
    },
    (0x000000080E0073B5, 0x08018000, "UTMASTG.4D [UR8], [UR14]"): {
        COORDINATES + 4 * n: 9 + n for n in range(4)
    },
    (0x00000604080073B6, 0x08001000, "UTMAREDG.1D.ADD [UR4], [UR8], desc[UR6]"): {COORDINATES: 5},
    (0x00000004080075B8, 0x08010000, "UTMAPF.L2.3D [UR4], [UR8]"): {
        COORDINATES + 4 * n: 4 + n for n in range(3)
    },
    (0x00000004080073BA, 0x08000206, BULK): {BARRIER: 5},
    (0x00000004080073BA, 0x08000A06, BULK.replace("S.G", "S.G.MULTICAST")): {BARRIER: 5, BLOCKS: 6},
    (0x00000006040073BA, 0x08000405, "UBLKCP.G.S [UR6], [UR4], UR5"): {},
    (0x000000040A0073BB, 0x08000606, "UBLKRED.S.S.ADD [UR4], [UR10], UR6"): {BARRIER: 5},
}

pytestmark = [
    pytest.mark.native,
    pytest.mark.large,
    pytest.mark.long,
    pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm"),
]


@pytest.fixture(scope="module")
def patcher(tmp_path_factory: pytest.TempPathFactory) -> sp.Patcher:
    return sp.build(tmp_path_factory.mktemp("sass"))


def named(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    one = parsed(text)
    return in_order(one.mnemonic, one.operands)


def stores(detour: list[str]) -> dict[int, str]:
    """The register that each place of the payload gets, a uniform one through another."""
    found: dict[int, str] = {}
    copied: dict[str, str] = {}
    for text in detour:
        if match := re.match(r"MOV (R\d+), (UR\d+)$", text):
            copied[match[1]] = match[2]
        elif match := STORE.match(text):
            place = int(match[1] or "0", 16)
            assert place not in found
            found[place] = copied.get(match[2], match[2])
    return found


def detour_of(new: sp.Traced, i: int, after: list[str]) -> list[str]:
    begin = target(90, 16 * i, *new.code[i]) // 16
    return after[begin : next(n for n in range(begin, len(after)) if after[n].startswith("R2P"))]


@pytest.mark.parametrize("name", ["patch_90a", "sm_90a"])
def test_registers_are_those_of_the_text(name: str, patcher: sp.Patcher, tmp_path: Path) -> None:
    """Control flow is not traced, so its registers need not be known."""
    cubin = patcher.open((DATA / f"{name}.cubin").read_bytes())
    known = 0
    for kernel in cubin.kernels:
        code = code_of(cubin, kernel)
        reasons = cubin.trace(kernel, OWN, REGISTERS).refused
        for text, words, refused in zip(disassemble(code, tmp_path), code, reasons, strict=True):
            found = patcher.registers(*words)
            assert found == named(text) or (found is None and refused), text
            known += found is not None
    assert known > 200


def test_registers_are_stored_in_their_order(patcher: sp.Patcher, tmp_path: Path) -> None:
    cubin = patcher.open((DATA / "patch_90a.cubin").read_bytes())
    for kernel in cubin.kernels:
        old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, REGISTERS)
        before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
        chosen = detoured(old, new.code)
        assert len(chosen) == new.points
        for i in chosen:
            general, uniform = named(before[i])
            detour, end = detour_of(new, i, after), ROW * len(general)
            wanted = {end + 4 * n: f"UR{number}" for n, number in enumerate(uniform)}
            wanted |= {ROW * n: f"R{number}" for n, number in enumerate(general)}
            assert stores(detour) == wanted, before[i]
            units = 4 + 16 * len(general) + (len(uniform) + 1) // 2
            assert any(re.match(rf"MOV R\d+, {units << 16 | 2:#x}$", t) for t in detour)


@pytest.mark.parametrize("name", ["reduce", "matrix", "groups"])
def test_a_warp_stores_what_its_lanes_have(name: str, patcher: sp.Patcher, tmp_path: Path) -> None:
    """Between the pieces, which say where the payload is and which lanes have some."""
    cubin = patcher.open((DATA / "patch_90a.cubin").read_bytes())
    kernel = next(k for k in cubin.kernels if k.name == name)
    old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, REGISTERS)
    before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
    chance, base = random.Random(5), 0x7F00FFFFFF00
    for i in detoured(old, new.code):
        at = target(90, 16 * i, *new.code[i]) // 16
        piece = next(n for n in range(at, len(after)) if after[n].startswith("BSSY"))
        at = int(after[piece].split("0x")[1], 16) // 16
        end = next(n for n in range(at, len(after)) if after[n].startswith("BSSY"))
        warp, lanes = sass_warp.Warp({0x208: 0}), chance.getrandbits(32) | 1
        warp.uniform = {f"UR{n}": chance.getrandbits(32) for n in range(63)}
        for n in range(new.registers):
            warp.registers[f"R{n}"] = [chance.getrandbits(32) for _ in range(32)]
        tag = re.match(r"ISETP\.NE\.AND P0, PT, R(\d+), RZ, PT$", after[at])
        assert tag
        warp.registers[f"R{tag[1]}"] = [lanes >> lane & 1 for lane in range(32)]
        for n, half in enumerate((base & 0xFFFFFFFF, base >> 32), int(tag[1]) - 2):
            warp.registers[f"R{n}"] = [half] * 32
        general, uniform = named(before[i])
        wanted = {
            base + ROW * n + 4 * lane: warp.registers[f"R{number}"][lane]
            for n, number in enumerate(general)
            for lane in range(32)
            if lanes >> lane & 1
        }
        end_of = base + ROW * len(general)
        wanted |= {end_of + 4 * n: warp.uniform[f"UR{number}"] for n, number in enumerate(uniform)}
        warp.run(after, at, 0xFFFFFFFF, end)
        assert dict(warp.memory) == wanted, before[i]


def with_one(image: bytes, kernel: sp.Kernel, at: int, low: int, high: int) -> bytes:
    place = kernel.code + 16 * at
    return image[:place] + struct.pack("<QQ", low, high) + image[place + 16 :]


def test_an_unknown_instruction_has_lanes_alone(patcher: sp.Patcher, tmp_path: Path) -> None:
    """One whose bits no compiler gave it so far."""
    image = (DATA / "patch_90a.cubin").read_bytes()
    cubin = patcher.open(image)
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    code = code_of(cubin, kernel)
    at = next(i for i, (low, _) in enumerate(code) if low & 0xFFF == 0x981)  # LDG
    low, high = code[at][0], code[at][1] ^ 1 << 40  # a bit that has no meaning
    assert patcher.registers(low, high) is None
    changed = patcher.open(with_one(image, kernel, at, low, high))
    new = changed.trace(next(k for k in changed.kernels if k.name == "scale"), OWN, REGISTERS)
    detour = detour_of(new, at, disassemble(new.code, tmp_path))
    assert stores(detour) == {}
    assert any(re.match(r"MOV R\d+, 0x40002$", text) for text in detour)


@pytest.mark.parametrize("guard", ["", "@UP1 ", "@!UP2 "])
@pytest.mark.parametrize("copy", COPIES, ids=[copy[2].split()[0] for copy in COPIES])
def test_a_bulk_copy_is_recorded(
    copy: tuple[int, int, str], guard: str, patcher: sp.Patcher, tmp_path: Path
) -> None:
    low, high, text = copy
    image = (DATA / "patch_90a.cubin").read_bytes()
    kernel = next(k for k in patcher.open(image).kernels if k.name == "scale")
    number = {"": 7, "@UP1 ": 1, "@!UP2 ": 2 | 8}[guard]
    low = low & ~(15 << 12) | number << 12
    cubin = patcher.open(with_one(image, kernel, 4, low, SCHEDULE | high))
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    assert disassemble(code_of(cubin, kernel), tmp_path)[4] == guard + text
    new = cubin.trace(kernel, OWN, TMA)
    assert new.points == 1 and new.refused[4] is None
    after = disassemble(new.code, tmp_path)
    detour = detour_of(new, 4, after)
    assert {place: int(name[2:]) for place, name in stores(detour).items()} == COPIES[copy]
    mapped = text.startswith("UTMA")
    address = [t for t in detour if re.match(r"MOV R\d+, (0x0|UR\d+)$", t)][:2]
    first = int(re.findall(r"\[UR(\d+)\]", text)[1])
    assert [t.split(", ")[1] for t in address] == (
        [f"UR{first}", f"UR{first + 1}"] if mapped else ["0x0", "0x0"]
    )
    shifted = any(re.match(r"SHF\.R\.U32\.HI (R\d+), RZ, 0x10, \1$", t) for t in detour)
    assert shifted == ("MULTICAST" in text)
    if guard:
        kept = next(t for t in detour if t.startswith("USEL"))
        other = guard.strip()[1:]
        other = other[1:] if other[0] == "!" else f"!{other}"
        assert re.match(rf"USEL UR\d+, URZ, 0xffffffff, {other}$", kept)
        assert any(re.match(r"LOP3\.LUT (R\d+), \1, UR\d+, RZ, 0xc0, !PT$", t) for t in detour)
