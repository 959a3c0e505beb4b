"""What a header of the CUDA driver API says, of each name in interpose/include/cuda.h."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pycparser import c_ast, c_parser

OURS = Path(__file__).resolve().parent.parent / "interpose" / "include"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
INTERNAL = "-D__CUDA_API_VERSION_INTERNAL"
PER_THREAD = ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"]
MODES = {"plain": [], "per-thread": PER_THREAD, "internal": [INTERNAL]}
MACROS = r"""
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>
#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)
#define N(name) printf("%s %s\n", "c" #name, TEXT_OF(c##name));
#define V(name) printf(#name " %lld\n", (long long)(name));
#define T(type) printf("sizeof " #type " %zu align %zu\n", sizeof(type), _Alignof(type));
#define M(type, member) \
	printf("  " #member " %zu %zu\n", offsetof(type, member), sizeof(((type *)0)->member));
"""


def abi(include: Path, where: Path) -> str:
    """What the header in include says: values and layouts, and in each mode what the names of
    calls stand for.
    """
    out = []
    for mode, flags in MODES.items():
        lines = _layouts() if flags == [INTERNAL] else _names()
        source, program = where / f"abi-{mode}.c", where / f"abi-{mode}"
        body = "\n".join(lines)
        source.write_text(f"{MACROS}int main(void)\n{{\n{body}\nreturn 0;\n}}\n")
        options = ["-std=gnu11", *WARNINGS, f"-I{include}", *flags]
        subprocess.run(["gcc", *options, str(source), "-o", str(program)], check=True)
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        out.append(f"[{mode}]\n{text}")
    return "".join(out)


def _preprocessed(*flags: str) -> str:
    command = ["gcc", "-E", "-P", f"-I{OURS}", *flags, str(OURS / "cuda.h")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _names() -> list[str]:
    """The names of calls that stand for one of several versions."""
    found = re.findall(r"^#define c(u[A-Z]\w*) ", _preprocessed("-dM", *PER_THREAD), re.M)
    return [f"N({name})" for name in sorted(found)]


def _layouts() -> Iterator[str]:
    """Constants, the values of each enumeration, and the members of each structure."""
    macros = re.findall(r"^#define (CU(?:DA)?_?\w+) \S", _preprocessed("-dM", INTERNAL), re.M)
    yield from (f"V({name})" for name in sorted(macros))
    without = ["-D__attribute__(x)=", "-D__extension__="]
    tree = c_parser.CParser().parse(_preprocessed(INTERNAL, *without))
    complete: set[str] = set()
    for one in tree.ext:
        if not isinstance(one, c_ast.Typedef) or not one.name.startswith(("CU", "cuuint")):
            continue
        kind = getattr(one.type, "type", None)
        if isinstance(kind, c_ast.Enum):
            yield from (f"V({value.name})" for value in kind.values.enumerators)
        if isinstance(kind, c_ast.Struct | c_ast.Union):
            if kind.decls is None and kind.name not in complete:
                continue
            complete.add(kind.name)
        yield f"T({one.name})"
        yield from (f"M({one.name}, {member})" for member in _members(kind))


def _members(kind: c_ast.Node, before: str = "") -> Iterator[str]:
    for member in getattr(kind, "decls", None) or ():
        inner = getattr(member.type, "type", member.type) if member.name else member.type
        name = f"{before}{member.name}" if member.name else ""
        if name:
            yield name
        yield from _members(inner, f"{name}." if name else before)
