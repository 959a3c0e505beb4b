"""Function names and source lines of offsets in object files.

Functions come from symbol tables. Source lines and inlined functions come from debug information,
which addr2line of binutils reads if it is installed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass

import numpy as np

from ttanalyze.code.demangle import demangle
from ttanalyze.code.elf import SYMBOL, Elf, string
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.util.regular_files import read_regular

MOST = 1 << 30  # bytes of an object file that are looked at
WAIT = 20  # seconds that addr2line gets for one file
LOAD, SYMBOLS, DYNAMIC_SYMBOLS, FUNCTION = 1, 2, 11, 2  # PT_LOAD, SHT_SYMTAB, SHT_DYNSYM, STT_FUNC


@dataclass(frozen=True)
class Frame:
    """A frame. function: demangled, None if unknown. file, line: None and 0 if unknown."""

    function: str | None
    file: str | None
    line: int


Frames = list[Frame]
NOWHERE: Frames = [Frame(None, None, 0)]


def look_up(path: str, offsets: list[int], before_ns: int | None = None) -> list[Frames]:
    """Returns the frames at file offsets of an object file: inlined functions, the innermost first,
    and last the function that contains the code.

    It returns none for a file that is missing, is no 64-bit little-endian ELF file, or changed
    after before_ns (CLOCK_REALTIME).
    """
    try:
        status = os.stat(path)
        if before_ns is not None and status.st_mtime_ns > before_ns:
            return [NOWHERE] * len(offsets)
        found = _read(path, status.st_mtime_ns)
        addresses = found.addresses(offsets)
        names = _demangled(found.functions(addresses))
    except (Error, OSError, ValueError, OverflowError):
        return [NOWHERE] * len(offsets)
    sources = _sources(path, addresses) if found.has_lines else {}
    return [
        _chain(name, sources.get(address, []))
        for name, address in zip(names, addresses, strict=True)
    ]


def _chain(name: str | None, sources: Frames) -> Frames:
    """Returns the frames of one offset. name: the function that contains the code, from the symbol
    table.

    addr2line uses that name for the innermost inlined function if its debug information has no
    mangled one.
    """
    if not sources:
        return [Frame(name, None, 0)]
    inner, outer = sources[:-1], sources[-1]
    if inner and inner[0].function in (name, outer.function):
        inner[0] = Frame(None, inner[0].file, inner[0].line)
    return [*inner, Frame(name or outer.function, outer.file, outer.line)]


def _demangled(names: list[str | None]) -> list[str | None]:
    known = [name for name in names if name is not None]
    readable = dict(zip(known, demangle(known), strict=True))
    return [None if name is None else readable[name] for name in names]


@dataclass(frozen=True)
class _Object:
    segments: list[tuple[int, int, int]]  # offset, size and address of each
    starts: Array  # of functions, ascending
    ends: Array
    names: Array  # where their names are in strings
    strings: bytes
    has_lines: bool

    def addresses(self, offsets: list[int]) -> list[int]:
        """Returns the address of each offset, -1 if nothing is loaded from there."""
        out = []
        for offset in offsets:
            inside = (a + offset - o for o, size, a in self.segments if o <= offset < o + size)
            out.append(next(inside, -1))
        return out

    def functions(self, addresses: list[int]) -> list[str | None]:
        at = np.searchsorted(self.starts, np.array(addresses, "i8"), "right") - 1
        return [
            string(self.strings, int(self.names[i])).decode(errors="replace")
            if i >= 0 and address < self.ends[i]
            else None
            for i, address in zip(at.tolist(), addresses, strict=True)
        ]


@functools.lru_cache(64)
def _read(path: str, _version: int) -> _Object:
    """Reads an object file. Raises Error or UnreadableError if it is none."""
    elf = Elf(read_regular(path, MOST))
    segments = elf.segments()
    loaded = segments[segments["type"] == LOAD][["offset", "size", "addr"]].tolist()
    tables = [np.flatnonzero(elf.sections["type"] == kind) for kind in (SYMBOLS, DYNAMIC_SYMBOLS)]
    symbols, strings = np.empty(0, SYMBOL), b""
    for table in np.concatenate(tables).tolist()[:1]:
        symbols, strings = elf.symbols(table)
    symbols = symbols[(symbols["info"] & 15 == FUNCTION) & (symbols["value"] != 0)]
    symbols = symbols[np.argsort(symbols["value"], kind="stable")]
    starts = symbols["value"].astype("i8")
    following = np.append(starts[1:], np.iinfo("i8").max)[: len(starts)]
    ends = np.where(symbols["size"] > 0, starts + symbols["size"].astype("i8"), following)
    has_lines = next(elf.named(b".debug_line"), None) is not None
    return _Object(loaded, starts, ends, symbols["name"].copy(), strings, has_lines)


def _sources(path: str, addresses: list[int]) -> dict[int, Frames]:
    """Returns function and place of known addresses from debug information, the innermost first.

    path: a file that _read accepted.
    """
    tool = shutil.which("addr2line")
    wanted = sorted({address for address in addresses if address >= 0})
    if tool is None or not wanted:
        return {}
    try:
        done = subprocess.run(
            # Of a name that begins with @ it would read its arguments, and it may ask the network.
            [tool, "-e", os.path.realpath(path), "--addresses", "--functions", "--inlines"],
            env={**os.environ, "DEBUGINFOD_URLS": ""},
            input="".join(f"{address:#x}\n" for address in wanted),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WAIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    out: dict[int, list[tuple[str, str]]] = {}
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            pairs = out.setdefault(int(line, 16), [])
        elif out:
            pairs.append((line, next(lines, "")))
    functions = {function for pairs in out.values() for function, _ in pairs}
    names = dict(zip(functions, _demangled(list(functions)), strict=True))
    return {
        address: [_source(names[function], location) for function, location in pairs]
        for address, pairs in out.items()
        if not pairs[-1:] or _source(None, pairs[-1][1]).line
    }


def _source(function: str | None, location: str) -> Frame:
    """Returns a frame. location: FILE:LINE, FILE:? or ??:0, perhaps followed by a remark."""
    file, _, number = location.partition(" (")[0].rpartition(":")
    known = number.isdecimal() and number.isascii() and int(number) and not file.startswith("?")
    name = None if function == "??" else function
    return Frame(name, file, int(number)) if known else Frame(name, None, 0)
