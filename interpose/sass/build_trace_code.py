#!/usr/bin/env python3
"""Makes trace_templates.h from trace_code.cu, or checks that it is up to date.

    build_trace_code.py          write it
    build_trace_code.py --check  exit 1 if it is stale

nvcc compiles the kernels, and nvdisasm says where their instructions have registers: each field is
changed alone to see what it does to the text, then all are moved at once, and the text has to be
the one that is expected.
"""

from __future__ import annotations

import argparse
import re
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent.parent))

from ttanalyze.disassembly import tools  # noqa: E402

SOURCE, HEADER = FOLDER / "trace_code.cu", FOLDER / "trace_templates.h"
ARCHITECTURE, PARAMETERS = 90, 0x210
KERNELS = {"opcode": "TT_TRACE_OPCODE", "addresses": "TT_TRACE_ADDRESSES"}
KERNELS |= {"count_blocks": "TT_TRACE_COUNT"}
KERNELS |= {"registers_begin": "TT_TRACE_REGISTERS", "tma_begin": "TT_TRACE_TMA"}
KERNELS |= {"values_begin": "TT_TRACE_VALUES", "values_end": "VALUES_END"}
KERNELS |= {"beat_enter": "BEAT_ENTER", "beat_enter_flat": "BEAT_ENTER_FLAT"}
# trace_parts.h's order
INPUTS = [f"SR_{which}MASK" for which in ("EQ", "LE", "LT", "GE", "GT")]
INPUTS += [f"SR_PM{i}" for i in range(2)]
OUTPUT = len(INPUTS) + 1
NOP = 0x000FC000000000000000000000007918
FIELDS = (16, 24, 32, 64)  # bits at which an operand may begin
LINE = re.compile(r"/\*[0-9a-f]{4}\*/\s+(.*?)\s*;\s+/\* 0x([0-9a-f]{16}) \*/")
SECOND = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/")
REGISTER = re.compile(r"\b(UR|R|B)(\d+)\b")
CONSTANT = re.compile(r"(c\[0x0\]\[(?:R\d+\+)?)0x([0-9a-f]+)\]")
DESCRIPTOR = re.compile(r"ULDC\.64 UR(\d+), c\[0x0\]\[0x208\]")
FIRST_UNIFORM = 4  # of nvcc
NO_SCOREBOARD, READS = 7 << 113, 5 << 113  # of what reads its operands late
STALL, SETTLED = 0x1F << 105, 13 << 105  # with the yield flag; longer than any fixed latency
BY = {"R": 64, "UR": 16, "B": 8}  # where the check moves registers to
NOTHING_THERE = re.compile(r"(?:@!?P\d )?(?:BRA\.DIV .*|WARPSYNC\.ALL|YIELD)$")


@dataclass
class Line:
    """An instruction: its text, its bits, and what has to be changed where it is used."""

    text: str
    bits: int
    registers: int = 0  # of FIELDS, by bit
    uniforms: int = 0
    barrier: bool = False
    constant: bool = False
    exits: bool = False
    gone: bool = False
    source: int = 0  # of INPUTS, from 1 on, or OUTPUT


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def parse(text: str) -> list[tuple[str, int]]:
    found, first = [], None
    for row in text.splitlines():
        if match := LINE.search(row):
            first = match
        elif first and (match := SECOND.match(row)):
            found.append((first[1], int(first[2], 16) | int(match[1], 16) << 64))
            first = None
    return found


def disassemble(codes: list[int], folder: Path) -> list[str]:
    """Their texts; an illegal one has none."""
    raw, codes, illegal = folder / "raw", list(codes), set[int]()
    while True:
        raw.write_bytes(b"".join(code.to_bytes(16, "little") for code in codes))
        command = [str(NVDISASM), "-b", f"SM{ARCHITECTURE}", "-hex", str(raw)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.returncode:
            texts = [text for text, _ in parse(done.stdout)]
            assert len(texts) == len(codes), (len(texts), len(codes))
            return ["" if i in illegal else text for i, text in enumerate(texts)]
        if not (match := re.search(r"at address 0x([0-9a-f]+)", done.stderr)):
            raise SystemExit(done.stderr.strip())
        illegal.add(at := int(match[1], 16) // 16)
        codes[at] = NOP


def names(text: str) -> list[str]:
    return [match[0] for match in REGISTER.finditer(text)]


def may_be_register(line: Line, field: int) -> bool:
    numbers = {int(match[2]) for match in REGISTER.finditer(line.text)}
    return bool(numbers & {line.bits >> field & mask for mask in (0xFF, 0x3F, 0xF)})


def kept_until_read(line: Line) -> int:
    """Accesses to memory read their registers late, and what follows waits for a scoreboard.

    nvcc leaves it out where a kernel does not write these registers again.
    """
    access = re.search(r"\b(?:ST|LD|RED|ATOM)G?\b", line.text)
    return (
        line.bits & ~NO_SCOREBOARD | READS
        if access and not NO_SCOREBOARD & ~line.bits
        else line.bits
    )


def analyze(lines: list[Line], folder: Path) -> None:
    """Finds the fields of registers."""
    kept = [line for line in lines if not line.gone]
    tries = [(line, f) for line in kept for f in FIELDS if may_be_register(line, f)]
    olds = disassemble([line.bits for line in kept], folder)
    before = {id(line): text for line, text in zip(kept, olds, strict=True)}
    texts = disassemble([line.bits ^ 2 << field for line, field in tries], folder)
    for (line, field), text in zip(tries, texts, strict=True):
        old, new = names(before[id(line)]), names(text)
        changed = {a.rstrip("0123456789") for a, b in zip(old, new, strict=False) if a != b}
        if len(old) != len(new) or len(changed) != 1:
            continue
        kind, bit = changed.pop(), 1 << FIELDS.index(field)
        line.registers |= bit if kind == "R" else 0
        line.uniforms |= bit if kind == "UR" else 0
        line.barrier |= kind == "B"
    for line in lines:
        offsets = [int(match[2], 16) for match in CONSTANT.finditer(line.text)]
        line.constant = not line.gone and any(offset >= PARAMETERS for offset in offsets)


def moved(line: Line) -> int:
    """As trace_code.c does it."""
    bits = line.bits
    for i, field in enumerate(FIELDS):
        if line.registers >> i & 1:
            bits += BY["R"] << field
        if line.uniforms >> i & 1:
            bits += BY["UR"] << field
    return (
        bits + (BY["B"] << 16 if line.barrier else 0) + (0x100 // 4 << 40 if line.constant else 0)
    )


def check(lines: list[Line], folder: Path) -> None:
    def register(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + BY[match[1]]}"

    def constant(match: re.Match[str]) -> str:
        offset = int(match[2], 16)
        return f"{match[1]}{offset + (0x100 if offset >= PARAMETERS else 0):#x}]"

    kept = [line for line in lines if not line.gone and not line.exits and not line.source]
    before = disassemble([line.bits for line in kept], folder)
    after = disassemble([moved(line) for line in kept], folder)
    branch = re.compile(r"0x[0-9a-f]+$")
    for line, old, new in zip(kept, before, after, strict=True):
        expected = CONSTANT.sub(constant, REGISTER.sub(register, old))
        is_branch = re.search(r"\b(BRA|BSSY)\b", old)
        if (branch.sub("", new) != branch.sub("", expected)) if is_branch else new != expected:
            raise SystemExit(f"{line.text}: moved it is {new}, not {expected}")
        if re.search(r"\bUP\d|\bR1\b|WARPSYNC|CALL|RET|BMOV|\bWARPSYNC|SR_PM", old):
            raise SystemExit(f"{line.text}: cannot be used in a kernel")


def kernel(name: str, cubin: Path, folder: Path) -> list[Line]:
    text = run(NVDISASM, "-c", "-hex", cubin).split(f"\t.section\t.text.tt_{name},", 1)[1]
    lines = [Line(*pair) for pair in parse(text.split("\t.section", 1)[0])]
    lines = lines[1:]  # reads the stack pointer
    while not re.search(r"\bEXIT\b", lines[-1].text):
        lines.pop()  # of branches that need converged warps: BRA.DIV
    for line in lines:
        line.bits = kept_until_read(line)
        line.gone = bool(NOTHING_THERE.match(line.text))
        line.exits = bool(re.search(r"\bEXIT\b", line.text))
        if match := re.search(r"\b(?:S2R|CS2R\.32) R\d+, (SR_\w+)$", line.text):
            line.source = INPUTS.index(match[1]) + 1 if match[1] in INPUTS else 0
        if re.search(r"\bNANOSLEEP\b", line.text):
            line.source = OUTPUT
    for line, following in pairwise(lines):
        # a move reads its operand earlier than NANOSLEEP does
        if following.source == OUTPUT and not line.source and not line.barrier:
            line.bits = line.bits & ~STALL | SETTLED
    for at, line in enumerate(lines):  # what leaves must not be waited for
        if re.match(r"BSSY", line.text):
            end = at + 1 + (line.bits >> 32 & 0xFFFFFFFF) // 16
            if any(other.exits for other in lines[at:end]):
                raise SystemExit(f"{name}: it may end inside of {line.text}")
    analyze(lines, folder)
    put_descriptor_first(lines, folder)
    check(lines, folder)
    return lines


def put_descriptor_first(lines: list[Line], folder: Path) -> None:
    """Gives the descriptor of memory the first two uniform registers, as trace_code.c expects."""
    found = {int(match[1]) for line in lines if (match := DESCRIPTOR.search(line.text))}
    if len(found) != 1 or (of := found.pop()) == FIRST_UNIFORM:
        return
    others = sorted({*numbers(lines, "UR")} - {of, of + 1})
    number = {of: FIRST_UNIFORM, of + 1: FIRST_UNIFORM + 1}
    number |= {n: FIRST_UNIFORM + 2 + i for i, n in enumerate(others)}
    before = [line.text for line in lines]
    for line in lines:
        for i, field in enumerate(FIELDS):
            if line.uniforms >> i & 1:
                n = line.bits >> field & 0x3F
                line.bits += (number[n] - n) << field
    for line, old, new in zip(
        lines, before, disassemble([line.bits for line in lines], folder), strict=True
    ):
        line.text = re.sub(r"\bUR(\d+)", lambda m: f"UR{number[int(m[1])]}", old)
        if not line.gone and not line.exits and "`" not in old and new != line.text:
            raise SystemExit(f"{old}: renumbered it is {new}")


def numbers(lines: list[Line], kind: str) -> list[int]:
    """Those of registers, and of barriers."""
    return [
        int(m[2])
        for line in lines
        if not line.gone
        for m in REGISTER.finditer(line.text)
        if m[1] == kind
    ]


def highest(lines: list[Line], kind: str) -> int:
    """One more than the highest number, and of registers that of what is wider than one."""
    return max(numbers(lines, kind), default=-1) + (2 if kind == "R" else 1)


def flags(line: Line) -> str:
    bits = line.registers | line.uniforms << 4 | line.barrier << 8 | line.constant << 9
    return f"{bits | line.exits << 10 | line.gone << 11 | line.source << 12:#06x}"


def render(folder: Path) -> str:
    cubin = folder / "code.cubin"
    run(
        NVCC,
        f"-arch=sm_{ARCHITECTURE}",
        "-cubin",
        "-O3",
        *("-Xptxas", "-O1"),  # with fewer uniform registers at once
        "-maxrregcount=24",
        f"-I{FOLDER.parent / 'include'}",
        "-o",
        cubin,
        SOURCE,
    )
    out = [
        "/* Made by build_trace_code.py from trace_code.cu: bits, and what of them is changed. */",
        "/* clang-format off */",
    ]
    table = []
    for name, index in KERNELS.items():
        lines = kernel(name, cubin, folder)
        out.append(f"static const struct piece {name}_{ARCHITECTURE}[] = {{")
        for line in lines:
            low, high = struct.unpack("<QQ", line.bits.to_bytes(16, "little"))
            out.append(f"\t{{{{0x{low:016x}, 0x{high:016x}}}, {flags(line)}}},")
        out.append("};")
        used = (highest(lines, kind) for kind in ("R", "UR", "B"))
        table.append(
            f"\t[{index}] = {{{name}_{ARCHITECTURE}, {len(lines)}, "
            + ", ".join(map(str, used))
            + "},"
        )
    return "\n".join(
        [*out, f"static const struct template templates_{ARCHITECTURE}[] = {{", *table, "};", ""]
    )


def main() -> int:
    """Exit status 1: --check found a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = render(Path(folder))
    if not asked.check:
        HEADER.write_text(text)
    return asked.check and HEADER.read_text() != text


NVDISASM, NVCC = tools.needed("nvdisasm")[0], "nvcc"

if __name__ == "__main__":
    sys.exit(main())
