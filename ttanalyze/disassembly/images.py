"""Where code for a GPU is: in cubins, fatbins, PTX, and host programs with fatbins in them.

Only what is taken is expanded: fatbins of libraries have code for many architectures.
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
    """For an architecture (90 is sm_90; 0 of PTX that is not in a fatbin): a cubin, or PTX."""

    architecture: int
    cubin: Cubin | None
    ptx: bytes | None


def codes(image: bytes, capability: int = 0) -> list[Code]:
    """The code that a device of that capability would take; all of it where that is 0. Nothing
    where there is none that can be read. Raises Error where there is for other devices only.
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
    """Of a fatbin's entries those that a device takes: of its generation, the latest that it is
    not older than; else PTX. All of them where the capability is not known (0).
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
    """Of a host program, wherever they lie in it."""
    at = 0
    while (at := program.find(fatbin.MAGIC, at)) >= 0:
        size = fatbin.size(memoryview(program)[at:]) if at % ALIGNED == 0 else 0
        if size:
            yield program[at : at + size]
        at += max(size, len(fatbin.MAGIC))
