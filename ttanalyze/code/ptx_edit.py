"""Changes the text of a PTX kernel: its launch bounds, and constants for arguments and sizes.

Invariant: an instruction that is not understood stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ttanalyze.code.pointers import offsets, split_operands
from ttanalyze.code.ptx import definition_spans
from ttanalyze.code.ptx_statements import IGNORED, blank, register_types
from ttanalyze.errors import Error

Three = tuple[int, int, int]
BOUNDS = re.compile(r"[ \t]*\.(?:maxntid|minnctapersm|maxnreg)\b[^.{]*?(?=[.{\n]|\Z)")
LOAD = re.compile(
    r"(?<![\w.$%])ld\.param(?:::\w+)?(?P<vector>\.v[248])?\.(?P<kind>[busf])(?P<bits>8|16|32|64)"
    r"\s+(?P<to>\{[^}]*\}|[%\w$]+)\s*,\s*\[(?P<name>[%\w$]+)\s*(?:\+\s*(?P<more>\d+))?\s*\]\s*;"
)
SIZE = re.compile(
    r"(?<![\w.$%])(?P<move>mov\.(?P<type>[bus]32)\s+[%\w$]+\s*,\s*)%(?P<what>ntid|nctaid)\."
    r"(?P<axis>[xyz])(?=\s*;)"
)


def with_launch_bounds(image: bytes, kernel: str, threads: int, blocks: int = 0) -> bytes:
    """Returns PTX in which a kernel has other launch bounds.

    Args:
        image: The text.
        kernel: The mangled name.
        threads: The largest number of threads of a block.
        blocks: The least number of blocks on a multiprocessor, 0 for the compiler's choice.

    Raises:
        Error: The text has no such kernel.
    """
    text, masked = _texts(image)
    begin, brace, _ = _span(masked, kernel)
    head = masked.rindex(")", begin, brace) + 1 if ")" in masked[begin:brace] else brace
    kept = BOUNDS.sub("", text[head:brace]).rstrip()
    bounds = f"\n.maxntid {threads}, 1, 1" + (f"\n.minnctapersm {blocks}" if blocks else "")
    return (text[:head] + kept + bounds + "\n" + text[brace:]).encode("latin-1")


def with_constants(
    image: bytes, kernel: str, params: bytes | None, block: Three | None, grid: Three | None
) -> bytes:
    """Returns PTX in which a kernel has constants in place of its arguments, the size of its blocks
    and the size of its grid. Its declared parameters stay.

    Args:
        image: The text.
        kernel: The mangled name.
        params: The bytes of the parameters, None to leave them.
        block: The threads of a block, None to leave them.
        grid: The blocks of the grid, None to leave them.

    Raises:
        Error: The text has no such kernel.
    """
    text, masked = _texts(image)
    begin, brace, end = _span(masked, kernel)
    places = offsets(masked[begin:brace])
    types = register_types(masked, brace, end)
    edits: list[tuple[int, int, str]] = []

    def edit(pattern: re.Pattern[str], change: Callable[[re.Match[str]], str | None]) -> None:
        for found in pattern.finditer(masked, brace, end):
            new = change(found)
            if new is not None:
                edits.append((found.start(), found.end(), new))

    if params is not None:
        given = params
        edit(LOAD, lambda found: _load(found, places, given, types))
    sizes = {"ntid": block, "nctaid": grid}

    def size(found: re.Match[str]) -> str | None:
        known = sizes[found["what"]]
        return None if known is None else f"{found['move']}{known['xyz'.index(found['axis'])]}"

    edit(SIZE, size)
    for first, last, new in sorted(edits, reverse=True):
        text = text[:first] + new + text[last:]
    return text.encode("latin-1")


def _texts(image: bytes) -> tuple[str, str]:
    """Returns the text, and the text with blanks in place of comments."""
    text = image.split(b"\0", 1)[0].decode("latin-1")
    return text, IGNORED.sub(lambda m: m[0] if m[0][0] == '"' else blank(m[0]), text)


def _span(text: str, kernel: str) -> tuple[int, int, int]:
    spans = definition_spans(text)
    if kernel not in spans or not text.startswith(".entry", spans[kernel][0]):
        raise Error(f"the PTX has no kernel {kernel}")
    return spans[kernel]


def _load(
    found: re.Match[str],
    places: dict[str, tuple[int, int]],
    params: bytes,
    types: Callable[[str], str | None],
) -> str | None:
    """Returns moves of constants in place of a load of a parameter, None where that is unknown."""
    if found["name"] not in places:
        return None
    size = int(found["bits"]) // 8
    names = split_operands(found["to"].strip("{}"))
    offset, length = places[found["name"]]
    first = offset + int(found["more"] or 0)
    if first + size * len(names) > min(offset + length, len(params)):
        return None
    if len(names) > 1 and "@" in re.split(r"[;{}:]", found.string[: found.start()])[-1]:
        return None  # a guard would be that of the first move only
    moves = [
        _move(name, types(name), found["kind"], params[first + i * size : first + (i + 1) * size])
        for i, name in enumerate(names)
        if name != "_"
    ]
    return None if None in moves else " ".join(move for move in moves if move)


def _move(register: str, kind: str | None, loaded: str, data: bytes) -> str | None:
    """Returns a move of a constant to a register of a type such as `b32`."""
    if kind is None or kind[0] not in "busf" or not kind[1:].isdecimal():
        return None
    width = int(kind[1:]) // 8
    if width < max(len(data), 2) or (kind[0] == "f" and width != len(data)):
        return None
    value = int.from_bytes(data, "little", signed=loaded == "s") & ((1 << 8 * width) - 1)
    if kind[0] == "f":
        return f"mov.{kind} {register}, 0{'f' if width == 4 else 'd'}{value:0{2 * width}X};"
    return f"mov.b{8 * width} {register}, {value:#x};"


def kernels(image: bytes) -> list[str]:
    """Returns the mangled names of the kernels of a PTX text."""
    _, masked = _texts(image)
    spans = definition_spans(masked)
    return [name for name, (at, _, _) in spans.items() if masked.startswith(".entry", at)]
