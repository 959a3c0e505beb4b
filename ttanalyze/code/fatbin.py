"""What is in a fatbin: code for several architectures, plain or compressed.

The layout has no public description; it is as in fatbinary.h of CUDA toolkits, where the header
is, and as nvcc writes the rest: a header (magic 0xba55ed50, version, its size, the size of what
follows), then entries, each with a header of its own: kind (1 PTX, 2 ELF), version, size of the
header, size of the contents with padding, size of compressed contents, …, architecture, …, flags,
…, size when expanded. Flags tell LZ4 blocks from Zstandard frames.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

MAGIC = (0xBA55ED50).to_bytes(4, "little")
HEADER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
PTX, ELF = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
EXPANDED = 1 << 28  # bytes of all entries of one image


@dataclass(frozen=True)
class Entry:
    """kind: PTX or ELF. raw: as it is in the image, None where that breaks off or would be too
    large; packed by the method that flags name, or plain.
    """

    kind: int
    architecture: int
    raw: memoryview | None
    flags: int = 0
    expanded: int = 0

    @classmethod
    def plain(cls, kind: int, architecture: int, contents: bytes) -> Entry:
        """One that is not in a fatbin."""
        return cls(kind, architecture, memoryview(contents))

    @functools.cached_property
    def contents(self) -> bytes | None:
        """What is in it, expanded; None where that can't be read."""
        if self.raw is None or not self.flags & (LZ4 | ZSTD):
            return None if self.raw is None else bytes(self.raw)
        return (_lz4 if self.flags & LZ4 else _zstd)(self.raw, self.expanded)


def size(image: bytes | memoryview) -> int:
    """Bytes of the fatbin that begins here; 0 where none does."""
    if len(image) < HEADER.size:
        return 0
    magic, version, header, rest = HEADER.unpack_from(image)
    whole: int = header + rest
    known = magic == int.from_bytes(MAGIC, "little") and version == 1 and header >= HEADER.size
    return whole if known and whole <= len(image) else 0


def entries(image: bytes) -> Iterator[Entry]:
    """The entries with code; the last one can't be read where the image breaks off."""
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


@functools.cache
def _zstandard() -> ModuleType | None:
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def missing() -> str | None:
    """Returns a message for users if an image could not be decompressed on this machine, else
    None.
    """
    if not _zstandard.cache_info().currsize or _zstandard():
        return None
    return "kernels of compressed modules have no checksum; for it: pip install 'ttanalyze[zstd]'"


def _zstd(raw: memoryview, size: int) -> bytes | None:
    """Expands a Zstandard frame; None where that can't be done."""
    zstandard = _zstandard()
    if zstandard is None:
        return None
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw) as frame:
            expanded: bytes = frame.read(size)
    except zstandard.ZstdError:
        return None
    return expanded if len(expanded) == size else None


def _lz4(raw: memoryview, size: int) -> bytes | None:
    """Expands a block of the LZ4 format; None where it is not one of so many bytes.

    A sequence is a token, literals, and a match: so many bytes from so far back. Lengths of 15 in
    the token's halves go on in bytes, up to the first that is not 255.
    """
    out, data, at = bytearray(), bytes(raw), 0
    try:
        while at < len(data):
            token = data[at]
            at += 1
            literals = token >> 4
            if literals == 15:
                while data[at] == 255:
                    literals += 255
                    at += 1
                literals += data[at]
                at += 1
            if literals > len(data) - at:
                return None
            out += data[at : at + literals]
            at += literals
            if at >= len(data):
                break
            back = data[at] | data[at + 1] << 8
            at += 2
            match = token & 15
            if match == 15:
                while data[at] == 255:
                    match += 255
                    at += 1
                match += data[at]
                at += 1
            match += 4
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
