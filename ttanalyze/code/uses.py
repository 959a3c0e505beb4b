"""Finds features of kernels that reach beyond the memory of their parameters."""

from __future__ import annotations

from ttanalyze.code import cubin, elf, fatbin, ptx
from ttanalyze.util.arguments import checked

# By the functions of the device's runtime.
PRINTF, HEAP = {"vprintf"}, {"malloc", "free", "__nv_aligned_device_malloc"}
LAUNCHES = ("cudaLaunchDevice", "cudaCDP", "__cudaCDP", "cudaGraphLaunch")


@checked
def uses(image: bytes, name: str) -> set[str] | None:
    """Returns the features that a kernel or a function that it calls may use.

    Calls through pointers are not followed.

    Args:
        image: A cubin, a fatbin or PTX.
        name: The mangled name of the kernel.

    Returns:
        A subset of "textures", "surfaces", "printf", "heap" and "launches", None if the image has
        no readable kernel of this name.

    Example:
        >>> (image,) = Path("work/p0/modules").iterdir()
        >>> tt.kernels.uses(image.read_bytes(), "add")
        set()
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
