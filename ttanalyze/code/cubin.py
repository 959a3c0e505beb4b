"""Cubins, ELF files for NVIDIA GPUs: kernels, their code, and checksums of it.

The CUDA Binary Utilities manual describes the sections; the rest is as nvcc writes it. A kernel K
has instructions in `.text.K` and constants in `.nv.constantN.K`, whose sh_info names the former.
Functions that it calls have their own sections, which its relocations name. `.nv.info.K` is not in
the checksum: it counts symbols, which depend on the neighbours of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from ttanalyze.code.elf import SYMBOL, Elf, UnreadableError, string
from ttanalyze.format.layout import Array

CUDA = 190
PROGBITS, RELA, REL = 1, 4, 9
EXECUTABLE = 4
CONSTANT = b".nv.constant"
# Pairs of symbols, who calls and who is called; 0 and -1, … are others.
CALL_GRAPH = b".nv.callgraph"
INSTRUCTION = np.dtype([("first", "<u8"), ("second", "<u8")])  # from sm_70 on
OPERATION = 0x1FF  # of the first word; the bits above say what kinds of operands there are
VIEWS = {"textures": range(0x160, 0x171), "surfaces": (0x194, 0x196, *range(0x198, 0x1A0))}
TEXT = b".text."
REREAD = 4  # times its size are read of a cubin, whose sections may lie on one another


def checksums(image: bytes, names: Sequence[str]) -> list[str | None]:
    """Returns for each mangled name 16 hexadecimal digits, None if there is no such kernel."""
    try:
        cubin = Cubin(image)
    except UnreadableError:
        return [None] * len(names)
    return [cubin.checksum(name) for name in names]


def uses(image: bytes, name: str) -> tuple[set[str], set[str]] | None:
    """Returns which of VIEWS a kernel and its callees use, and the names of functions that it
    calls.

    None if there is no such kernel.
    """
    try:
        return Cubin(image).uses(name)
    except UnreadableError:
        return None


class Cubin(Elf):
    """A cubin. Raises UnreadableError if the image is none."""

    def __init__(self, image: bytes) -> None:
        super().__init__(image)
        if self.header["machine"] != CUDA:
            raise UnreadableError
        # Since CUDA 13 the architecture is the second byte of the flags.
        moved = 8 if self.header["abi"] >= 8 else 0
        self.architecture = int(self.header["flags"]) >> moved & 0xFF
        self._left = REREAD * len(image)
        self._own: dict[int, bytes] = {}

    def kernels(self) -> list[str]:
        """Returns the mangled names of kernels with code, in the order of their sections."""
        code = (self.sections["type"] == PROGBITS) & (self.sections["flags"] & EXECUTABLE != 0)
        names = [self.name(section) for section in np.flatnonzero(code).tolist()]
        texts = [name[len(TEXT) :] for name in names if name.startswith(TEXT)]
        return [text.decode(errors="replace") for text in texts]

    def code(self, name: str) -> tuple[int, memoryview]:
        """Returns the section of a kernel and its contents. Raises UnreadableError if it does not
        exist.
        """
        section = self._text(name)
        if section is None:
            raise UnreadableError
        return section, self.bytes_of(section)

    def relocated(self, name: bytes) -> dict[int, tuple[int, int]]:
        """Yields the offsets in a section that relocations fill: the target section, and the
        offset.
        """
        found: dict[int, tuple[int, int]] = {}
        sections = self.sections
        for section in np.flatnonzero(np.isin(sections["type"], (REL, RELA))).tolist():
            into = int(sections[section]["info"])
            if into >= len(sections) or self.name(into) != name:
                continue
            entries, symbols = self._relocations(section)
            which = (entries[:, 1] >> np.uint64(32)).astype("i8")
            values = symbols["value"][which]
            if entries.shape[1] > 2:
                values = values + entries[:, 2]
            positions = zip(symbols["section"][which].tolist(), values.tolist(), strict=True)
            found.update(zip(entries[:, 0].tolist(), positions, strict=True))
        return found

    def checksum(self, name: str) -> str | None:
        try:
            first = self._text(name)
            if first is None:
                return None
            digest = self._own_digest(first)
            called = sorted(self._own_digest(section) for section in self._reached(first))
        except UnreadableError:
            return None
        return f"{xxhash.xxh3_64_intdigest(b''.join([digest, *called])):016x}"

    def uses(self, name: str) -> tuple[set[str], set[str]] | None:
        first = self._text(name)
        if first is None:
            return None
        names, texts = self._called_by(name)
        for text in texts | {first}:
            texts |= self._reached(text) | {text}
        operations: set[int] = set()
        for text in texts:
            words = self.whole(text, INSTRUCTION)["first"]
            operations.update(np.unique(words & np.uint64(OPERATION)).tolist())
        return {kind for kind, known in VIEWS.items() if operations & set(known)}, names

    def _called_by(self, name: str) -> tuple[set[str], set[int]]:
        """Returns the names of functions that one can call, and the sections of those that are
        here.
        """
        sections = self.sections
        graph = next(self.named(CALL_GRAPH), None)
        if graph is None:
            return set(), set()
        symbols, strings = self.symbols(self.link(graph))
        called: dict[int, list[int]] = {}
        for caller, callee in self.whole(graph, np.dtype("<u4, <u4")).tolist():
            if 0 < caller < len(symbols) and callee < len(symbols):
                called.setdefault(caller, []).append(callee)

        def name_of(symbol: int) -> str:
            return string(strings, int(symbols["name"][symbol])).decode(errors="replace")

        open_ = [symbol for symbol in called if name_of(symbol) == name]
        reached = set(open_)
        while open_:
            more = set(called.get(open_.pop(), ())) - reached
            reached |= more
            open_ += more
        here = {int(symbols["section"][symbol]) for symbol in reached}
        code = {s for s in here if s < len(sections) and sections["flags"][s] & EXECUTABLE}
        return {name_of(symbol) for symbol in reached} - {name}, code

    def _text(self, name: str) -> int | None:
        """Returns the section with a kernel's instructions."""
        wanted = TEXT + name.encode() + b"\0"
        names, at, offsets = self.names, 0, []
        while (at := names.find(wanted, at)) >= 0:
            offsets.append(at)
            at += len(wanted)
        sections = self.sections
        found = np.isin(sections["name"], offsets) & (sections["type"] == PROGBITS)
        found &= (sections["flags"] & EXECUTABLE != 0) & (sections["size"] != 0)
        return int(found.argmax()) if found.any() else None

    def _own_digest(self, text: int) -> bytes:
        """Returns the digest of a section with instructions and of its constants."""
        if text not in self._own:
            sections = self.sections
            mine = (sections["info"] == text) & (sections["type"] == PROGBITS)
            parts = [(b"", text)]
            for section in np.flatnonzero(mine).tolist():
                at = int(sections[section]["name"])
                bank = self.names[at : at + len(CONSTANT) + 2].rstrip(b".")
                if bank.startswith(CONSTANT):
                    parts.append((bank, section))
            digest = xxhash.xxh3_64()
            for bank, section in sorted(parts):
                contents = self.bytes_of(section)
                self._left -= len(contents)
                if self._left < 0:
                    raise UnreadableError
                digest.update(bank + len(contents).to_bytes(8, "little"))
                digest.update(contents)
            self._own[text] = digest.digest()
        return self._own[text]

    def _reached(self, first: int) -> set[int]:
        """Returns the other sections with instructions that a kernel can call."""
        reached, open_ = {first}, [first]
        while open_:
            for section in self._called(open_.pop()) - reached:
                reached.add(section)
                open_.append(section)
        return reached - {first}

    def _called(self, text: int) -> set[int]:
        """Returns the sections with instructions that the relocations of one name."""
        sections = self.sections
        relocations = np.isin(sections["type"], (REL, RELA)) & (sections["info"] == text)
        called: set[int] = set()
        for section in np.flatnonzero(relocations).tolist():
            entries, symbols = self._relocations(section)
            which = np.unique(entries[:, 1] >> np.uint64(32))
            targets = np.unique(symbols["section"][which.astype("i8")]).astype("i8")
            targets = targets[targets < len(sections)]  # others are no sections
            code = sections["flags"][targets] & EXECUTABLE != 0
            called.update(targets[code & (sections["type"][targets] == PROGBITS)].tolist())
        return called

    def _relocations(self, section: int) -> tuple[Array, Array]:
        """Returns the relocations of a section, two or three words each, and their symbols."""
        contents = self.bytes_of(section)
        size = 24 if self.sections[section]["type"] == RELA else 16
        self._left -= len(contents)
        if self._left < 0:
            raise UnreadableError
        symbols = self.whole(self.link(section), SYMBOL)
        entries = np.frombuffer(contents[: len(contents) // size * size], "<u8")
        entries = entries.reshape(-1, size // 8)
        if len(entries) and int((entries[:, 1] >> np.uint64(32)).max()) >= len(symbols):
            raise UnreadableError
        return entries, symbols
