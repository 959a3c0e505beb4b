#!/usr/bin/env python3
"""Extends operand_forms.h by what nvdisasm finds in code for sm_90.

    operand_forms.py FILE…      cubins, fatbins, programs: add the forms of their instructions

A form is a set of instructions that have registers at the same bits. It has no instruction that was
not seen in a file, but for its registers, and bits of numbers and predicates that can be changed
without an effect on the registers in the text. So of an instruction that no form has, nothing is
said.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from ttanalyze.disassembly import tools
from ttanalyze.disassembly.decode import parsed
from ttanalyze.disassembly.images import codes
from ttanalyze.disassembly.registers import REGISTER, named

TABLE = Path(__file__).with_suffix(".h")
HEAD = (
    "/* Made by operand_forms.py: bits that count, their values, registers as the text has them. */"
)
ENTRY = re.compile(r"FORM\((0x\w+), (0x\w+), (0x\w+), (0x\w+)(.*)\)$")
OPERAND = re.compile(r"(R|U)\((\d+), (\d+), (\d+)\)")
OPCODE = re.compile(r'OPCODE\((0x\w+), "\w+", (0x\w+), false\)')
SM_90 = 8  # its bit in opcodes.h
FIELDS = (16, 24, 32, 40, 64)  # bits at which a register may be
WIDTH = {"R": 8, "UR": 6}
APART = {"R": 16, "UR": 8}  # numbers of registers in different fields
SCHEDULE, GUARD, UNGUARDED = 105, 15 << 12, 7 << 12
READY = 0x7E0 << SCHEDULE  # what has no scoreboard
NUMBERS, PREDICATES = range(16, 64), range(81, 91)  # bits that may be those of such operands
PREDICATE = re.compile(r"\bU?P[\dT]\b")
GROUP, OF_GROUP = np.uint64(0x1FC), np.uint64(0x1F0)  # HGMMA and the like, shapes in the low word
TEXT = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
ILLEGAL = re.compile(r"at address 0x([0-9a-f]+)")
BATCH = 1000  # instructions that are disassembled together
SAMPLES, AT_ONCE = 3, 4  # instructions of a group, and bits of one, that are changed

Operands = tuple[tuple[int, str, int, int], ...]  # bit, kind, how many are skipped, how many follow
Fields = dict[int, str]


@dataclass
class Form:
    mask: int
    bits: int
    operands: Operands

    def meets(self, other: Form) -> bool:
        """Whether an instruction can be of both, with different registers."""
        apart = (self.bits ^ other.bits) & self.mask & other.mask
        return not apart and self._named_in(other) != other._named_in(self)

    def _named_in(self, other: Form) -> Operands:
        """Its operands without those that are RZ in instructions of the other."""

        def zero(bit: int, kind: str) -> bool:
            field = ((1 << WIDTH[kind]) - 1) << bit
            return other.mask & other.bits & field == field

        return tuple(one for one in self.operands if not zero(*one[:2]))


@dataclass
class Group:
    """Instructions with an opcode that have registers at the same bits."""

    operands: Operands
    seen: dict[int, Fields]
    free: int = 0  # bits of numbers and predicates

    def mask(self) -> int:
        """The bits that count."""
        fields = sum(((1 << WIDTH[kind]) - 1) << field for field, kind, *_ in self.operands)
        return ((1 << SCHEDULE) - 1) & ~(self.free | GUARD | fields)

    def forms(self) -> list[Form]:
        """Forms that have the instructions which were seen, and no others but for free bits."""
        mask = self.mask()
        found = {(mask, code & mask) for code in self.seen}
        for bit in (1 << n for n in range(SCHEDULE) if mask >> n & 1):
            for form in sorted(found):
                other = form[0], form[1] ^ bit
                if form in found and other in found:
                    found -= {form, other}
                    found.add((form[0] & ~bit, form[1] & ~bit))
        return [Form(mask, bits, self.operands) for mask, bits in found]


class Disassembler:
    def __init__(self, folder: Path) -> None:
        self._raw, self._known = folder / "raw", dict[int, str]()
        self._command = [str(tools.needed("nvdisasm")[0]), "-b", "SM90", str(self._raw)]

    def texts(self, wanted: Sequence[int]) -> list[str]:
        """Illegal instructions have none."""
        new = list(dict.fromkeys(code for code in wanted if code not in self._known))
        for begin in range(0, len(new), BATCH):
            self._learn(new[begin : begin + BATCH])
        return [self._known[code] for code in wanted]

    def _learn(self, left: list[int]) -> None:
        while left:
            self._raw.write_bytes(b"".join(code.to_bytes(16, "little") for code in left))
            done = subprocess.run(self._command, capture_output=True, text=True, check=False)
            if not done.returncode:
                said = {int(at, 16) // 16: text for at, text in TEXT.findall(done.stdout)}
                self._known |= {code: said.get(i, "") for i, code in enumerate(left)}
                return
            if not (match := ILLEGAL.search(done.stderr)):
                raise SystemExit(done.stderr.strip())
            self._known[left.pop(int(match[1], 16) // 16)] = ""


def instructions(files: Iterable[str]) -> Iterator[int]:
    """Instructions of different forms, without their schedule."""
    forms = set[tuple[int, ...]]()
    for file in files:
        for code in codes(Path(file).read_bytes(), 90):
            cubin = code.cubin
            if cubin is None or cubin.architecture != 90:
                continue
            executable = (cubin.sections["type"] == 1) & (cubin.sections["flags"] & 4 != 0)
            for section in np.flatnonzero(executable).tolist():
                text = cubin.bytes_of(section)
                words = np.frombuffer(text[: len(text) // 16 * 16], "<u8").reshape(-1, 2)
                kept = words[:, 1] & np.uint64((1 << SCHEDULE - 64) - 1)
                shape = np.where(words[:, 0] & GROUP == OF_GROUP, words[:, 0] >> np.uint64(40), 0)
                keys = np.stack([words[:, 0] & np.uint64(0xFFF), kept >> np.uint64(8), shape], 1)
                _, first = np.unique(keys, axis=0, return_index=True)
                for i in first.tolist():
                    key = tuple(keys[i].tolist())
                    if key not in forms:
                        forms.add(key)
                        word = int(words[i, 0]) | int(kept[i]) << 64 | READY
                        yield word & ~GUARD | UNGUARDED


def fields_of(seen: Sequence[int], by: Disassembler) -> list[Fields]:
    """The bits of each instruction at which a change changes a register in the text."""
    before = by.texts(seen)
    after = iter(by.texts([code ^ 8 << field for code in seen for field in FIELDS]))
    out = []
    for code, text in zip(seen, before, strict=True):
        old, found = [m.groups()[:2] for m in REGISTER.finditer(text)], Fields()
        for field in FIELDS:
            new = [m.groups()[:2] for m in REGISTER.finditer(next(after))]
            changed = {a[0] for a, b in zip(old, new, strict=False) if a != b}
            if len(new) == len(old) and len(changed) == 1:
                found[field] = changed.pop()
            elif len(new) == len(old) + 1:  # RZ was left out
                more = next(n for n in new if new.count(n) > old.count(n))
                zero = (1 << WIDTH[more[0]]) - 1
                found |= {field: more[0]} if code >> field & zero == zero else {}
        out.append(found)
    return out


def spread(code: int, fields: Fields) -> int:
    """The same with a register of its own in each field."""
    for field, kind in fields.items():
        code &= ~(((1 << WIDTH[kind]) - 1) << field)
        code |= APART[kind] * (FIELDS.index(field) + 1) << field
    return code


def operands_of(text: str, fields: Fields) -> Operands | None:
    """Of a text of a spread instruction; None: they are unclear."""
    found, said = [], parsed(text)
    if not text or any(match[2] == "Z" for match in REGISTER.finditer(text)):
        return None
    for _, kind, numbers in named(said.mnemonic, said.operands):
        index, skipped = divmod(numbers.start, APART[kind])
        field = FIELDS[index - 1] if 0 < index <= len(FIELDS) else 0
        if fields.get(field) != kind:
            return None
        found.append((field, kind, skipped, len(numbers)))
    return tuple(found)


def sampled(group: Group) -> list[int]:
    return [*group.seen][:: len(group.seen) // SAMPLES + 1]


def changes(code: int, group: Group, by: Disassembler) -> dict[int, int]:
    """The instruction with one bit of a number or a predicate changed, by bit."""
    (text,) = by.texts([code])
    bits = [*PREDICATES] if PREDICATE.search(text) else []
    bits += NUMBERS if code & int(GROUP) != OF_GROUP else ()
    return {bit: code ^ 1 << bit for bit in bits if group.mask() >> bit & 1}


def set_free(group: Group, by: Disassembler) -> None:
    """Finds bits that can change, alone and together."""

    def same(code: int, text: str) -> bool:
        return operands_of(text, group.seen[code]) == group.operands

    free = group.mask()
    for code in sampled(group):
        changed = changes(code, group, by)
        pairs = zip(changed, by.texts([*changed.values()]), strict=True)
        free &= sum(1 << bit for bit, text in pairs if same(code, text))
    group.free = free
    chance = random.Random(free)
    while bits := [bit for bit in range(SCHEDULE) if group.free >> bit & 1]:
        some = [
            sum(1 << b for b in chance.sample(bits, min(AT_ONCE, len(bits)))) for _ in group.seen
        ]
        tries = list(zip(group.seen, some, strict=True))
        texts = by.texts([code ^ bits for code, bits in tries])
        wrong = (t for (c, t), text in zip(tries, texts, strict=True) if text and not same(c, text))
        together = next(wrong, 0)
        if not together:
            break
        group.free &= ~together


def apart(groups: list[Group], known: list[Form]) -> list[Form]:
    """The forms of groups with the same opcode, of which no two meet."""
    while True:
        forms = [(group, form) for group in groups for form in group.forms()]
        others = [*forms, *((None, form) for form in known)]
        meet = next(
            ((g, a, o, b) for g, a in forms for o, b in others if o is not g and a.meets(b)), None
        )
        if meet is None:
            return [form for _, form in forms]
        one, form, other, by = meet
        before = one.free, other and other.free
        one.free &= ~by.mask
        if other:
            other.free &= ~form.mask
        if before == (one.free, other and other.free):
            raise SystemExit(f"two forms have the same instruction: {form}, {by}")


def learn(seen: Sequence[int], known: list[Form], by: Disassembler) -> list[Form]:
    """Forms for instructions that no known one has."""
    groups: dict[tuple[int, Operands], Group] = {}
    fields = fields_of(seen, by)
    plain = [spread(code, found) for code, found in zip(seen, fields, strict=True)]
    for code, found, text in zip(plain, fields, by.texts(plain), strict=True):
        operands = operands_of(text, found)
        if operands is None:
            print(f"{text}: its registers are unclear", file=sys.stderr)
            continue
        of = [form for form in known if code & form.mask == form.bits]
        if any(form.operands != operands for form in of):
            raise SystemExit(f"{text}: not the registers of its form")
        if not of:
            key = code & 0xFFF, operands
            groups.setdefault(key, Group(operands, {})).seen[code] = found
    some = [changes(code, g, by) for g in groups.values() for code in sampled(g)]
    by.texts([code for changed in some for code in changed.values()])  # together
    for group in groups.values():
        set_free(group, by)
    learned: list[Form] = []
    for opcode in sorted({opcode for opcode, _ in groups}):
        mine = [group for (of, _), group in groups.items() if of == opcode]
        learned += apart(mine, [form for form in known if form.bits & 0xFFF == opcode])
    return learned


def read() -> list[Form]:
    found = []
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        if match := ENTRY.match(line):
            high, low, bits_high, bits_low = (int(match[n], 16) for n in range(1, 5))
            operands = tuple(
                (int(bit), "UR" if kind == "U" else kind, int(skipped), int(count))
                for kind, bit, skipped, count in OPERAND.findall(match[5])
            )
            found.append(Form(high << 64 | low, bits_high << 64 | bits_low, operands))
    return found


def shown(form: Form) -> str:
    words = (word for whole in (form.mask, form.bits) for word in (whole >> 64, whole & 2**64 - 1))
    operands = (f"{kind[0]}({bit}, {skip}, {count})" for bit, kind, skip, count in form.operands)
    return f"FORM({', '.join([*map(hex, words), *operands])})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    asked = parser.parse_args()
    opcodes = OPCODE.findall(Path(__file__).with_name("opcodes.h").read_text())
    movable = {int(code, 16) for code, bits in opcodes if int(bits, 16) & SM_90}
    known = read()
    with tempfile.TemporaryDirectory() as folder:
        found = [code for code in instructions(asked.files) if code & 0xFFF in movable]
        forms = known + learn(found, known, Disassembler(Path(folder)))
    forms.sort(key=lambda form: (form.bits & 0xFFF, form.bits, form.mask))
    TABLE.write_text("\n".join([HEAD, *map(shown, forms)]) + "\n")


if __name__ == "__main__":
    main()
