"""What a kernel does through the pointers that it is given, as its machine code says.

Values are followed from parameters through registers to addresses, along all jumps within the
kernel. An address is taken to be of every parameter that came into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ttanalyze.code.pointers import ANYTHING, ATOMIC, READ, WORD, WRITE
from ttanalyze.disassembly.registers import REGISTER
from ttanalyze.disassembly.tables import Table

# Where parameters begin in constant bank 0, from an architecture on.
BEGINS = ((100, 0x380), (90, 0x210), (70, 0x160))
CONSTANT = re.compile(r"c\[0x0\]\[(?:(U?R\w+)\+?)?(0x[0-9a-f]+)?\]")
EFFECTS = {
    **dict.fromkeys(("LDG", "LD", "LDGSTS"), READ),
    **dict.fromkeys(("STG", "ST"), WRITE),
    **dict.fromkeys(("ATOMG", "ATOM", "RED", "REDG"), ATOMIC),
    **dict.fromkeys(("UBLKCP", "UBLKRED"), ANYTHING),
}
# Opcodes whose results are no pointers, or can not be followed.
DATA = {"LDG", "LD", "LDS", "LDSM", "ATOMG", "ATOM", "ATOMS", "S2R", "S2UR", "CS2R", "I2F", "F2I"}
PREDICATE = re.compile(r"!?(U?P\d|PR)$")
TENSORS = ("UTMA", "TEX", "TLD", "SULD", "SUST")  # memory by a descriptor
ENDS, JUMPS = ("EXIT", "RET"), ("BRA", "CALL", "BRX", "JMP", "BSYNC", "BREAK", "BRXU", "JMX")
LARGEST = 50_000  # instructions

State = dict[str, frozenset[int]]  # by register the words of parameters that came into it
NOTHING: frozenset[int] = frozenset()
LOCAL = "local"


def pointer_uses(table: Table, size: int) -> dict[int, int] | None:
    """What a kernel does through the 64-bit word at each offset of its parameters, as
    code.pointers.pointer_uses has it; None if that cannot be said. size: bytes of its parameters.
    """
    begin = next((at for least, at in BEGINS if table.architecture >= least), None)
    if begin is None or len(table.instructions) > LARGEST:
        return None
    return _Kernel(table.instructions, begin, size).uses()


class _Kernel:
    def __init__(self, rows: Sequence[dict[str, Any]], begin: int, size: int) -> None:
        self._rows, self._begin, self._size = rows, begin, size
        self._found: dict[int, int] = {}
        # By register a predicate, and what the register holds where that is true: since the block
        # began, and as long as nothing else writes either of them.
        self._guarded: dict[str, tuple[str, frozenset[int]]] = {}

    def uses(self) -> dict[int, int]:
        blocks = _blocks(self._rows)
        states: dict[int, State] = {0: {}}
        waiting = [0] if self._rows else []
        while waiting:
            first = waiting.pop()
            state, self._guarded = dict(states[first]), {}
            for row in self._rows[first : blocks[first][0]]:
                self._step(row, state)
            for after in blocks[first][1]:
                known = states.get(after)
                if known is None:
                    states[after] = dict(state)
                    waiting.append(after)
                elif _merge(known, state) and after not in waiting:
                    waiting.append(after)
        if any(row["mnemonic"].startswith(TENSORS) for row in self._rows):
            for word in self._all(0):
                self._found.setdefault(word, ANYTHING)
        return self._found

    def _all(self, offset: int) -> Iterable[int]:
        return range(max(offset, 0) // WORD * WORD, self._size, WORD)

    def _step(self, row: dict[str, Any], state: State) -> None:
        mnemonic, opcode = row["mnemonic"], row["opcode"]
        operands, predicate = row["operands"], row["predicate"]
        seen = self._where(predicate, state)
        if opcode in EFFECTS:
            self._effect(opcode, mnemonic, operands, seen)
        elif opcode == "STL":
            state[LOCAL] = state.get(LOCAL, NOTHING) | _of(row, seen)
        writes = [f"R{n}" for n in row["writes"]] + [f"UR{n}" for n in row["uniform_writes"]]
        if opcode == "LDL":
            given = state.get(LOCAL, NOTHING)
        elif opcode in DATA:
            given = NOTHING
        else:
            given = _of(row, seen) | self._constants(operands, mnemonic, opcode)
        for register in writes:
            self._guarded.pop(register, None)
            state[register] = given | state.get(register, NOTHING) if predicate else given
            if predicate:
                self._guarded[register] = predicate, given
        changed = {match[1] for operand in operands if (match := PREDICATE.match(operand))}
        if changed:
            kept = {
                r: (p, v) for r, (p, v) in self._guarded.items() if p.strip("@!") not in changed
            }
            self._guarded = {} if "PR" in changed else kept

    def _where(self, predicate: str | None, state: State) -> State:
        """What registers hold where a predicate is true."""
        known = {r: v for r, (p, v) in self._guarded.items() if p == predicate}
        return {**state, **known} if known else state

    def _constants(self, operands: Sequence[str], mnemonic: str, opcode: str) -> frozenset[int]:
        """The words of parameters that operands name."""
        words: set[int] = set()
        wide = 16 if ".128" in mnemonic else 8 if ".64" in mnemonic else 4
        if opcode in ("IMAD", "UIMAD") and "WIDE" in mnemonic:
            wide = 8
        for operand in operands:
            for register, number in CONSTANT.findall(operand):
                at = int(number or "0", 16) - self._begin
                if register and register not in ("RZ", "URZ"):
                    words.update(self._all(at))
                elif 0 <= at < self._size:
                    words.update(range(at // WORD * WORD, at + wide, WORD))
        return frozenset(words)

    def _effect(self, opcode: str, mnemonic: str, operands: Sequence[str], state: State) -> None:
        addressed = [operand for operand in operands if "[" in operand]
        operand = addressed[-1] if opcode == "LDGSTS" else addressed[0] if addressed else ""
        if opcode.startswith("UBLK"):
            operand = " ".join(addressed)
        what = EFFECTS[opcode]
        inside = (
            operand[operand.find("desc[") :].partition("][")[2] if "desc[" in operand else operand
        )
        for word in _named(inside, state) | self._constants([operand], mnemonic, opcode):
            self._found[word] = self._found.get(word, 0) | what
        if what in (WRITE, ANYTHING):  # a pointer that is stored
            data = " ".join(operand for operand in operands if operand not in addressed)
            if ".64" in mnemonic:
                for word in _named(data, state):
                    self._found[word] = self._found.get(word, 0) | ANYTHING


def _named(text: str, state: State) -> frozenset[int]:
    """What came into the registers that a text names; of a pair the first is named."""
    out: set[int] = set()
    for found in REGISTER.finditer(text):
        kind, number, _ = found.groups()
        if number != "Z":
            out |= state.get(f"{kind}{number}", NOTHING)
    return frozenset(out)


def _of(row: dict[str, Any], state: State) -> frozenset[int]:
    out: set[int] = set()
    for kind, numbers in (("R", row["reads"]), ("UR", row["uniform_reads"])):
        for number in numbers:
            out |= state.get(f"{kind}{number}", NOTHING)
    return frozenset(out)


def _merge(known: State, more: State) -> bool:
    """Adds what came on another way. Whether that is new."""
    changed = False
    for register, words in more.items():
        had = known.get(register, NOTHING)
        if not words <= had:
            known[register] = had | words
            changed = True
    return changed


def _blocks(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[int, list[int]]]:
    """Rows that run one after the other: by the first, the row behind them and what may follow."""
    index_at = {row["pc"]: i for i, row in enumerate(rows)}
    targets = [index_at.get(row["target"]) if row["target"] is not None else None for row in rows]
    firsts = {0, *(i for i in targets if i is not None)}
    firsts |= {i + 1 for i, row in enumerate(rows) if row["opcode"] in (*ENDS, *JUMPS)}
    ordered = sorted(i for i in firsts if i < len(rows))
    out = {}
    for first, behind in zip(ordered, [*ordered[1:], len(rows)], strict=True):
        last = rows[behind - 1]
        follows = [t for t in targets[first:behind] if t is not None]
        always = last["opcode"] in ("BRA", *ENDS) and not _conditional(last)
        if not always and behind < len(rows):
            follows.append(behind)
        if last["opcode"] in ("BRX", "BRXU", "JMX"):
            follows += ordered
        out[first] = behind, list(dict.fromkeys(follows))
    return out


def _conditional(row: dict[str, Any]) -> bool:
    """Whether it may also go on. A branch may have a predicate as an operand."""
    return bool(row["predicate"]) or len(row["operands"]) > 1
