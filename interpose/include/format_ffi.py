"""Hands format.h, and our own library for the toolkit, to cffi: the build turns `ffi` into
ttanalyze/_format.py.

cffi reads the C itself but takes no preprocessor lines other than `#define NAME INTEGER`, so
lists of the form `LIST(X)` are expanded here, and everything else of that kind is left out. The
result needs no C parser when it is imported.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

FOLDER = Path(__file__).resolve().parent
LOAD = FOLDER.parent / "load"
HEADERS = (
    FOLDER / "format.h",
    LOAD / "digests.h",
    LOAD / "manifest_digests.h",
    LOAD / "spans.h",
    LOAD / "recompute.h",
    LOAD / "spill.h",
    LOAD / "unpack.h",
    LOAD / "record_options.h",
    LOAD / "opcodes.h",
)


def declarations(header: str) -> str:
    """The C declarations and integer constants of a header, without its other directives."""
    text = re.sub(r"/\*.*?\*/|\\\n", " ", header, flags=re.DOTALL)
    macros = {m[1]: m for m in re.finditer(r"#define (\w+)\(([\w, ]+)\) (.*)", text)}
    constant = re.compile(r"\s*#\s*define\s+\w+\s+(0[xX][0-9a-fA-F]+|\d+)\s*$")
    lines = [n for n in text.splitlines() if not n.lstrip().startswith("#") or constant.match(n)]
    return re.sub(r"\b(\w+)\((\w+)\)", lambda use: _expanded(macros, use), "\n".join(lines))


def _expanded(macros: dict[str, re.Match[str]], use: re.Match[str]) -> str:
    """What the preprocessor makes of LIST(EACH), where both are macros of the header."""
    called, each = macros.get(use[1]), macros.get(use[2])
    if called is None or each is None:
        return use[0]
    words: list[str] = re.split(r"(?:##)?\b(\w+)\b", each[3])
    parameters = each[2].split(", ")
    out: list[str] = []
    for row in re.findall(r"\bX\(([^)]*)\)", called[3]):
        given = dict(zip(parameters, map(str.strip, row.split(",")), strict=True))
        out += [given.get(word, word) for word in words]
    return "".join(out)


ffi = FFI()
for header in HEADERS:
    ffi.cdef(declarations(header.read_text()))
ffi.set_source("ttanalyze._format", None)
