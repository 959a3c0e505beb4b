"""A checksum of each kernel's code, equal wherever the code is: in other runs and processes.

Invariant: images come from recorded programs and may be anything. What can't be read has no
checksum; nothing is read outside an image, and no image takes more time than its size is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from ttanalyze.code import cubin, elf, fatbin, ptx


def checksums(image: bytes, names: Sequence[str]) -> list[str | None]:
    """Of a cubin, a fatbin or PTX: for each mangled name 16 hexadecimal digits, None where the
    image has no such kernel that can be read.
    """
    if image.startswith(elf.MAGIC):
        return cubin.checksums(image, names)
    if not image.startswith(fatbin.MAGIC):
        return ptx.checksums(image, names)
    found: dict[str, list[str]] = {name: [] for name in names}
    for entry in fatbin.entries(image):
        if entry.contents is None:  # any of the kernels may be in it, and as other code
            return [None] * len(names)
        read = ptx.checksums if entry.kind == fatbin.PTX else cubin.checksums
        for name, checksum in zip(names, read(entry.contents, names), strict=True):
            if checksum is not None:
                found[name].append(f"{entry.kind}:{entry.architecture}:{checksum}")
    return [_joined(found[name]) for name in names]


def _joined(parts: list[str]) -> str | None:
    """Of code for one architecture the checksum of that; of several one of them all."""
    if len(parts) > 1:
        return f"{xxhash.xxh3_64_intdigest(' '.join(sorted(parts)).encode()):016x}"
    return parts[0].rpartition(":")[2] if parts else None
