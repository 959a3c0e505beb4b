"""A checksum of each kernel's code, equal wherever the code is: in other runs and processes.

Invariant: images come from recorded programs and may be anything. What can't be read has no
checksum; nothing is read outside an image, and no image takes more time than its size is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from ttanalyze.code import elf, fatbin, ptx
from ttanalyze.errors import MissingFileError
from ttanalyze.format import modules
from ttanalyze.format.process import Process

LARGEST = 1 << 28  # bytes of an image; the recorder saves much smaller ones only


def checksums(image: bytes, names: Sequence[str]) -> list[str | None]:
    """Of a cubin, a fatbin or PTX: for each mangled name 16 hexadecimal digits, None where the
    image has no such kernel that can be read.
    """
    if image.startswith(elf.MAGIC):
        return elf.checksums(image, names)
    if not image.startswith(fatbin.MAGIC):
        return ptx.checksums(image, names)
    found: dict[str, list[str]] = {name: [] for name in names}
    for entry in fatbin.entries(image):
        if entry.contents is None:  # any of the kernels may be in it, and as other code
            return [None] * len(names)
        read = ptx.checksums if entry.kind == fatbin.PTX else elf.checksums
        for name, checksum in zip(names, read(entry.contents, names), strict=True):
            if checksum is not None:
                found[name].append(f"{entry.kind}:{entry.architecture}:{checksum}")
    return [_joined(found[name]) for name in names]


def _joined(parts: list[str]) -> str | None:
    """Of code for one architecture the checksum of that; of several one of them all."""
    if len(parts) > 1:
        return f"{xxhash.xxh3_64_intdigest(' '.join(sorted(parts)).encode()):016x}"
    return parts[0].rpartition(":")[2] if parts else None


class Checksums:
    """Of the kernels of processes, whose images are read when a process is first asked about."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, str | None]] = {}

    def get(self, process: Process, function: int) -> str | None:
        """By the number of a kernel; None where its code is not known.

        Raises FormatError where an image is not the one that was saved.
        """
        if process.index not in self._known:
            self._known[process.index] = _of_process(process)
        return self._known[process.index].get(function)


def _of_process(process: Process) -> dict[int, str | None]:
    out: dict[int, str | None] = {}
    functions, modules = process.functions, process.modules
    images = dict(zip(modules["id"].tolist(), modules["image"].tolist(), strict=True))
    of = np.array([images.get(m, 0) for m in functions["module"].tolist()], "u8")
    for image in dict.fromkeys(of.tolist()):
        mine = functions[of == image]
        names = [process.strings.get(int(name)) or "" for name in mine["name"]]
        contents = image_of(process, image) if image else None
        found = checksums(contents, names) if contents else [None] * len(names)
        out.update(zip(mine["id"].tolist(), found, strict=True))
    return out


def image_of(process: Process, image: int) -> bytes | None:
    """A saved image by its digest; None where it was not saved."""
    try:
        if modules.path_of(process, image).stat().st_size > LARGEST:
            return None
        return modules.read(process, image)
    except (FileNotFoundError, MissingFileError):
        return None
