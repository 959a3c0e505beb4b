"""64-bit little-endian ELF files: sections, segments and symbols.

The layout follows the System V ABI. Files may be hostile: an offset that points outside of one
raises UnreadableError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ttanalyze.format.layout import Array

MAGIC = b"\x7fELF\x02\x01"
HEADER = np.dtype("V8, u1, V7, <u2, <u2, <u4, <u8, <u8, <u8, <u4, <u2, <u2, <u2, <u2, <u2, <u2")
HEADER.names = (
    *("magic", "abi", "padding", "type", "machine", "version", "entry", "phoff", "shoff", "flags"),
    *("ehsize", "phentsize", "phnum", "shentsize", "shnum", "shstrndx"),
)
SEGMENT = np.dtype("<u4, <u4, <u8, <u8, <u8, <u8, <u8, <u8")
SEGMENT.names = ("type", "flags", "offset", "addr", "physical", "size", "memory", "align")
SECTION = np.dtype("<u4, <u4, <u8, <u8, <u8, <u8, <u4, <u4, <u8, <u8")
SECTION.names = ("name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "each")
SYMBOL = np.dtype("<u4, u1, u1, <u2, <u8, <u8")
SYMBOL.names = ("name", "info", "other", "section", "value", "size")
LONGEST = 1 << 16  # bytes of a name


class UnreadableError(ValueError):
    """The file is no such file, or is damaged."""


def string(strings: bytes, at: int) -> bytes:
    """Returns the text at an offset of a string table, b"" if it has no end."""
    return strings[at : max(at, strings.find(b"\0", at, at + LONGEST))]


class Elf:
    """An ELF file. Raises UnreadableError if the image is none."""

    def __init__(self, image: bytes) -> None:
        self._image = image
        self.header = self._records(HEADER, 0, 1)[0]
        if not image.startswith(MAGIC) or self.header["shentsize"] != SECTION.itemsize:
            raise UnreadableError
        begin, count = int(self.header["shoff"]), int(self.header["shnum"])
        if begin and not count:  # more than its member can hold
            count = int(self._records(SECTION, begin, 1)[0]["size"])
        self.sections = self._records(SECTION, begin, count)
        if int(self.header["shstrndx"]) >= count:
            raise UnreadableError
        self.names = bytes(self.bytes_of(int(self.header["shstrndx"])))

    def _records(self, kind: np.dtype[Any], at: int, count: int) -> Array:
        if at > len(self._image) or count > (len(self._image) - at) // kind.itemsize:
            raise UnreadableError
        return np.frombuffer(self._image, kind, count, at)

    def segments(self) -> Array:
        return self._records(SEGMENT, int(self.header["phoff"]), int(self.header["phnum"]))

    def bytes_of(self, section: int) -> memoryview:
        begin, size = (int(self.sections[section][member]) for member in ("offset", "size"))
        if begin > len(self._image) or size > len(self._image) - begin:
            raise UnreadableError
        return memoryview(self._image)[begin : begin + size]

    def contents(self, name: bytes) -> bytes:
        """Returns the contents of the section with a name, b"" if there is none."""
        for section in self.named(name):
            return bytes(self.bytes_of(section))
        return b""

    def whole(self, section: int, kind: np.dtype[Any]) -> Array:
        """Returns the whole records of a section."""
        contents = self.bytes_of(section)
        return np.frombuffer(contents[: len(contents) // kind.itemsize * kind.itemsize], kind)

    def link(self, section: int) -> int:
        """Returns the section that sh_link of a section names."""
        link = int(self.sections[section]["link"])
        if link >= len(self.sections):
            raise UnreadableError
        return link

    def symbols(self, section: int) -> tuple[Array, bytes]:
        """Returns the symbols of a section, and the string table with their names."""
        return self.whole(section, SYMBOL), bytes(self.bytes_of(self.link(section)))

    def name(self, section: int) -> bytes:
        return string(self.names, int(self.sections[section]["name"]))

    def named(self, name: bytes) -> Iterator[int]:
        """Returns the sections with a name."""
        for section, at in enumerate(self.sections["name"].tolist()):
            if self.names.startswith(name + b"\0", at):
                yield section
