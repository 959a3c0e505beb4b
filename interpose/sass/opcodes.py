#!/usr/bin/env python3
"""Extends opcodes.h by what nvdisasm finds in the code of kernels, or compares the two.

    opcodes.py FILE…            cubins, fatbins, programs, runs: add their opcodes
    opcodes.py --check FILE…    exit 1 where one is not there, or has another name

An opcode is the lowest 12 bits of an instruction. Those that transfer control are bound to their
place; whether a new one is has to be looked at, since what is bound can't have a delay.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from ttanalyze.disassembly.find import find_tables
from ttanalyze.errors import Error

TABLE = Path(__file__).with_suffix(".h")
ENTRY = re.compile(r'OPCODE\((0x[0-9a-f]{3}), "(\w+)", (0x[0-9a-f]{2}), (true|false)\)')
ARCHITECTURES = (80, 86, 89, 90, 100, 120)  # by bit, as in the table
Opcodes = dict[tuple[int, str], int]  # architectures by opcode and name


def found(files: Iterable[str]) -> Opcodes:
    """The opcodes of all kernels. Raises Error as find_tables does."""
    opcodes: Opcodes = {}
    for file in files:
        for table in find_tables(file):
            if table.architecture not in ARCHITECTURES:
                continue
            bit = 1 << ARCHITECTURES.index(table.architecture)
            for row in table.instructions:
                key = int(row["binary"], 16) & 0xFFF, row["opcode"]
                opcodes[key] = opcodes.get(key, 0) | bit
    return opcodes


def main() -> int:
    """Exit status 0: nothing to say, or added; 1: --check found something; 2: input error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="+", metavar="FILE")
    asked = parser.parse_args()
    head, *_ = TABLE.read_text().splitlines()
    entries = [m.groups() for m in ENTRY.finditer(TABLE.read_text())]
    known = {(int(code, 16), name): int(bits, 16) for code, name, bits, _ in entries}
    bound = {(int(code, 16), name): what for code, name, _, what in entries}
    try:
        new = {k: bits for k, bits in found(asked.files).items() if bits & ~known.get(k, 0)}
    except Error as e:
        print(e, file=sys.stderr)
        return 2
    for (code, name), bits in sorted(new.items()):
        seen = [
            a for i, a in enumerate(ARCHITECTURES) if bits & ~known.get((code, name), 0) & 1 << i
        ]
        print(f"{code:#05x} {name}: not in the table for sm_{', sm_'.join(map(str, seen))}")
        known[code, name] = known.get((code, name), 0) | bits
    if new and not asked.check:
        lines = (
            f'OPCODE({code:#05x}, "{name}", {bits:#04x}, {bound.get((code, name), "true")})'
            for (code, name), bits in sorted(known.items())
        )
        TABLE.write_text("\n".join([head, *lines]) + "\n")
    return 1 if new and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
