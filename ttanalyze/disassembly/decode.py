"""Decodes one instruction: from its text and its 128 bits to a row of the table."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.disassembly import categories
from ttanalyze.disassembly.registers import Registers, registers
from ttanalyze.format.layout import Array

SIZE = 16  # bytes
PARTS = re.compile(r"(?:(@!?(?:U?P(?:\d|T)|%[\w$]+)) +)?(\S+) *(.*)", re.S)  # %p1: of PTX
REMARK = re.compile(r"\s*\(\*.*?\*\)")  # such as the targets of an indirect branch
SEPARATOR = re.compile(r",|(?<=\d) (?=-?0x)")  # R20 0x0: a register, and what is added to it
NUMBER = re.compile(r"-?0x[0-9a-f]+$")
DIRECT = {"BRA", "CALL", "BSSY"}  # whose last operand is where they lead to
NO_BARRIER = 7


@dataclass(frozen=True)
class Text:
    """The text of an instruction. target: of a branch, as the disassembler counts."""

    sass: str
    predicate: str | None
    mnemonic: str
    operands: tuple[str, ...]
    category: str
    delay_point: bool
    registers: Registers
    target: int | None

    @property
    def opcode(self) -> str:
        return self.mnemonic.partition(".")[0]


@functools.lru_cache(1 << 15)
def parsed(line: str) -> Text:
    """Parses a line such as `@!P0 LDG.E.64 R2, desc[UR4][R2.64+0x8]`, without the semicolon."""
    sass = " ".join(REMARK.sub("", line).split())
    found = PARTS.fullmatch(sass)
    predicate, mnemonic, rest = found.groups() if found else (None, sass, "")
    operands = tuple(part.strip() for part in SEPARATOR.split(rest)) if rest else ()
    opcode = mnemonic.partition(".")[0]
    target = None
    if opcode in DIRECT and ".ABS" not in mnemonic and operands:
        target = int(operands[-1], 16) if NUMBER.match(operands[-1]) else None
    return Text(
        sass,
        predicate,
        mnemonic,
        operands,
        categories.category(opcode),
        categories.can_delay(opcode),
        registers(mnemonic, operands),
        target,
    )


def control(words: Array) -> dict[str, list[Any]]:
    """Returns the scheduling bits of instructions, given as pairs of 64-bit words."""
    bits = words[:, 1] >> np.uint64(41)

    def field(at: int, width: int) -> Array:
        return np.asarray(bits >> np.uint64(at) & np.uint64((1 << width) - 1), "i8")

    def barrier(at: int) -> list[int | None]:
        return [None if b == NO_BARRIER else b for b in field(at, 3).tolist()]

    return {
        "stall": field(0, 4).tolist(),
        "yield": (field(4, 1) == 0).tolist(),
        "write_barrier": barrier(5),
        "read_barrier": barrier(8),
        "wait": [[b for b in range(6) if mask >> b & 1] for mask in field(11, 6).tolist()],
        "reuse": field(17, 4).tolist(),
    }
