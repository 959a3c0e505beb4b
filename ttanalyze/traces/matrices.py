"""Products of matrices in an instruction trace of machine code: shapes, formats, descriptors.

The shapes and formats are in the mnemonics, those of tensor memory (UTC…MMA) in a descriptor of the
instruction. Where a factor is in shared memory, a descriptor of 64 bits in uniform registers says
where: records of registers have it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ttanalyze.disassembly.decode import Text, parsed
from ttanalyze.traces.native import AnyTrace
from ttanalyze.traces.reader import EVERY, Kernel, Record, cta

OF_FACTORS = ("address", "leading", "stride", "base_offset", "swizzle")
COLUMNS = (
    *("kernel", "launch", "opcode_id", "pc", "instruction", "m", "n", "k"),
    *("a_type", "b_type", "d_type", "sparse", "a_in", "b_in", "records", "warps", "flops"),
    *(f"{factor}_{name}" for factor in "ab" for name in OF_FACTORS),
)
TEXTS = {"a_type", "b_type", "d_type", "a_in", "b_in", "a_swizzle", "b_swizzle"}
MATRIX = re.compile(r"(UTC)?[HIQOBD]G?MMA$|UTCMXQMMA$")
SHAPES = (re.compile(r"(\d+)x(\d+)x(\d+)$"), re.compile(r"(8|16)(8)(4|8|16|32|64|128|256)$"))
TYPES = re.compile(r"(T?F|BF|[US])\d+$|E\dM\d$")
GROUP_SWIZZLES = {0: "none", 1: "128B", 2: "64B", 3: "32B"}
TENSOR_SWIZZLES = {0: "none", 1: "128B of 32B", 2: "128B", 4: "64B", 6: "32B"}
RESULTS = {0: "F16", 1: "F32", 2: "S32"}
FACTORS = {
    "UTCHMMA": {0: "F16", 1: "BF16", 2: "TF32"},
    "UTCIMMA": {0: "U8", 1: "S8"},
    "UTCQMMA": {0: "E4M3", 1: "E5M2", 3: "E2M3", 4: "E3M2", 5: "E2M1"},
}
DEPTHS = {"TF32": 8, "F16": 16, "BF16": 16}  # else 32
NAME = re.compile(r"(gdesc|tmem|idesc)\[UR(\d+)\]")


class _Form(NamedTuple):
    """What is known of an instruction. a, b, shape: first registers of its descriptors."""

    size: tuple[int | None, ...]
    types: tuple[str | None, ...]
    places: list[str]
    a: int | None = None
    b: int | None = None
    shape: int | None = None
    per_warp: float = 1


class _Key(NamedTuple):
    kernel: int
    launch: int | None
    instruction: int | None
    kind: str
    a: int | None
    b: int | None
    shape: int | None


def matrices(trace: AnyTrace) -> Iterator[dict[str, Any]]:
    """Yields a row per launch, instruction and descriptors, in the order of the first record.

    `flops` counts a multiplication and an addition for each product. A record of a warp group's
    instruction is that of one of its four warps.
    """
    found: dict[_Key, tuple[Record, Text]] = {}
    counts, warps = Counter[_Key](), dict[_Key, set[tuple[int, ...]]]()
    for record in trace.whole_records():
        if isinstance(record, Kernel) or record.members["type"] not in EVERY:
            continue
        sass = record.sass()
        text = parsed(sass.rstrip("; ")) if sass else None
        if text is None or not MATRIX.match(text.opcode):
            continue
        kernel, members = record.kernel, record.members
        launch, number = members.get("grid_launch_id"), members.get("opcode_id")
        place = (kernel.line if kernel else 0, launch, number, members["type"])
        key = _Key(*place, *_descriptors(record, _form(text)))
        found.setdefault(key, (record, text))
        counts[key] += 1
        warps.setdefault(key, set()).add((*cta(record), members["warp"]))
    told = {key[:3] for key in found if key.kind == "reg_trace"}
    for key, (record, text) in found.items():
        if key.kind == "reg_trace" or key[:3] not in told:  # else each execution has two records
            yield _row(key, record, text, counts[key], len(warps[key]))


def _row(key: _Key, record: Record, text: Text, count: int, warps: int) -> dict[str, Any]:
    form = _form(text)
    told = (form.size, form.types) if key.shape is None else _told(text.opcode, key.shape)
    size, types = told
    known = [each for each in size if each is not None]
    flops = 2 * math.prod(known) * count * form.per_warp if len(known) == 3 else None
    tensor = text.opcode.startswith("UTC")
    return {
        "kernel": record.kernel and record.kernel.name,
        "launch": key.launch,
        "opcode_id": key.instruction,
        "pc": record.offset(),
        "instruction": text.mnemonic,
        **dict(zip("mnk", size, strict=True)),
        **dict(zip(("a_type", "b_type", "d_type"), types, strict=True)),
        "sparse": "SP" in text.mnemonic.split("."),
        **dict(zip(("a_in", "b_in"), form.places, strict=True)),
        "records": count,
        "warps": warps,
        "flops": None if flops is None else int(flops),
        **_decoded("a", key.a, tensor),
        **_decoded("b", key.b, tensor),
    }


def _decoded(factor: str, descriptor: int | None, tensor: bool) -> dict[str, Any]:
    """Returns what a descriptor of shared memory says: offsets in bytes."""
    if descriptor is None:
        return dict.fromkeys(f"{factor}_{name}" for name in OF_FACTORS)
    swizzles, at = (TENSOR_SWIZZLES, 61) if tensor else (GROUP_SWIZZLES, 62)
    values = (
        *((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32)),
        descriptor >> 49 & 7,
        swizzles.get(descriptor >> at, f"unknown: {descriptor >> at}"),
    )
    return {f"{factor}_{name}": value for name, value in zip(OF_FACTORS, values, strict=True)}


def _form(text: Text) -> _Form:
    opcode, *modifiers = text.mnemonic.split(".")
    named = [NAME.match(operand) for operand in text.operands]
    told = [(found[1], int(found[2])) for found in named if found]
    if opcode.startswith("UTC"):
        factors = [(what, at if what == "gdesc" else None) for what, at in told[:2]]
        places = ["shared memory" if what == "gdesc" else "tensor memory" for what, _ in factors]
        (a, b), shape = [at for _, at in factors], [at for what, at in told if what == "idesc"]
        return _Form((None,) * 3, (None,) * 3, places, a, b, *shape[:1])
    size: tuple[int | None, ...] = (None, None, None)
    for modifier in modifiers:
        if found := next(filter(None, (shape.match(modifier) for shape in SHAPES)), None):
            size = tuple(int(number) for number in found.groups())
    formats = _types(opcode, [modifier for modifier in modifiers if TYPES.match(modifier)])
    if not opcode.endswith("GMMA"):
        return _Form(size, formats, ["registers"] * 2)
    both = text.operands[1:2] != () and text.operands[1].startswith("gdesc")
    at = told[0][1] if told else 0
    places = ["shared memory" if both else "registers", "shared memory"]
    return _Form(size, formats, places, at if both else None, at + 2, None, 1 / 4)


def _types(opcode: str, told: list[str]) -> tuple[str, str, str]:
    """Returns the formats of both factors and of the result, which mnemonics name first."""
    if opcode[0] in "BDI":
        default, result = {"B": ("B1", "S32"), "D": ("F64", "F64"), "I": ("S8", "S32")}[opcode[0]]
        factors = [name for name in told if name != result] or [default]
    else:
        result = told[0] if told else "F32"
        factors = told[1:] or ["F16"]
    return factors[0], factors[-1], result


def _told(opcode: str, shape: int) -> tuple[tuple[int | None, ...], tuple[str | None, ...]]:
    """Returns size and formats in the descriptor of an instruction on tensor memory."""
    formats = FACTORS.get(opcode, {})
    a, b = formats.get(shape >> 7 & 7), formats.get(shape >> 10 & 7)
    size = ((shape >> 24 & 31) << 4, (shape >> 17 & 63) << 3, DEPTHS.get(a, 32) if a else None)
    return size, (a, b, RESULTS.get(shape >> 4 & 3))


def _descriptors(record: Record, form: _Form) -> tuple[int | None, int | None, int | None]:
    """Returns the descriptors of both factors and of the instruction, as far as a record has."""
    members: Mapping[str, Any] = record.members
    values = members.get("uregs") or []
    names = members.get("uregs_indices") or record.instruction().get("uregs") or []
    registers = dict(zip(names, values, strict=False))

    def pair(at: int | None) -> int | None:
        if at is None or at not in registers or at + 1 not in registers:
            return None
        return int(registers[at]) | int(registers[at + 1]) << 32

    return pair(form.a), pair(form.b), registers.get(form.shape)
