#!/usr/bin/env python3
"""Extends operand_forms.h by what nvdisasm finds in code for sm_90.

    operand_forms.py FILE…      cubins, fatbins, programs: add the forms of their instructions

A form is a set of instructions that have registers at the same bits: those with certain bits in
certain places. It is made of instructions in files. A bit that differs between these does not
count, and neither does a bit of a number or a predicate that can be changed without an effect on
the registers in the text. All others have to be as they were seen. So of an instruction that no
form has, nothing is said.
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
TRIES, AT_ONCE = 6, 4  # of bits that don't count, changed at once

Operands = tuple[tuple[int, str, int, int], ...]  # bit, kind, how many are skipped, how many follow
Fields = dict[int, str]


@dataclass
class Form:
    mask: int
    bits: int
    operands: Operands
    seen: dict[int, Fields]  # instructions in files

    def meets(self, other: Form) -> bool:
        """Whether an instruction can be of both, with different registers."""
        apart = (self.bits ^ other.bits) & self.mask & other.mask
        return not apart and self.operands != other.operands


class Disassembler:
    def __init__(self, folder: Path) -> None:
        self._raw, self._known = folder / "raw", dict[int, str]()
        self._command = [str(tools.needed("nvdisasm")[0]), "-b", "SM90", str(self._raw)]

    def texts(self, wanted: Sequence[int]) -> list[str]:
        """Illegal instructions have none."""
        left = list(dict.fromkeys(code for code in wanted if code not in self._known))
        while left:
            self._raw.write_bytes(b"".join(code.to_bytes(16, "little") for code in left))
            done = subprocess.run(self._command, capture_output=True, text=True, check=False)
            if not done.returncode:
                said = {int(at, 16) // 16: text for at, text in TEXT.findall(done.stdout)}
                self._known |= {code: said.get(i, "") for i, code in enumerate(left)}
                break
            if not (match := ILLEGAL.search(done.stderr)):
                raise SystemExit(done.stderr.strip())
            self._known[left.pop(int(match[1], 16) // 16)] = ""
        return [self._known[code] for code in wanted]


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


def around(seen: dict[int, Fields], operands: Operands) -> Form:
    """The smallest form that has these instructions."""
    first, *_ = seen
    free = GUARD
    for code in seen:
        free |= code ^ first
    for field, kind, *_ in operands:
        free |= ((1 << WIDTH[kind]) - 1) << field
    mask = ((1 << SCHEDULE) - 1) & ~free
    return Form(mask, first & mask, operands, seen)


def halves(form: Form) -> list[Form]:
    """The form cut at the bit that cuts it most evenly."""
    free = [bit for bit in range(16, SCHEDULE) if not form.mask >> bit & 1]
    ones = {bit: sum(code >> bit & 1 for code in form.seen) for bit in free}
    bit = min(free, key=lambda b: abs(2 * ones[b] - len(form.seen)))
    assert 0 < ones[bit] < len(form.seen), "instructions with the same bits, but other registers"
    parts: tuple[dict[int, Fields], ...] = ({}, {})
    for code, fields in form.seen.items():
        parts[code >> bit & 1][code] = fields
    return [around(part, form.operands) for part in parts]


def separate(forms: list[Form]) -> list[Form]:
    """Forms of which no two meet."""
    while True:
        meet = next(((a, b) for a in forms for b in forms if a.meets(b)), None)
        if meet is None:
            return forms
        larger = max(meet, key=lambda form: len(form.seen))
        forms = [form for form in forms if form is not larger] + halves(larger)


def changeable(form: Form, by: Disassembler) -> dict[int, int]:
    """The form's first instruction with one bit of a number or a predicate changed, by bit."""
    code = next(iter(form.seen))
    (text,) = by.texts([code])
    bits = [*PREDICATES] if PREDICATE.search(text) else []
    bits += NUMBERS if code & int(GROUP) != OF_GROUP else ()
    return {bit: code ^ 1 << bit for bit in bits if form.mask >> bit & 1}


def widened(form: Form, others: list[Form], by: Disassembler) -> list[Form]:
    """The form with bits of numbers and predicates free; several if bits depend on each other."""
    code, fields = next(iter(form.seen.items()))
    kept, changed = form.mask, changeable(form, by)

    def keep(bits: int) -> None:
        form.mask |= bits
        form.bits = code & form.mask

    def differs(text: str) -> bool:
        return text != "" and operands_of(text, fields) != form.operands

    for bit, text in zip(changed, by.texts([*changed.values()]), strict=True):
        if text and not differs(text):
            form.mask &= ~(1 << bit)
            form.bits &= form.mask
            if any(form.meets(other) for other in others):
                keep(1 << bit)
    named = {field + n for field, kind, *_ in form.operands for n in range(WIDTH[kind])}
    chance = random.Random(form.bits)
    free = [b for b in range(16, SCHEDULE) if not form.mask >> b & 1 and b not in named]
    some = [chance.sample(free, min(AT_ONCE, len(free))) for _ in range(TRIES)]
    tries = [sum(1 << bit for bit in bits) for bits in some]
    for changes, text in zip(tries, by.texts([code ^ bits for bits in tries]), strict=True):
        if differs(text) and not changes & kept:
            return [w for half in halves(form) for w in widened(half, others, by)]
        if differs(text):
            keep(changes & kept)
    return [form]


def learn(seen: Sequence[int], known: list[Form], by: Disassembler) -> list[Form]:
    """Forms for instructions that no known one has."""
    groups: dict[tuple[int, Operands], dict[int, Fields]] = {}
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
            groups.setdefault((code & 0xFFF, operands), {})[code] = found
    tight: list[Form] = []
    for opcode in sorted({opcode for opcode, _ in groups}):
        mine = [around(of, ops) for (op, ops), of in groups.items() if op == opcode]
        there = [form for form in known if form.bits & 0xFFF == opcode]
        tight += [form for form in separate(mine + there) if form.seen]
    by.texts([code for form in tight for code in changeable(form, by).values()])  # together
    forms: list[Form] = []
    for form in tight:
        same = [o for o in (*known, *tight, *forms) if (o.bits ^ form.bits) & 0xFFF == 0]
        forms += widened(form, same, by)
    return forms


def read() -> list[Form]:
    found = []
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        if match := ENTRY.match(line):
            high, low, bits_high, bits_low = (int(match[n], 16) for n in range(1, 5))
            operands = tuple(
                (int(bit), "UR" if kind == "U" else kind, int(skipped), int(count))
                for kind, bit, skipped, count in OPERAND.findall(match[5])
            )
            found.append(Form(high << 64 | low, bits_high << 64 | bits_low, operands, {}))
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
