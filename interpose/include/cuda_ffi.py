"""Hands cuda.h to cffi: the build turns `ffi` into ttanalyze/_cuda.py, by which the toolkit calls
a driver; and load.h, by which it has one called.

Of calls with two symbols, for the legacy and the per-thread default stream, the first is taken.
The result needs no C parser, and no driver, when it is imported.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

HEADER = Path(__file__).resolve().parent / "cuda.h"
LOAD = HEADER.parents[1] / "load" / "load.h"


def declarations(header: str) -> str:
    """The C declarations of the header, without its directives and macros."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL).replace("\\\n", " ")
    begin, end = text.index('extern "C" {'), text.index("#undef TT_PTSZ")
    lines = text[begin:end].splitlines()[1:]
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    text = re.sub(
        r"\bTT_PT[SD][SZ]\(\s*(\w+)\s*,(.*?)\);", r"CUresult \1(\2);", text, flags=re.DOTALL
    )
    return re.sub(r"\b(CUDAAPI|CUDA_CB|TT_ALIGNED_128)\b", "", text)


ffi = FFI()
ffi.cdef(declarations(HEADER.read_text()))
ffi.cdef(re.sub(r"^#.*$", "", LOAD.read_text(), flags=re.MULTILINE))
ffi.set_source("ttanalyze._cuda", None)
