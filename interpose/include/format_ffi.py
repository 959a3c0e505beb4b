"""Hands format.h, and what checks its records, to cffi: the build turns `ffi` into
ttanalyze/_format.py.

cffi reads the C itself but takes no preprocessor lines other than `#define NAME INTEGER`, so
everything else of that kind is left out. The result needs no C parser when it is imported.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

FOLDER = Path(__file__).resolve().parent
HEADERS = (FOLDER / "format.h", FOLDER.parent / "load" / "digests.h")


def declarations(header: str) -> str:
    """The C declarations and integer constants of a header, without its other directives."""
    without_comments = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    constant = re.compile(r"\s*#\s*define\s+\w+\s+(0[xX][0-9a-fA-F]+|\d+)\s*$")
    lines = without_comments.splitlines()
    return "\n".join(n for n in lines if not n.lstrip().startswith("#") or constant.match(n))


ffi = FFI()
for header in HEADERS:
    ffi.cdef(declarations(header.read_text()))
ffi.set_source("ttanalyze._format", None)
