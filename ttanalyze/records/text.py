"""Records of text traces (`.log`), as CUTracer writes them with CUTRACER_TRACE_FORMAT=text.

The layout is that of TraceWriter::write_text_format at commit 8a9e11bf (2026-04-30, after version
0.2.1). A record is a line that begins with "CTX", lines with its values, and an empty line:

    CTX 0x5a46d0 - CTA 0,0,0 - warp 0 - LDC R1, c[0x0][0x28] ;:
      * Reg0_T00: 0x00000000 Reg0_T01: … Reg0_T31: 0x00000000
      * UR: UR0: 0x00000000 UR1: 0x00000000

    CTX 0x5a46d0 - kernel_launch_id 0 - CTA 0,0,0 - warp 0 - PC 16 - LDG.E R2, [R2.64] ;:
      Memory Addresses:
      * T00: 0x00007f0000000000 T01: … T03: 0x00007f000000000c
        T04: 0x00007f0000000010

    CTX 0x5a46d0 - kernel_launch_id 0 - CTA 0,0,0 - warp 0 - PC 32 - EXIT ;

Records get the members of records in JSON, as far as the text has them. A lane without an address
has the address 0, as in JSON.
"""

from __future__ import annotations

import re
from typing import Any

FIRST = b"CTX "
MOST_LINES = 256  # of a record; CUTracer writes 18 at most
LANES = 32
HEADER = re.compile(
    r"CTX (0x[0-9a-fA-F]{1,16}|\(nil\)) - (?:kernel_launch_id (\d{1,19}) - )?"
    r"CTA (\d{1,10}),(\d{1,10}),(\d{1,10}) - warp (\d{1,10}) - (?:PC (\d{1,18}) - )?(.*?)(:?)"
)
REGISTER = re.compile(r"  \* (?:Reg\d{1,3}_T\d\d: 0x[0-9a-fA-F]{8} ?)+")
VALUE = re.compile(r"Reg(\d+)_T(\d\d): 0x([0-9a-fA-F]{8})")
UNIFORM = re.compile(r"  \* UR: (?:UR\d{1,3}: 0x[0-9a-fA-F]{8} ?)+")
ADDRESSES = re.compile(r"  (?:\*|  )(?: ?T\d\d: 0x[0-9a-fA-F]{16})* ?")
ADDRESS = re.compile(r"T(\d\d): 0x([0-9a-fA-F]{16})")


class TextError(Exception):
    """A line does not follow the layout. line: its number."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def parsed(lines: list[tuple[int, bytes]]) -> dict[str, Any]:
    """Returns the record of its lines, with their numbers. Raises TextError."""
    number, first = lines[0]
    found = HEADER.fullmatch(_decoded(number, first))
    if found is None:
        raise TextError(number, "expected CTX, CTA, warp and an instruction")
    context, launch, x, y, z, warp, pc, sass, colon = found.groups()
    if (launch is None) != (pc is None) or (launch is None and not colon):
        raise TextError(number, "expected CTX, CTA, warp and an instruction")
    record: dict[str, Any] = {
        "type": "opcode_only",
        "ctx": "0x0" if context == "(nil)" else context,
        "cta": [int(x), int(y), int(z)],
        "warp": int(warp),
        "sass": sass,
    }
    if max(record["cta"]) >= 1 << 32:
        raise TextError(number, "CTA: expected three numbers of 32 bits")
    if launch is not None:
        record |= {"grid_launch_id": int(launch), "pc": hex(int(pc))}
    rest = [(n, _decoded(n, line)) for n, line in lines[1:]]
    if not colon:
        if rest:
            raise TextError(rest[0][0], "expected an empty line")
        return record
    if launch is None:
        return record | {"type": "reg_trace"} | _registers(rest)
    return record | {"type": "mem_addr_trace", "addrs": _addresses(number, rest)}


def _decoded(number: int, line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise TextError(number, "not UTF-8") from None


def _registers(lines: list[tuple[int, str]]) -> dict[str, Any]:
    made: dict[str, Any] = {"regs": []}
    for number, line in lines:
        if UNIFORM.fullmatch(line) and "uregs" not in made:
            made["uregs"] = [int(word, 16) for word in re.findall(r": 0x(\w{8})", line)]
            continue
        values = VALUE.findall(line)
        order = [(len(made["regs"]), lane) for lane in range(LANES)]
        if not REGISTER.fullmatch(line) or [(int(r), int(t)) for r, t, _ in values] != order:
            raise TextError(number, f"expected the {LANES} values of Reg{len(made['regs'])}")
        made["regs"].append([int(word, 16) for _, _, word in values])
    return made


def _addresses(number: int, lines: list[tuple[int, str]]) -> list[int]:
    if not lines or lines[0][1] != "  Memory Addresses:":
        raise TextError(lines[0][0] if lines else number, "expected Memory Addresses:")
    made = [0] * LANES
    last = -1
    for number, line in lines[1:]:
        if not ADDRESSES.fullmatch(line):
            raise TextError(number, "expected addresses of lanes")
        for lane, word in ADDRESS.findall(line):
            if not last < int(lane) < LANES:
                raise TextError(number, f"T{lane}: expected a lane after T{max(last, 0):02}")
            last = int(lane)
            made[last] = int(word, 16)
    return made
