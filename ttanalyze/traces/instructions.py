"""What each instruction of a traced kernel is: machine code, or PTX where the simulator ran it.

Records name an instruction by its offset in the machine code / 16, or by its line in the PTX text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ttanalyze import options
from ttanalyze.code import elf, fatbin
from ttanalyze.code.ptx_statements import Statement, statements
from ttanalyze.disassembly import categories, tables
from ttanalyze.disassembly.registers import in_order
from ttanalyze.errors import Error
from ttanalyze.format import layout, modules
from ttanalyze.format.kernel_checksums import Checksums, image_of
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output.text import printable
from ttanalyze.util import libraries
from ttanalyze.util.arguments import checked

__all__ = ["Instruction", "Instructions", "instructions_of"]

SIMULATOR = "ttanalyze simulator"  # the name of its devices
CATEGORIES = options.TABLE["instrument_category"].limit.split("|")
SYNC, OTHER = "sync", "other"
CONSTANTS = ("LDC", "ULDC", "LDCU")
ACCESSES = {
    "load": "load",
    "store": "store",
    "copy": "copy",
    "atomic": "atomic",
    "reduction": "atomic",
}
SPACES = {
    **dict.fromkeys(["LDG", "STG", "ATOMG", "REDG", "RED", "LDGSTS"], "global"),
    **dict.fromkeys(["LDS", "STS", "ATOMS", "LDSM", "STSM", "STAS", "REDAS"], "shared"),
    **dict.fromkeys(["LDL", "STL"], "local"),
    **dict.fromkeys(["LD", "ST", "ATOM"], "generic"),
    **dict.fromkeys(CONSTANTS, "const"),
}
NO_RESULT = [
    "bra",
    "brx",
    "ret",
    "exit",
    "trap",
    "bar",
    "barrier",
    "membar",
    "fence",
    "cp",
    "nanosleep",
    "pmevent",
]
SIZED = re.compile(r"^[usbf](8|16|32|64|128)$")
SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
PAIR = re.compile(r"[FB]+(?:16|32)x(\d)")


@dataclass(frozen=True)
class Instruction:
    """An instruction of a kernel.

    Attributes:
        number: As records have it.
        text: The machine instruction, or the statement of PTX.
        opcode: Such as `LDG` or `ld`.
        mnemonic: The opcode with its modifiers, such as `LDG.E.64` or `ld.global.b64`.
        operands: The operands.
        predicate: The guard, such as `@!P0` or `@%p1`, or None.
        category: `memory`, `sync`, `control`, `mma`, `tma` or `other`.
        reads, writes: Names of registers, without the guard.
        recorded: The registers in records of `registers`: the name of each row of 32 values.
        uniform: The same for uniform registers.
        space: `global`, `shared`, `local`, `generic`, `const` or `param`; None without an access.
        access: `load`, `store`, `atomic`, or `copy` from global to shared memory; None without.
        size: Bytes that each lane accesses, 0 if unknown.
        file, line: The source line, or None.
        binary: The machine instruction as 32 hexadecimal digits, "" for PTX.
        statements: How many statements of its line of PTX synchronise or access global or shared
            memory: a record may mean each of them.
    """

    number: int
    text: str
    opcode: str
    mnemonic: str
    operands: tuple[str, ...]
    predicate: str | None
    category: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    recorded: tuple[str, ...]
    uniform: tuple[str, ...] = ()
    space: str | None = None
    access: str | None = None
    size: int = 0
    file: str | None = None
    line: int | None = None
    binary: str = ""
    statements: int = 1

    @property
    def source(self) -> str | None:
        """Returns the source line as FILE:LINE."""
        return None if self.file is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Instructions:
    """The instructions of a kernel.

    Attributes:
        kernel: The mangled name.
        ptx: Whether they are statements of PTX.
        by_number: The instructions, by their numbers.
        note: What is uncertain about them, or None.
    """

    kernel: str
    ptx: bool
    by_number: Mapping[int, Instruction]
    note: str | None = None


@checked
def instructions_of(run: Run, process: Process, function: int) -> Instructions:
    """Returns the instructions of a kernel of a run.

    Args:
        run: The run.
        process: A process of it.
        function: The number of the kernel: `function` of a record of `process.traced`.

    Raises:
        Error: The code of the kernel is not in the run, or cannot be disassembled.

    Example:
        >>> run = tt.open("traced")
        >>> found = tt.instructions.instructions_of(run, run.process(0), 0)
        >>> [one.text for one in found.by_number.values() if one.access == "store"]
        ['st.global.f32 [%rd10], %f3']
    """
    name = process.kernel(function) or f"function {function}"
    if on_simulator(process):
        return Instructions(name, True, _of_ptx(process, function, name))
    found = tables.of_traced(process, function, name)
    checksum = None if found else Checksums().get(process, function)
    if checksum is not None:
        named = tables.of_run(run, f"^{re.escape(name)}$")
        found = next((table for table in named if table.kernel_checksum == checksum), None)
    if found is None:
        raise Error(f"{run.path}: the code of {name} is not in the run")
    rows = (machine_instruction(row) for row in found.instructions)
    by = found.disassembler.partition(",")[0]
    note = f"{name}: the driver compiled its PTX, perhaps to other instructions than {by}"
    compiled = by.startswith("ptxas")
    return Instructions(name, False, {one.number: one for one in rows}, note if compiled else None)


def described(text: str, number: int, line: str | None, machine: bool) -> str:
    """Returns an instruction with its place and its source line.

    Args:
        text: The instruction.
        number: Its number.
        line: FILE:LINE of the source, or None.
        machine: Whether it is machine code.
    """
    place = f"pc {number * 16:#x}" if machine else f"line {number} of the PTX"
    where = f" at {printable(line)}" if line else ""
    return f"{printable(text)} ({place}){where}"


def on_simulator(process: Process) -> bool:
    """Returns whether a process ran on the simulator, whose records have lines of PTX."""
    devices: list[dict[str, Any]] = process.info.get("devices", [])
    return any(device.get("name") == SIMULATOR for device in devices)


# ---- machine code ----


def machine_instruction(row: Mapping[str, Any]) -> Instruction:
    """Returns a row of a table of ttanalyze.disassembly as an Instruction."""
    opcode, mnemonic = row["opcode"], row["mnemonic"]
    operands = tuple(row["operands"])
    general, uniform = in_order(mnemonic, operands)
    kind = categories.category(opcode)
    return Instruction(
        number=row["pc"] // 16,
        text=row["sass"],
        opcode=opcode,
        mnemonic=mnemonic,
        operands=operands,
        predicate=row["predicate"],
        category=category(opcode, machine=True),
        reads=(*_named("R", row["reads"]), *_named("UR", row["uniform_reads"])),
        writes=(*_named("R", row["writes"]), *_named("UR", row["uniform_writes"])),
        recorded=_named("R", general),
        uniform=_named("UR", uniform),
        space=SPACES.get(opcode),
        access=ACCESSES.get(kind) if opcode in SPACES else None,
        size=_machine_size(opcode, mnemonic) if opcode in SPACES else 0,
        file=row["file"],
        line=row["line"],
        binary=row["binary"],
    )


def _named(kind: str, numbers: Any) -> tuple[str, ...]:
    return tuple(f"{kind}{number}" for number in numbers)


def _machine_size(opcode: str, mnemonic: str) -> int:
    if opcode in ("LDSM", "STSM"):
        return 16
    modifiers = mnemonic.split(".")[1:]
    if "ENL2" in modifiers:
        return 32
    for modifier in reversed(modifiers):
        found = PAIR.fullmatch(modifier)
        if found:
            return int(found[1]) * (4 if "32x" in modifier else 2)
        if modifier in ("F64", "U64", "S64"):
            return 8
        if modifier in SIZES:
            return SIZES[modifier]
    return 4


# ---- PTX ----


def _of_ptx(process: Process, function: int, name: str) -> dict[int, Instruction]:
    return _by_line(statements_of(process, function, name))


def statements_of(process: Process, function: int, name: str) -> list[Statement]:
    """Returns the statements of PTX of a kernel and of the functions that it can call, by line.

    Args:
        process: The process.
        function: The number of the kernel.
        name: Its mangled name.

    Raises:
        Error: There is no PTX.
    """
    module = modules.of_kernel(process, function)
    image = image_of(process, int(module["image"])) if module is not None else None
    for text in _texts(image or b""):
        found = statements(text, name)
        if found is not None:
            return found
    why = "its module has none"
    if not image:
        why = modules.MISSING[
            "nothing" if module is None else layout.MISSING[int(module["missing"])]
        ]
    raise Error(f"{process.path}: no PTX of {name}: {why}")


def _texts(image: bytes) -> list[bytes]:
    """Returns the PTX in an image, first what the simulator runs."""
    if image.startswith(elf.MAGIC):
        return []
    if not image.startswith(fatbin.MAGIC):
        return [image]
    found = [e for e in fatbin.entries(image) if e.kind == fatbin.PTX]
    return [entry.contents for entry in found if entry.contents is not None]


def _by_line(found: list[Statement]) -> dict[int, Instruction]:
    """Of several statements on a line, one that stores stands for all, else the most telling."""
    out: dict[int, Instruction] = {}
    for each in found:
        one, before = ptx_instruction(each), out.get(each.line)
        if before is None:
            out[each.line] = one
            continue
        chosen = one if _telling(one) > _telling(before) else before
        count = before.statements + one.statements
        out[each.line] = replace(chosen, text=f"{before.text}; {one.text}", statements=count)
    return out


def _telling(one: Instruction) -> tuple[bool, bool, bool]:
    return one.access in ("store", "atomic"), one.statements > 0, one.category != OTHER


def ptx_instruction(one: Statement) -> Instruction:
    """Returns a statement of PTX as an Instruction."""
    words = one.mnemonic.split(".")
    access, what = _ptx_access(one.mnemonic), category(one.mnemonic, machine=False)
    space = _ptx_space(words) if access else None
    results = _results(words, one.operands)
    return Instruction(
        number=one.line,
        text=one.text,
        opcode=words[0],
        mnemonic=one.mnemonic,
        operands=one.operands,
        predicate=one.predicate,
        category=what,
        reads=_names(one, one.operands[results:]),
        writes=_names(one, one.operands[:results]),
        recorded=tuple(
            row
            for name, kind in one.registers.items()
            if kind != "pred"
            for row in ((name, f"{name}.hi") if kind.endswith("64") else (name,))
        ),
        space=space,
        access=access,
        size=_ptx_size(one) if access else 0,
        file=one.source and one.source[0],
        line=one.source and one.source[1],
        statements=int(what == SYNC or space not in (None, "param", "const", "local")),
    )


@functools.cache
def category(opcode: str, machine: bool) -> str:
    """Returns the category of an instruction, as `instrument --category` names it."""
    return CATEGORIES[int(libraries.toolkit().tt_category(machine, opcode.encode()))]


def _results(words: list[str], operands: tuple[str, ...]) -> int:
    """Returns how many operands are written, from the first on."""
    if not operands or operands[0].startswith("["):
        return 0
    if words[0] == "call":
        return int(operands[0].startswith("("))
    return int(words[0] not in NO_RESULT or words[1:2] == ["red"])


def _names(one: Statement, operands: tuple[str, ...]) -> tuple[str, ...]:
    found = (word for text in operands for word in re.findall(r"[\w$%]+", text))
    return tuple(dict.fromkeys(word for word in found if word in one.registers))


def _ptx_access(mnemonic: str) -> str | None:
    if mnemonic.startswith("cp.async.") and mnemonic.split(".")[2] in ("ca", "cg"):
        return "copy"
    first = mnemonic.split(".")[0]
    loads, stores = ("ld", "ldu", "ldmatrix"), ("st", "stmatrix")
    if first in loads or mnemonic.startswith("wmma.load"):
        return "load"
    if first in stores or mnemonic.startswith("wmma.store"):
        return "store"
    return "atomic" if first in ("atom", "red") else None


def _ptx_space(words: list[str]) -> str:
    if words[0] == "cp":
        return "global"
    for word in words[1:]:
        space = word.partition("::")[0]
        if space in ("global", "shared", "local", "const", "param"):
            return space
    return "generic"


def _ptx_size(one: Statement) -> int:
    words = one.mnemonic.split(".")
    if words[0] == "cp":
        return int(one.operands[2]) if len(one.operands) > 2 and one.operands[2].isdigit() else 0
    if words[0] in ("ldmatrix", "stmatrix"):
        return 16
    if words[0] == "wmma":
        return 0
    types = [word for word in words if SIZED.match(word) or word in ("f16x2", "bf16", "bf16x2")]
    if not types:
        return 0
    number = SIZED.match(types[-1])
    bits = int(number[1]) if number else 16 if types[-1] == "bf16" else 32
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    return bits // 8 * count
