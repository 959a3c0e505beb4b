"""What a kernel reaches besides the memory that its parameters name, as its code says."""

from __future__ import annotations

from ttanalyze.code import cubin, elf, fatbin, ptx

# By the functions of the device's runtime.
PRINTF, HEAP = {"vprintf"}, {"malloc", "free", "__nv_aligned_device_malloc"}
LAUNCHES = ("cudaLaunchDevice", "cudaCDP", "__cudaCDP", "cudaGraphLaunch")


def uses(image: bytes, name: str) -> set[str] | None:
    """Of a cubin, a fatbin or PTX: which of textures, surfaces, printf, heap and launches the
    kernel of a mangled name can use, by itself or in what it calls; None where there is no such
    kernel that can be read.

    Calls through pointers are not followed.
    """
    if image.startswith(elf.MAGIC):
        found = [cubin.uses(image, name)]
    elif image.startswith(fatbin.MAGIC):
        found = [
            (ptx if entry.kind == fatbin.PTX else cubin).uses(entry.contents, name)
            for entry in fatbin.entries(image)
            if entry.contents is not None
        ]
    else:
        found = [ptx.uses(image, name)]
    known = [each for each in found if each is not None]
    if not known:
        return None
    return {what for views, words in known for what in views | _calls(words)}


def _calls(words: set[str]) -> set[str]:
    out = set()
    if words & PRINTF:
        out.add("printf")
    if words & HEAP:
        out.add("heap")
    if any(word.startswith(LAUNCHES) for word in words):
        out.add("launches")
    return out
