"""Source lines of instructions: the line-number programs of .debug_line, DWARF 2 to 5.

Compilers of GPU code add an extended opcode: the rows behind it belong to a function that was
inlined at the place of another row.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ttanalyze.code import elf, fatbin
from ttanalyze.code.cubin import Cubin

STRING, LINE_STRING, UDATA, DATA16, BLOCK, STRP = 0x08, 0x1F, 0x0F, 0x1E, 0x09, 0x0E
DATA1, DATA2, DATA4, DATA8 = 0x0B, 0x05, 0x06, 0x07
PATH, DIRECTORY = 1, 2
END, SET_ADDRESS, INLINED = 1, 2, 0x90
DEEPEST = 64  # calls inlined into each other
LAST_LINE = 1 << 31


class DamagedError(Exception):
    """The bytes are no line-number program."""


class SourceLine(NamedTuple):
    """A source line. inlined_at: the calls that were inlined, the innermost first, as FILE:LINE."""

    file: str
    line: int
    inlined_at: tuple[str, ...]


@dataclass
class Lines:
    """The source lines of the instructions of a section."""

    addresses: list[int] = field(default_factory=list)
    source_lines: list[SourceLine | None] = field(default_factory=list)

    def line(self, address: int) -> SourceLine | None:
        i = bisect_right(self.addresses, address) - 1
        return self.source_lines[i] if i >= 0 else None

    def first(self) -> str | None:
        """Returns the first line of the function, as FILE:LINE, and not one that was inlined."""
        for line in self.source_lines:
            if line is not None:
                return line.inlined_at[-1] if line.inlined_at else f"{line.file}:{line.line}"
        return None


def sources(image: bytes, names: Sequence[str]) -> list[str | None]:
    """Returns where kernels begin in their source, as FILE:LINE, None if the image does not say.

    Args:
        image: A cubin, or a fatbin with one.
        names: Mangled names of kernels.
    """
    images = [image] if image.startswith(elf.MAGIC) else []
    if image.startswith(fatbin.MAGIC):
        of = [e.contents for e in fatbin.entries(image) if e.kind == fatbin.ELF and e.contents]
        images = [bytes(contents) for contents in of]
    found: dict[str, str] = {}
    for one in images:
        try:
            cubin = Cubin(one)
            known = of_cubin(cubin)
        except elf.UnreadableError:
            continue
        for name in names if known else ():
            try:
                section, _ = cubin.code(name)
            except elf.UnreadableError:
                continue
            first = known[section].first() if section in known else None
            if first is not None:
                found.setdefault(name, first)
    return [found.get(name) for name in names]


def of_cubin(cubin: Cubin) -> dict[int, Lines]:
    """Returns source lines by section, {} if there are none that can be read."""
    try:
        data = cubin.contents(b".debug_line")
        strings = cubin.contents(b".debug_line_str") or cubin.contents(b".debug_str")
        return sections(data, strings, cubin.relocated(b".debug_line")) if data else {}
    except elf.UnreadableError:
        return {}


class _Bytes:
    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise DamagedError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little", signed=True)

    def uleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def sleb(self) -> int:
        begin, value = self.at, self.uleb()
        return value - (1 << 7 * (self.at - begin)) if self.data[self.at - 1] & 64 else value

    def text(self) -> str:
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            raise DamagedError
        return (self.take(end - self.at) + self.take(1))[:-1].decode("utf-8", "replace")


@dataclass
class _Row:
    """A row of a line-number program.

    address: of its first instruction. caller: the number, from 1, of the row of the call that was
    inlined; 0 if none was.
    """

    address: int
    file: int
    line: int
    caller: int


@dataclass
class _Header:
    first_special: int = 0
    least: int = 1  # bytes of an instruction, as programs count
    line_base: int = 0
    line_range: int = 1
    lengths: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    files_from: int = 1


def sections(data: bytes, strings: bytes, symbols: dict[int, tuple[int, int]]) -> dict[int, Lines]:
    """Returns rows by section, up to the first damaged program.

    symbols: the section and the address that a relocation puts at an offset of data.
    """
    found: dict[int, Lines] = {}
    at = 0
    try:
        while at + 4 <= len(data):
            (size,) = struct.unpack_from("<I", data, at)
            if size >= 0xFFFFFFF0 or at + 4 + size > len(data):
                break
            _Unit(_Bytes(data, at + 4, at + 4 + size), strings, symbols, found).run()
            at += 4 + size
    except DamagedError:
        pass
    for lines in found.values():
        order = sorted(range(len(lines.addresses)), key=lines.addresses.__getitem__)
        lines.addresses = [lines.addresses[i] for i in order]
        lines.source_lines = [lines.source_lines[i] for i in order]
    return found


class _Unit:
    """A line-number program with its header."""

    def __init__(
        self,
        data: _Bytes,
        strings: bytes,
        symbols: dict[int, tuple[int, int]],
        found: dict[int, Lines],
    ) -> None:
        self._data, self._strings, self._symbols, self._found = data, strings, symbols, found
        self._header = self._read_header()
        self._rows: list[_Row] = []  # of a sequence

    def _read_header(self) -> _Header:
        data, header = self._data, _Header()
        version = data.number(2)
        if not 2 <= version <= 5:
            raise DamagedError
        if version == 5:
            data.take(2)
        begin = data.number(4) + data.at
        header.least = data.number(1)
        if version >= 4:
            data.take(1)
        data.take(1)
        header.line_base, header.line_range = data.signed(1), data.number(1)
        header.first_special = data.number(1)
        header.lengths = list(data.take(max(0, header.first_special - 1)))
        if not header.line_range:
            raise DamagedError
        if version == 5:
            folders = [path for path, _ in self._entries([])]
            header.files = [path for path, _ in self._entries(folders)]
            header.files_from = 0
        else:
            folders = [""]
            while folder := data.text():
                folders.append(folder)
            while name := data.text():
                header.files.append(_joined(folders, data.uleb(), name))
                data.uleb()
                data.uleb()
        data.at = begin
        return header

    def _entries(self, folders: list[str]) -> list[tuple[str, int]]:
        """Reads the folders or files of DWARF 5."""
        data, out = self._data, []
        formats = [(data.uleb(), data.uleb()) for _ in range(data.number(1))]
        count = data.uleb()
        if count > (data.end - data.at if formats else 0):  # each takes a byte at least
            raise DamagedError
        for _ in range(count):
            name, folder = "", 0
            for content, form in formats:
                value = self._value(form)
                if content == PATH and isinstance(value, str):
                    name = value
                elif content == DIRECTORY and isinstance(value, int):
                    folder = value
            out.append((_joined(folders, folder, name) if folders else name, folder))
        return out

    def _value(self, form: int) -> str | int | bytes:
        data = self._data
        if form == STRING:
            return data.text()
        if form in (LINE_STRING, STRP):
            at = data.number(4)
            end = self._strings.find(b"\0", at)
            return self._strings[at : max(end, at)].decode("utf-8", "replace")
        if form == UDATA:
            return data.uleb()
        if form == BLOCK:
            return data.take(data.uleb())
        sizes = {DATA1: 1, DATA2: 2, DATA4: 4, DATA8: 8, DATA16: 16}
        if form not in sizes:
            raise DamagedError
        return data.number(sizes[form])

    def run(self) -> None:
        data, header = self._data, self._header
        address, file, line, caller, section = 0, 1, 1, 0, -1

        def row() -> None:
            self._rows.append(_Row(address, file, line, caller))

        while data.at < data.end:
            code = data.number(1)
            if code >= header.first_special:
                advance = code - header.first_special
                address += advance // header.line_range * header.least
                line += header.line_base + advance % header.line_range
                row()
            elif code == 0:
                end = data.uleb() + data.at
                kind = data.number(1)
                if kind == END:
                    self._end(section, address)
                    address, file, line, caller, section = 0, 1, 1, 0, -1
                elif kind == SET_ADDRESS:
                    section, address = self._symbols.get(data.at, (-1, 0))
                elif kind == INLINED:
                    caller = data.uleb()
                data.at = end
            elif code == 1:
                row()
            elif code == 2:
                address += data.uleb() * header.least
            elif code == 3:
                line += data.sleb()
            elif code == 4:
                file = data.uleb()
            elif code == 8:
                address += (255 - header.first_special) // header.line_range * header.least
            elif code == 9:
                address += data.number(2)
            else:
                for _ in range(header.lengths[code - 1]):
                    data.uleb()

    def _end(self, section: int, address: int) -> None:
        """Ends a sequence of rows, all of one section."""
        lines = self._found.setdefault(section, Lines())
        for row in self._rows:
            lines.addresses.append(row.address)
            lines.source_lines.append(self._source_line(row))
        lines.addresses.append(address)
        lines.source_lines.append(None)
        self._rows = []

    def _source_line(self, row: _Row) -> SourceLine | None:
        if not 0 < row.line <= LAST_LINE:
            return None
        chain: list[str] = []
        caller, of = row.caller, len(self._rows) + 1
        while 0 < caller < of and len(chain) < DEEPEST:  # a call comes before what was inlined
            of, at = caller, self._rows[caller - 1]
            chain.append(f"{self._file(at.file)}:{at.line}")
            caller = at.caller
        return SourceLine(self._file(row.file), row.line, tuple(chain))

    def _file(self, number: int) -> str:
        i = number - self._header.files_from
        return self._header.files[i] if 0 <= i < len(self._header.files) else "?"


def _joined(folders: list[str], folder: int, name: str) -> str:
    first = folders[folder] if folder < len(folders) else ""
    return name if name.startswith("/") or not first else f"{first}/{name}"
