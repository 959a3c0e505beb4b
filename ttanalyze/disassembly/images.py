"""Finds GPU code in cubins, fatbins, PTX files and host programs.

Only the code that is used is expanded, because fatbins of libraries have many architectures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttanalyze.code import elf, fatbin
from ttanalyze.code.cubin import Cubin
from ttanalyze.errors import Error

HOST = b"\x7fELF"
KINDS = {fatbin.ELF: "", fatbin.PTX: "PTX for "}
ALIGNED = 8  # bytes, where fatbins begin in a program


@dataclass(frozen=True)
class Code:
    """A cubin or PTX for an architecture: 90 is sm_90, 0 is PTX that is not in a fatbin."""

    architecture: int
    cubin: Cubin | None
    ptx: bytes | None


def codes(image: bytes, capability: int = 0) -> list[Code]:
    """Returns the code that a device of this capability would use, all code if it is 0.

    Returns [] if there is no readable code. Raises Error if there is code for other devices only.
    """
    if image.startswith(elf.MAGIC):
        try:
            entries = [[fatbin.Entry.plain(fatbin.ELF, Cubin(image).architecture, image)]]
        except elf.UnreadableError:
            entries = [list(fatbin.entries(part)) for part in _fatbins(image)]
    elif image.startswith(fatbin.MAGIC):
        entries = [list(fatbin.entries(image))]
    elif image.startswith(HOST) or b".version" not in image:
        return []
    else:
        return [Code(0, None, image)]
    taken = [entry for some in entries for entry in chosen(some, capability)]
    if any(entries) and not taken:
        kinds = [f"{KINDS[e.kind]}sm_{e.architecture}" for some in entries for e in some]
        raise Error(f"no code for sm_{capability}: there is {', '.join(dict.fromkeys(kinds))}")
    return [code for entry in taken if (code := _read(entry)) is not None]


def chosen(entries: Sequence[fatbin.Entry], capability: int) -> list[fatbin.Entry]:
    """Returns the entries of a fatbin that a device uses, all if the capability is unknown (0).

    These are the entries of its generation with the highest version that it supports, else PTX.
    """
    if not capability:
        return list(entries)
    fit = [e for e in entries if e.architecture <= capability]
    machine = [e for e in fit if e.kind == fatbin.ELF and e.architecture // 10 == capability // 10]
    fit = machine or [e for e in fit if e.kind == fatbin.PTX]
    latest = max((e.architecture for e in fit), default=0)
    return [e for e in fit if e.architecture == latest]


def _read(entry: fatbin.Entry) -> Code | None:
    contents = entry.contents
    if contents is None:
        return None
    if entry.kind == fatbin.PTX:
        return Code(entry.architecture, None, contents)
    try:
        cubin = Cubin(contents)
    except elf.UnreadableError:
        return None
    return Code(cubin.architecture, cubin, None)


def _fatbins(program: bytes) -> Iterator[bytes]:
    """Yields the fatbins anywhere in a host program."""
    at = 0
    while (at := program.find(fatbin.MAGIC, at)) >= 0:
        size = fatbin.size(memoryview(program)[at:]) if at % ALIGNED == 0 else 0
        if size:
            yield program[at : at + size]
        at += max(size, len(fatbin.MAGIC))
