"""Where code for a GPU is: in cubins, fatbins, PTX, and host programs with fatbins in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttanalyze.kernels import elf, fatbin

HOST = b"\x7fELF"
ALIGNED = 8  # bytes, where fatbins begin in a program


@dataclass(frozen=True)
class Code:
    """For an architecture (90 is sm_90; 0 of PTX that is not in a fatbin): a cubin, or PTX."""

    architecture: int
    cubin: elf.Cubin | None
    ptx: bytes | None


def codes(image: bytes) -> list[Code]:
    """All code in an image; nothing where there is none that can be read."""
    if image.startswith(elf.MAGIC):
        try:
            return [_cubin(image)]
        except elf.UnreadableError:
            return [code for part in _fatbins(image) for code in _entries(part)]
    if image.startswith(fatbin.MAGIC):
        return list(_entries(image))
    if image.startswith(HOST) or b".version" not in image:
        return []
    return [Code(0, None, image)]


def chosen(found: Sequence[Code], capability: int) -> list[Code]:
    """What a device of that capability would take: of its generation, the latest that it is not
    older than; else PTX. Everything where the capability is not known (0).
    """
    if not capability:
        return list(found)
    fit = [
        c
        for c in found
        if c.cubin and c.architecture // 10 == capability // 10 and c.architecture <= capability
    ]
    if not fit:
        fit = [c for c in found if c.ptx is not None and c.architecture <= capability]
    latest = max((c.architecture for c in fit), default=0)
    return [c for c in fit if c.architecture == latest]


def _cubin(image: bytes) -> Code:
    cubin = elf.Cubin(image)
    return Code(cubin.architecture, cubin, None)


def _entries(image: bytes) -> Iterator[Code]:
    for entry in fatbin.entries(image):
        if entry.contents is None:
            continue
        if entry.kind == fatbin.PTX:
            yield Code(entry.architecture, None, entry.contents)
            continue
        try:
            yield _cubin(entry.contents)
        except elf.UnreadableError:
            continue


def _fatbins(program: bytes) -> Iterator[bytes]:
    """Of a host program, wherever they lie in it."""
    at = 0
    while (at := program.find(fatbin.MAGIC, at)) >= 0:
        size = fatbin.size(memoryview(program)[at:]) if at % ALIGNED == 0 else 0
        if size:
            yield program[at : at + size]
        at += max(size, len(fatbin.MAGIC))
