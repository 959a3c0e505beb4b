"""Checksums of kernels' code, equal for equal code in all runs and processes.

Images come from recorded programs and may contain anything. A kernel that cannot be read has no
checksum. No read leaves the image, and the time is bounded by its size.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from ttanalyze.code import cubin, elf, fatbin, ptx
from ttanalyze.util.arguments import checked


@checked
def checksums(image: bytes, names: Sequence[str]) -> list[str | None]:
    """Returns the checksums of kernels.

    Args:
        image: A cubin, a fatbin or PTX.
        names: Mangled names of kernels.

    Returns:
        For each name 16 hexadecimal digits, None if the image has no readable kernel of this name.

    Source:
        docs/reference/tables.md describes the checksums. They are XXH3-64.

    Example:
        >>> ptx = b".version 8.0 .target sm_75 .address_size 64 .visible .entry k() { ret; }"
        >>> [checksum is not None for checksum in tt.kernels.checksums(ptx, ["k", "other"])]
        [True, False]
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
    """Returns the checksum of code for one architecture, or one over those of several."""
    if len(parts) > 1:
        return f"{xxhash.xxh3_64_intdigest(' '.join(sorted(parts)).encode()):016x}"
    return parts[0].rpartition(":")[2] if parts else None
