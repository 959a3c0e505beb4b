"""Makes cubins whose kernel records what it does, with one more parameter: for tests alone."""

from __future__ import annotations

import struct

from tests import sass_patcher as sp
from tests.test_sass_patch import Elf, target

PARAMETER = struct.Struct("<5Q2I3Q2I")  # struct tt_trace_param
BANK = 0x210  # where parameters begin in constant bank 0 of sm_90
BRANCH, ALIGN = 0x7947, 128
REGCOUNT, PARAMETERS, PARAM_CBANK, CBANK_SIZE, EXITS = 0x2F, 0x17, 0x0A, 0x19, 0x1C


def attributes(data: bytes) -> list[tuple[int, int, bytes]]:
    """Form, kind and data; of those without data the last two bytes."""
    found, at = [], 0
    while at < len(data):
        form, kind, value = struct.unpack_from("<BBH", data, at)
        size = value if form == 4 else 0
        found.append((form, kind, data[at + 4 : at + 4 + size] if size else data[at + 2 : at + 4]))
        at += 4 + size
    return found


def packed(found: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(
        bytes([form, kind]) + (struct.pack("<H", len(data)) if form == 4 else b"") + data
        for form, kind, data in found
    )


def with_parameter(info: bytes, offset: int, moved: dict[int, int]) -> bytes:
    """The attributes of a kernel with one more parameter; exits are elsewhere."""
    size, out = offset + PARAMETER.size, []
    count = sum(kind == PARAMETERS for _, kind, _ in attributes(info))
    for form, kind, data in attributes(info):
        if kind == PARAMETERS and count:
            new = struct.pack("<IHHI", 0, count, offset, PARAMETER.size << 18 | 0x1F000)
            out.append((4, PARAMETERS, new))
            count = 0
        if kind == CBANK_SIZE:
            data = struct.pack("<H", size)
        elif kind == PARAM_CBANK:
            data = data[:6] + struct.pack("<H", size)
        elif kind == EXITS:
            data = b"".join(
                struct.pack("<I", moved.get(at, at)) for (at,) in struct.iter_unpack("<I", data)
            )
        out.append((form, kind, data))
    return packed(out)


def rebuilt(image: bytes, changes: dict[str, bytes], symbol: str) -> bytes:
    """The file with sections that have grown, whose followers keep their alignment."""
    elf, out, at = Elf(image), bytearray(), 0
    grown = []
    for s in sorted((s for s in elf.sections if s.name in changes), key=lambda s: s.offset):
        new = changes[s.name]
        out += image[at : s.offset] + new
        pad = -(len(new) - s.size) % ALIGN
        out += bytes(pad)
        at = s.offset + s.size
        grown.append((at, len(new) - s.size + pad))
    out += image[at:]

    def shift(offset: int) -> int:
        return sum(by for end, by in grown if end <= offset)

    shoff, phoff = elf.shoff + shift(elf.shoff), elf.phoff + shift(elf.phoff)
    struct.pack_into("<QQ", out, 32, phoff, shoff)
    for i, s in enumerate(elf.sections):
        struct.pack_into("<Q", out, shoff + 64 * i + 24, s.offset + shift(s.offset))
        struct.pack_into("<Q", out, shoff + 64 * i + 32, len(changes.get(s.name, bytes(s.size))))
    for i, (_, _, begin, _, _, size, memory, _) in enumerate(elf.segments):
        more = shift(begin + size) - shift(begin) if size else 0
        struct.pack_into("<Q", out, phoff + 56 * i + 8, begin + shift(begin))
        struct.pack_into("<QQ", out, phoff + 56 * i + 32, size + more, memory + more)
    table = elf.section(".symtab")
    names = elf.contents(elf.section(".strtab"))
    for at in range(table.offset, table.offset + table.size, 24):
        name, kind = struct.unpack_from("<IB", image, at)
        if kind & 15 == 2 and names[name : names.index(b"\0", name)].decode() == symbol:
            new_size = len(changes[f".text.{symbol}"])
            struct.pack_into("<Q", out, at + shift(table.offset) + 16, new_size)
    return bytes(out)


def traced_image(cubin: sp.Cubin, kernel: sp.Kernel, kinds: int) -> tuple[bytes, int]:
    """The image, and where the kernel's additional parameter begins."""
    elf = Elf(cubin.image)
    index = next(i for i, s in enumerate(elf.sections) if s.name == f".text.{kernel.name}")
    own = [i for i, s in enumerate(_symbols(elf)) if s[3] == index and s[1] & 15 == 2]
    info = elf.contents(elf.section(f".nv.info.{kernel.name}"))
    size = next(struct.unpack("<H", d)[0] for _, kind, d in attributes(info) if kind == CBANK_SIZE)
    offset = (size + 7) // 8 * 8
    general = attributes(elf.contents(elf.section(".nv.info")))
    used = next(n for n, r in _registers(general) if n in own), dict(_registers(general))
    new = cubin.trace(kernel, used[1][used[0]], kinds, BANK + offset)
    if not new.code:
        raise ValueError(new.refused[0])
    count = kernel.size // 16
    ends = [
        i
        for i in range(count, len(new.code))
        if new.code[i][0] & 0xFFFF == BRANCH and target(90, 16 * i, *new.code[i]) < 16 * count
    ]
    chosen = (i for i, reason in enumerate(new.refused) if reason is None)
    moved = {16 * i: 16 * (end - 1) for i, end in zip(chosen, ends, strict=True)}
    for i, (form, kind, data) in enumerate(general):
        if kind == REGCOUNT and struct.unpack("<II", data)[0] == used[0]:
            general[i] = form, kind, struct.pack("<II", used[0], new.registers)
    constants = elf.contents(elf.section(f".nv.constant0.{kernel.name}"))
    changes = {
        f".text.{kernel.name}": b"".join(struct.pack("<QQ", *i) for i in new.code),
        f".nv.info.{kernel.name}": with_parameter(info, offset, moved),
        f".nv.constant0.{kernel.name}": constants.ljust(BANK + offset + PARAMETER.size, b"\0"),
        ".nv.info": packed(general),
    }
    return rebuilt(cubin.image, changes, kernel.name), offset


def _symbols(elf: Elf) -> list[tuple[int, int, int, int, int, int]]:
    return list(struct.iter_unpack("<IBBHQQ", elf.contents(elf.section(".symtab"))))


def _registers(general: list[tuple[int, int, bytes]]) -> list[tuple[int, int]]:
    return [struct.unpack("<II", data) for _, kind, data in general if kind == REGCOUNT]
