"""What a kernel does through the pointers that it is given, as its PTX says.

Values are followed from parameters to addresses, through all instructions that make 64-bit values,
in no order: an address is taken to be of every parameter that may have come into it. A pointer that
is stored, or given to a function, may be used for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ttanalyze.code import elf, fatbin, ptx

# What is done through a parameter.
READ, WRITE, ATOMIC, ANYTHING = 1, 2, 4, 8

PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)(?:\s+\.ptr\b[^,)]*?)?\s+([\w$%]+)\s*"
    r"(?:\[(\d+)\])?\s*(?=[,)]|$)"
)
STATEMENT = re.compile(
    r"((?:[\w$]+\s*:\s*)*)(@!?%?[\w$]+\s+)?([a-z][\w.:]*)\s*([^;{}]*(?:\{[^{};]*\}[^;{}]*)*);"
)
REGISTER = re.compile(r"%[a-zA-Z_][\w$]*")
ADDRESS = re.compile(r"\[\s*([\w$%.]+)\s*(?:\+\s*(-?\d+|0x[0-9a-fA-F]+))?\s*[\],]")
WORD = 8
READS = ("ld", "ldu", "wmma.load", "ldmatrix", "multimem.ld_reduce", "tensormap")
WRITES = ("st", "wmma.store", "stmatrix", "multimem.st")
ATOMICS = ("atom", "red", "multimem.red")
HARMLESS = ("prefetch", "prefetchu", "discard", "applypriority", "isspacep", "mbarrier")
JUMPS = ("bra", "brx", "ret", "exit", "trap", "call")
RESULTLESS = (*JUMPS, *WRITES, "red", "bar", "membar", "fence", "cp", "mbarrier", "multimem.red")
ELSEWHERE = (".shared", ".local", ".const", ".tmem")  # not in memory that parameters name


def pointer_uses(image: bytes, names: Sequence[str]) -> list[dict[int, int] | None]:
    """Of a fatbin or PTX: for each kernel, by its mangled name, what it does through the 64-bit
    word at each offset of its parameters, as a sum of READ, WRITE, ATOMIC and ANYTHING; words that
    it uses as no pointer are missing. None where there is no such kernel in PTX.
    """
    texts: list[bytes] = []
    if image.startswith(fatbin.MAGIC):
        entries = fatbin.entries(image)
        texts = [e.contents for e in entries if e.kind == fatbin.PTX and e.contents is not None]
    elif not image.startswith(elf.MAGIC):
        texts = [image]
    out: list[dict[int, int] | None] = [None] * len(names)
    for text in texts:
        for i, definition in enumerate(ptx.definitions(text, names)):
            if out[i] is None and definition is not None:
                head, _, body = definition.partition("{")
                out[i] = _Kernel(offsets(head), body).uses()
    return out


def offsets(head: str) -> dict[str, tuple[int, int]]:
    """Where parameters begin, and their sizes, by name."""
    out, at = {}, 0
    for align, _, bits, name, count in PARAM.findall(head):
        item = int(bits) // 8
        unit = int(align) if align else item
        at = -(-at // unit) * unit
        size = item * int(count or 1)
        out[name] = at, size
        at += size
    return out


class _Kernel:
    """values: of registers, the words of parameters that may have come into them."""

    def __init__(self, params: dict[str, tuple[int, int]], body: str) -> None:
        self._params = params
        self._code = list(_renamed(_statements(body)))
        self._values: dict[str, set[int]] = {}
        self._found: dict[int, int] = {}

    def uses(self) -> dict[int, int]:
        while self._spread():
            pass
        for opcode, operands in self._code:
            self._use(opcode, operands)
        return self._found

    def _spread(self) -> bool:
        """One pass over all instructions. Whether anything came to a register."""
        more = False
        for opcode, operands in self._code:
            if not operands or not _makes_address(opcode):
                continue
            given = self._given(opcode, operands)
            if not given:
                continue
            for register in REGISTER.findall(operands[0]):
                had = self._values.setdefault(register, set())
                more |= not given <= had
                had |= given
        return more

    def _given(self, opcode: str, operands: Sequence[str]) -> set[int]:
        if opcode.startswith("ld.param"):
            return {word for address in operands[1:] for word in self._words(address, opcode)}
        if opcode.startswith(("ld", "atom")):
            return set()
        return self._of(operands[1:])

    def _of(self, operands: Sequence[str]) -> set[int]:
        out: set[int] = set()
        for operand in operands:
            for register in REGISTER.findall(operand):
                out |= self._values.get(register, set())
        return out

    def _words(self, address: str, opcode: str) -> Iterator[int]:
        """The words of parameters that a load from their space gives."""
        for name, more in ADDRESS.findall(address):
            if name in self._params:
                begin = self._params[name][0] + int(more or "0", 0)
                count = 4 if ".v4" in opcode else 2 if ".v2" in opcode else 1
                yield from ((begin + WORD * i) // WORD * WORD for i in range(count))

    def _use(self, opcode: str, operands: Sequence[str]) -> None:
        if opcode.startswith(HARMLESS) or opcode.startswith("ld.param"):
            return
        self._name_itself(operands)
        text = ", ".join(operands)
        if opcode.startswith("call"):
            return self._note(self._of(operands), ANYTHING)
        if opcode.startswith(WRITES):
            at = text.rfind("]") if opcode.startswith("st.async") else text.find("]")
            self._note(self._of([text[at + 1 :]]), ANYTHING)  # a pointer that is stored
        operands = [f"[{inside}]" for inside in re.findall(r"\[([^\]]*)\]", text)]
        if not operands:
            return None
        kind = opcode.split(".", 1)[0]
        if opcode.startswith("cp"):
            self._copy(opcode, operands)
        elif any(space in opcode for space in ELSEWHERE):
            return None
        elif opcode.startswith(WRITES):
            self._note(self._of(operands), WRITE)
        elif opcode.startswith(ATOMICS):
            self._note(self._of(operands), ATOMIC)
        elif opcode.startswith(READS) or kind in READS:
            self._note(self._of(operands), READ)
        else:
            self._note(self._of(operands), ANYTHING)
        return None

    def _copy(self, opcode: str, operands: Sequence[str]) -> None:
        """cp.async and its like, whose first address is where they write."""
        atomic = ATOMIC if ".reduce" in opcode else WRITE
        if "prefetch" in opcode:
            return
        into_global = opcode.find(".global") < max(opcode.find(".shared"), 0)
        self._note(self._of(operands[:1]), atomic if into_global else 0)
        self._note(self._of(operands[1:]), READ if ".tensor" not in opcode else ANYTHING)

    def _name_itself(self, operands: Sequence[str]) -> None:
        """A parameter whose address is taken."""
        for operand in operands[1:]:
            word = operand.strip().strip("[]").split("+")[0].strip()
            if word in self._params:
                begin, size = self._params[word]
                self._note(set(range(begin // WORD * WORD, begin + size, WORD)), ANYTHING)

    def _note(self, words: set[int], what: int) -> None:
        if what:
            for word in words:
                self._found[word] = self._found.get(word, 0) | what


class _Statement(NamedTuple):
    """begins: whether others may jump here. always: whether it runs whenever it is reached."""

    begins: bool
    always: bool
    opcode: str
    operands: list[str]


def _statements(body: str) -> Iterator[_Statement]:
    for label, predicate, opcode, rest in STATEMENT.findall(body):
        operands = [part for part in split_operands(rest) if part]
        yield _Statement(bool(label), not predicate, opcode, operands)


def _renamed(code: Iterable[_Statement]) -> Iterator[tuple[str, list[str]]]:
    """Opcodes with their operands. A register that is written again before anything jumps has
    another name from there on, which is its own one where something jumps.
    """
    names: dict[str, str] = {}
    count = 0
    for begins, always, opcode, operands in code:
        if begins:
            yield from _ended(names)
        read = [REGISTER.sub(lambda m: names.get(m[0], m[0]), part) for part in operands]
        if operands and always and "[" not in operands[0] and not opcode.startswith(RESULTLESS):
            for register in REGISTER.findall(operands[0]):
                count += 1
                names[register] = f"{register}${count}"
            read[0] = REGISTER.sub(lambda m: names[m[0]], operands[0])
        yield opcode, read
        if opcode.startswith(JUMPS):
            yield from _ended(names)
    yield from _ended(names)


def _ended(names: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    for register, name in names.items():
        yield "mov.b64", [register, name]
    names.clear()


def split_operands(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    out, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        if letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == "," and not depth:
            out.append(text[begin:i].strip())
            begin = i + 1
    return [*out, text[begin:].strip()]


def _makes_address(opcode: str) -> bool:
    """Whether it gives a 64-bit value."""
    types = [part for part in opcode.split(".")[1:] if re.fullmatch(r"[usbf]\d+|pred", part)]
    if opcode.startswith(("setp", "st", "red", "bra", "call")):
        return False
    if opcode.startswith(("mul.wide", "mad.wide")):
        return True
    if opcode.startswith("cvt.") and types:
        return types[0] in ("u64", "s64")
    return bool(types) and types[0] in ("u64", "s64", "b64")
