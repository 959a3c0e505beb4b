"""Recording code in kernels that call functions: those of a linker, and the driver's."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests import sass_patcher as sp
from tests.test_sass_patch import Elf, target
from tests.test_trace_code import (
    COUNT,
    DATA,
    NVDISASM,
    OPCODE,
    VALUES,
    VARIABLE,
    code_of,
    detoured,
    disassemble,
)

REGISTERS, BEATS = 1 << 2, 1 << 7
CALL, CALL_REGISTER, BSYNC = 0x943, 0x343, 0x941  # opcodes
LOW, HIGH = 0x38, 0x39  # relocations: half of an address is the number of an instruction
RELA = struct.Struct("<QIIq")

pytestmark = [pytest.mark.native, pytest.mark.large]


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> sp.Cubin:
    patcher = sp.build(tmp_path_factory.mktemp("sass"))
    return patcher.open((DATA / "linked_90.cubin").read_bytes())


def relocations(image: bytes, kernel: str) -> dict[int, int]:
    """The type of each, by its offset."""
    elf = Elf(image)
    rows = RELA.iter_unpack(elf.contents(elf.section(f".rela.text.{kernel}")))
    return {offset: kind for offset, kind, _, _ in rows}


@pytest.mark.parametrize("name", ["divided", "called", "pointed", "printed"])
def test_calls_stay_and_what_is_around_them_is_traced(name: str, cubin: sp.Cubin) -> None:
    kernel = next(k for k in cubin.kernels if k.name == name)
    old, bound = code_of(cubin, kernel), relocations(cubin.image, name)
    calls = [i for i, (low, _) in enumerate(old) if low & 0xFFF in (CALL, CALL_REGISTER)]
    assert calls
    for kinds in (OPCODE, REGISTERS, VALUES, COUNT, BEATS, OPCODE | COUNT):
        image = cubin.traced_image(kernel, kinds, variables=VARIABLE)
        new = Elf(image.image).code(name)
        moved = detoured(old, new)
        assert len(moved) >= 2
        assert not set(moved) & {*calls, *(offset // 16 for offset in bound)}
        for i in calls:
            assert new[i] == old[i]
            if kinds & OPCODE and i + 1 < len(old) and old[i + 1][0] & 0xFFF != BSYNC:
                assert i + 1 in moved or 16 * (i + 1) in bound  # where it returns to
    functions = {s.name for s in Elf(cubin.image).sections if s.name.startswith(".text.")}
    assert len(functions) > len(cubin.kernels)


def test_variables_in_code_are_those_of_the_program(cubin: sp.Cubin) -> None:
    """`pointed` has the address of a table in two instructions."""
    kernel = next(k for k in cubin.kernels if k.name == "pointed")
    image = cubin.traced_image(kernel, COUNT, variables=VARIABLE).image
    before, after = relocations(cubin.image, "pointed"), relocations(image, "pointed")
    done = sorted(before.keys() - after.keys())
    assert [before[at] for at in done] == [LOW, HIGH] and after.items() <= before.items()
    new, old = Elf(image).code("pointed"), code_of(cubin, kernel)
    for at, half in zip(done, (VARIABLE & 0xFFFFFFFF, VARIABLE >> 32), strict=True):
        assert new[at // 16][0] == old[at // 16][0] & 0xFFFFFFFF | half << 32
    with pytest.raises(ValueError, match="the address of one of its module's variables is unknown"):
        cubin.traced_image(kernel, COUNT)
    assert target(90, 0, *new[0]) >= kernel.size  # counts begin there
    for name in ("called", "printed"):  # with strings alone, and the functions' own places
        other = next(k for k in cubin.kernels if k.name == name)
        image = cubin.traced_image(other, COUNT).image
        assert relocations(image, name) == relocations(cubin.image, name)


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_every_form_of_a_call_is_known(tmp_path: Path) -> None:
    """To a number, a register or a constant, absolute and relative; and jumps."""
    opcodes = (DATA.parents[2] / "interpose" / "sass" / "opcodes.h").read_text()
    forms = dict.fromkeys((0x343, 0x943, 0xB43, 0x344, 0x944), "CALL")
    forms |= {0x94A: "JMP", 0xB4A: "JMP", 0x94C: "JMX", 0x949: "BRX", 0x950: "RET"}
    code = [(0xFF007000 | opcode, 0x000FC00003800000) for opcode in forms]
    names = [text.split()[0].split(".")[0] for text in disassemble(code, tmp_path)]
    assert names == list(forms.values())
    for opcode, name in forms.items():
        assert re.search(rf'OPCODE\({opcode:#05x}, "{name}", 0x\w[89a-f], true\)', opcodes)
