"""The registers that an instruction reads and writes, from the disassembler's text.

Mnemonics determine which operands are written, and how many registers one names, as the output of
compilers shows. For texture instructions, whose counts depend on masks and dimensions, only the
registers in the text are given.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+|Z)((?:\.\w+)*)")
PLAIN = re.compile(r"[-~!|]*(U?R)(\d+|Z)((?:\.\w+)*)\|?$")
PREDICATE = re.compile(r"!?U?P(?:\d|T|R)$")
DESCRIPTOR = re.compile(r"(?<![a-z])g?desc\[$")
SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)")
TIMES = re.compile(r"\.x(\d+)$")

_LISTS = {
    "nothing": "ST STG STL STS STSM STAS STTM STT SUST AST RED REDG REDAS SURED BRA BRX BRXU JMP "
    "JMX JMXU CALL RET EXIT BAR MEMBAR FENCE NOP NANOSLEEP WARPSYNC WARPGROUP BSYNC BSSY BREAK "
    "KILL DEPBAR LDGDEPBAR LDGSTS ARRIVES CCTL CCTLL CCTLT ERRBAR CGAERRBAR UTMALDG UTMASTG "
    "UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UBLKCP UBLKRED UBLKPF UTCHMMA UTCQMMA UTCIMMA UTCOMMA "
    "UTCMXQMMA UTCBAR UTCCP UTCSHIFT UGETNEXTWORKID UCGABAR_ARV UCGABAR_WAIT R2P UR2UP R2B BPT "
    "UVIRTCOUNT USETMAXREG ACQBULK PREEXIT YIELD",
    "memory": "LD LDG LDGMC LDL LDS LDC ULDC LDCU ST STG STL STS STAS ATOM ATOMG ATOMS RED REDG "
    "REDAS",
    "global": "LD LDG LDGMC ST STG ATOM ATOMG RED REDG LDGSTS STAS",
    "pairs": "DADD DMUL DFMA DMNMX DSETP FADD2 FMUL2 FFMA2 RET CALL BRX BRXU JMP JMX LEPC",
    "two": "TEX TLD TLD4 TXD TMML",
}
WRITES_NOTHING, MEMORY, GLOBAL, PAIRS, TWO_RESULTS = (
    frozenset(names.split()) for names in _LISTS.values()
)
WIDE = {"64", "F64", "S64", "U64", "F32x2", "F16x4", "BF16x4"}
WIDER = {"128", "F32x4", "F16x8", "BF16x8"}
# Registers of the results, the two factors and the sum, by shape and by type of the results.
MATRIX = {
    ("HMMA", "1688"): {"F16": (2, 2, 1, 2), "": (4, 2, 1, 4)},
    ("HMMA", "16816"): {"F16": (2, 4, 2, 2), "": (4, 4, 2, 4)},
    ("HMMA", "1684"): {"": (4, 2, 1, 4)},
    ("HMMA", "884"): {"F16": (4, 2, 2, 4), "": (8, 2, 2, 8)},
    ("IMMA", "8816"): {"": (2, 1, 1, 2)},
    ("IMMA", "8832"): {"": (2, 1, 1, 2)},
    ("IMMA", "16816"): {"": (4, 2, 1, 4)},
    ("IMMA", "16832"): {"": (4, 4, 2, 4)},
    ("IMMA", "16864"): {"": (4, 4, 2, 4)},
    ("QMMA", "16832"): {"F16": (2, 4, 2, 2), "": (4, 4, 2, 4)},
    ("QMMA", "16816"): {"F16": (2, 2, 1, 2), "": (4, 2, 1, 4)},
    ("OMMA", "16864"): {"": (4, 4, 2, 4)},
    ("BMMA", "88128"): {"": (2, 1, 1, 2)},
    ("BMMA", "168128"): {"": (4, 2, 1, 4)},
    ("BMMA", "168256"): {"": (4, 4, 2, 4)},
    ("DMMA", "884"): {"": (4, 2, 2, 4)},
    ("DMMA", "8x8x4"): {"": (4, 2, 2, 4)},
}


class Registers(NamedTuple):
    """Numbers of registers, ascending, without RZ and URZ."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    uniform_reads: tuple[int, ...]
    uniform_writes: tuple[int, ...]


@functools.lru_cache(1 << 15)
def registers(mnemonic: str, operands: tuple[str, ...]) -> Registers:
    """Returns the registers of an instruction without its predicate. operands: split as in the
    text.
    """
    opcode, *modifiers = mnemonic.split(".")
    results = _results(opcode, modifiers, operands)
    read: dict[str, set[int]] = {"R": set(), "UR": set()}
    written: dict[str, set[int]] = {"R": set(), "UR": set()}
    for i, kind, numbers in named(mnemonic, operands):
        (written if i in results else read)[kind].update(numbers)
    return Registers(
        *(tuple(sorted(s)) for s in (read["R"], written["R"], read["UR"], written["UR"]))
    )


@functools.lru_cache(1 << 15)
def in_order(mnemonic: str, operands: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the general and the uniform registers, each once, in the order of the operands."""
    found: dict[str, dict[int, None]] = {"R": {}, "UR": {}}
    for _, kind, numbers in named(mnemonic, operands):
        found[kind].update(dict.fromkeys(numbers))
    return tuple(found["R"]), tuple(found["UR"])


def named(mnemonic: str, operands: tuple[str, ...]) -> Iterator[tuple[int, str, range]]:
    """Yields operand, kind and numbers of the registers that each name stands for."""
    for i, operand in enumerate(operands):
        for found in REGISTER.finditer(operand):
            kind, first, suffix = found.groups()
            if first != "Z":
                count = _Name(mnemonic, operands, i, kind, suffix, found.start()).count()
                begin = int(first) + _skipped(mnemonic, operands, i)
                yield i, kind, range(begin, begin + count)


def _results(opcode: str, modifiers: Sequence[str], operands: tuple[str, ...]) -> set[int]:
    """Returns the indices of written operands: the first register, and predicates before it."""
    if opcode in WRITES_NOTHING:
        return set()
    wanted = 2 if opcode in TWO_RESULTS or "ENL2" in modifiers else 1
    found: set[int] = set()
    for i, operand in enumerate(operands):
        if PLAIN.match(operand) and operand[0] in "UR":
            found.add(i)
            if len(found) == wanted:
                break
        elif not PREDICATE.match(operand):
            break
    only_predicates = opcode.endswith(("SETP", "SETP2", "LOP3")) and opcode[0] != "L"
    if only_predicates or (opcode == "SYNCS" and "PHASECHK" in modifiers):
        return set()
    return found


@dataclass(frozen=True)
class _Name:
    """The name of a register at a position in the text of operand i."""

    mnemonic: str
    operands: tuple[str, ...]
    i: int
    kind: str
    suffix: str
    place: int

    def count(self) -> int:
        """The number of registers that the name stands for."""
        opcode, *modifiers = self.mnemonic.split(".")
        if not PLAIN.match(self.operands[self.i]):
            return self._in_address(opcode, modifiers)
        if opcode in MEMORY:
            return _data(modifiers)
        if opcode in ("LDSM", "STSM"):
            return int(modifiers[-1]) if modifiers and modifiers[-1].isdigit() else 1
        if opcode in ("LDTM", "STTM"):
            times = TIMES.search(self.mnemonic)
            return int(times[1]) if times else 1
        if opcode.endswith("MMA"):
            return _of_matrix(opcode, self.mnemonic, modifiers, self.i)
        if opcode in PAIRS:
            return 2
        if opcode in ("IMAD", "UIMAD") and "WIDE" in modifiers:
            plain = [j for j, o in enumerate(self.operands) if not PREDICATE.match(o)]
            return 2 if self.i in (*plain[:1], *plain[3:4]) else 1
        if opcode in ("CS2R", "CS2UR"):
            return 1 if "32" in modifiers else 2
        return _converted(opcode, modifiers, self.i)

    def _in_address(self, opcode: str, modifiers: Sequence[str]) -> int:
        operand = self.operands[self.i]
        if DESCRIPTOR.search(operand[: self.place]):
            return 4 if opcode.endswith("GMMA") and _smem_factors(self.operands) else 2
        if opcode.startswith(("UTMA", "UBLK")):
            return _of_bulk(opcode, modifiers, self.i)
        if ".64" in self.suffix:
            return 2
        is_address = self.i == _address(opcode, self.operands)
        if opcode in GLOBAL and "U32" not in self.suffix and is_address:
            return 2 if self.kind == "UR" or "UR" not in operand.rpartition("[")[2] else 1
        return 1


def _converted(opcode: str, modifiers: Sequence[str], i: int) -> int:
    """Returns the number of registers of an operand of a conversion.

    If two types are given, the first is that of the result.
    """
    types = [m for m in modifiers if re.fullmatch(r"[FSU](8|16|32|64)", m)]
    wide = [t.endswith("64") for t in types]
    if opcode in ("F2F", "FRND"):
        return 2 if wide and (wide[0] if i == 0 else wide[-1]) else 1
    if opcode in ("F2I", "I2F"):
        into, of = ("SU", "F") if opcode == "F2I" else ("F", "SU")
        letters = into if i == 0 else of
        return 2 if any(t[0] in letters and t.endswith("64") for t in types) else 1
    return 2 if modifiers and "64" in modifiers and opcode not in ("MUFU", "SYNCS") else 1


def _data(modifiers: Sequence[str]) -> int:
    """Returns the number of registers that a memory instruction moves."""
    if "ENL2" in modifiers or any(m in WIDER for m in modifiers):
        return 4
    return 2 if any(m in WIDE for m in modifiers) else 1


def _address(opcode: str, operands: tuple[str, ...]) -> int:
    """Returns the index of the operand that is an address of global memory."""
    brackets = [i for i, operand in enumerate(operands) if "[" in operand]
    return brackets[-1] if opcode == "LDGSTS" else brackets[0] if brackets else -1


def _skipped(mnemonic: str, operands: tuple[str, ...], i: int) -> int:
    """Returns how many registers of a group's descriptors are not read: those of the first factor,
    if that is in registers.
    """
    group = mnemonic.partition(".")[0].endswith("GMMA") and operands[i].startswith("gdesc")
    return 2 if group and not _smem_factors(operands) else 0


def _smem_factors(operands: tuple[str, ...]) -> bool:
    """Returns whether both factors of a warp group's product are in shared memory."""
    return operands[1:2] != () and operands[1].startswith("gdesc")


def _of_bulk(opcode: str, modifiers: Sequence[str], i: int) -> int:
    """Returns the number of consecutive uniform registers that one name of a bulk copy stands for.

    For tensors: the address in shared memory, for loads the barrier, and the coordinates; then the
    address of the descriptor. Otherwise: a 64-bit global address, or an address in shared memory
    and, if that is written, the barrier.
    """
    dimensions = next((int(m[0]) for m in modifiers if re.fullmatch(r"[1-5]D", m)), 0)
    if opcode.startswith("UTMA"):
        if i == 1 or opcode == "UTMACCTL":
            return 2
        addresses = {"UTMALDG": 2, "UTMAPF": 0}.get(opcode, 1)
        return addresses + dimensions if i == 0 else 1
    if opcode == "UBLKPF":
        return 2 if i == 0 else 1
    return 2 if i == 0 or (i == 1 and "G" in modifiers[1:2]) else 1


def _of_matrix(opcode: str, mnemonic: str, modifiers: Sequence[str], i: int) -> int:
    if opcode.endswith("GMMA"):
        shape = SHAPE.search(mnemonic)
        if shape is None:
            return 1
        results = int(shape[2]) // (4 if modifiers[1:2] == ["F16"] else 2)
        return results if i != 1 else 4
    counts = MATRIX.get((opcode, modifiers[0] if modifiers else ""), {})
    results_type = "F16" if "F16" in modifiers[1:2] else ""
    found = counts.get(results_type) or counts.get("") or (1, 1, 1, 1)
    sparse = "SP" in modifiers
    return found[i] * (2 if sparse and i == 2 else 1) if i < len(found) else 1
