"""Fatbins: code for several architectures, plain or compressed.

The header is declared in fatbinary.h of CUDA toolkits; the rest is undocumented and as nvcc writes
it. A header (magic 0xba55ed50, version, its size, the size of the rest) is followed by entries.
Each has its own header: kind (1 PTX, 2 ELF), version, size of the header, size of the contents with
padding, compressed size, architecture, flags, expanded size. Flags distinguish LZ4 blocks from
Zstandard frames.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = (0xBA55ED50).to_bytes(4, "little")
HEADER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
PTX, ELF = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
EXPANDED = 1 << 28  # bytes of all entries of one image


@dataclass(frozen=True)
class Entry:
    """An entry of a fatbin.

    kind: PTX or ELF. raw: its bytes in the image, None if they are cut off or too large. They are
    compressed as the flags say, or plain.
    """

    kind: int
    architecture: int
    raw: memoryview | None
    flags: int = 0
    expanded: int = 0

    @classmethod
    def plain(cls, kind: int, architecture: int, contents: bytes) -> Entry:
        """Returns an entry for code that is not in a fatbin."""
        return cls(kind, architecture, memoryview(contents))

    @functools.cached_property
    def contents(self) -> bytes | None:
        """The expanded code, None if it cannot be read."""
        if self.raw is None or not self.flags & (LZ4 | ZSTD):
            return None if self.raw is None else bytes(self.raw)
        return (_lz4 if self.flags & LZ4 else _zstd)(self.raw, self.expanded)


def size(image: bytes | memoryview) -> int:
    """Returns the size in bytes of the fatbin that begins here, 0 if none does."""
    if len(image) < HEADER.size:
        return 0
    magic, version, header, rest = HEADER.unpack_from(image)
    whole: int = header + rest
    known = magic == int.from_bytes(MAGIC, "little") and version == 1 and header >= HEADER.size
    return whole if known and whole <= len(image) else 0


def entries(image: bytes) -> Iterator[Entry]:
    """Yields the entries with code. The last one is unreadable if the image is cut off."""
    if len(image) < HEADER.size:
        return
    _, _, at, size = HEADER.unpack_from(image)
    end, left = at + size, EXPANDED
    while at < end:
        if at + ENTRY.size > len(image):
            yield Entry(ELF, 0, None)
            return
        fields = ENTRY.unpack_from(image, at)
        kind, _, header, padded, packed, _, _, _, architecture, _, _, flags, _, expanded = fields
        begin = at + header
        if header < ENTRY.size or begin + padded > len(image):
            yield Entry(ELF, 0, None)
            return
        if kind in (PTX, ELF):
            raw = memoryview(image)[begin : begin + min(packed or padded, padded)]
            more = expanded if flags & (LZ4 | ZSTD) else 0
            yield Entry(kind, architecture, raw if more <= left else None, flags, expanded)
            left -= more if more <= left else 0
        at = begin + padded


def _zstd(raw: memoryview, size: int) -> bytes | None:
    """Expands a Zstandard frame, None if that fails."""
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(raw) as frame:
            expanded: bytes = frame.read(size)
    except zstandard.ZstdError:
        return None
    return expanded if len(expanded) == size else None


def _lz4(raw: memoryview, size: int) -> bytes | None:
    """Expands an LZ4 block, None if it is none of this size.

    A sequence is a token, literals, and a match: a number of bytes at a distance back. Lengths of
    15 in the halves of the token continue in bytes, up to the first that is not 255.
    """
    out, data, at = bytearray(), bytes(raw), 0

    def length(half: int) -> int:
        nonlocal at
        begin = at
        if half == 15:
            while data[at] == 255:
                at += 1
            at += 1
        return half + sum(data[begin:at])

    try:
        while at < len(data):
            token = data[at]
            at += 1
            literals = length(token >> 4)
            if literals > len(data) - at:
                return None
            out += data[at : at + literals]
            at += literals
            if at >= len(data):
                break
            back = data[at] | data[at + 1] << 8
            at += 2
            match = length(token & 15) + 4
            if not 0 < back <= len(out) or len(out) + match > size:
                return None
            if back >= match:
                begin = len(out) - back
                out += out[begin : begin + match]
            else:  # it goes on in what it writes itself
                pattern = bytes(out[-back:])
                out += (pattern * (match // back + 1))[:match]
    except IndexError:
        return None
    return bytes(out) if len(out) == size else None
