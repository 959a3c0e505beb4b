"""Demangles kernel names: `_Z3addPfS_i` becomes `add(float*, float*, int)`.

The C++ runtime does the work in a process of its own with limits on memory and time, because a name
of a hundred letters can expand to gigabytes. A name that cannot be demangled stays unchanged.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

from ttanalyze.output import text
from ttanalyze.util.arguments import checked

__all__ = ["demangle", "short"]

MANGLED = re.compile(r"_Z[0-9A-Za-z_.$]{1,32000}")
LONGEST = 1 << 16  # characters of a demangled name
WHOLE = 40  # letters of a name that is shown in full
REFUSED = 1000  # letters from which on the C++ runtime leaves names alone
ENDINGS = 40  # of helpers by the names they were given, until the rest stays mangled
SECONDS = 20  # for all names of one helper, which bounds its processor time itself

# Helpers get names in lines and answer in lines, each at once. A name that takes more memory than
# there is stays mangled; one that takes too long ends the helper, and the first line that is
# missing tells which it was.
LIMITS = """
import ctypes, os, resource, signal, sys
def limit(kind, most):
    resource.setrlimit(kind, (most, most))
limit(resource.RLIMIT_CORE, 0)
"""
RUNTIME = f"""{LIMITS}
for name in ("libstdc++.so.6", "libc++abi.so.1"):
    try:
        demangle = ctypes.CDLL(name).__cxa_demangle
        break
    except (OSError, AttributeError):
        pass
else:
    sys.exit(3)
demangle.restype = ctypes.c_void_p
demangle.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 3
free = ctypes.CDLL(None).free
free.argtypes = [ctypes.c_void_p]
pages = int(open("/proc/self/statm").read().split()[0])
limit(resource.RLIMIT_AS, pages * resource.getpagesize() + (32 << 20))
for line in sys.stdin.buffer:
    signal.setitimer(signal.ITIMER_PROF, 0.05)
    name = line.rstrip()
    found = demangle(name, None, None, None)
    if found:
        text = ctypes.string_at(found)
        name = text if len(text) <= {LONGEST} else name
        free(found)
    os.write(1, name + b"\\n")
"""
TOOL = f"""{LIMITS}
limit(resource.RLIMIT_AS, 256 << 20)
limit(resource.RLIMIT_CPU, 2)
os.execv(sys.argv[1], sys.argv[1:])
"""

_known: dict[str, str] = {}


@checked
def demangle(names: Iterable[str]) -> list[str]:
    """Demangles names. The results are kept, so each name is demangled once.

    One call with many names is much faster than many calls.

    Args:
        names: Mangled or other names.

    Returns:
        For each name its demangled form, or the name itself if it is not mangled or cannot be
        demangled.

    Example:
        >>> tt.demangle.demangle(["_Z3addPfS_i", "scale"])
        ['add(float*, float*, int)', 'scale']
    """
    wanted = list(names)
    unknown = [n for n in dict.fromkeys(wanted) if n not in _known]
    _known.update({n: n for n in unknown})
    mangled = [n for n in unknown if MANGLED.fullmatch(n)]
    if mangled:
        _ask([RUNTIME], mangled)
    tool = shutil.which("c++filt")
    long = [n for n in mangled if _known[n] == n and len(n) > REFUSED]
    if long and tool:
        _ask([TOOL, tool, "-r", "-n"], long)
    return [_known[n] for n in wanted]


def missing() -> str | None:
    """Returns a message for users if no names can be demangled on this machine, else None."""
    mangled = [n for n in _known if MANGLED.fullmatch(n)]
    if any(_known[n] != n for n in mangled) or not mangled or demangle(["_Z1fv"]) == ["f()"]:
        return None
    return "kernel names stay mangled: libstdc++.so.6 is not here"


def _ask(helper: Sequence[str], names: list[str]) -> None:
    """Runs a helper program with the names and puts its answers into _known.

    Args:
        helper: A Python program and its arguments.
        names: Mangled names.
    """
    for _ in range(ENDINGS):
        text = "".join(f"{n}\n" for n in names).encode()
        command = [sys.executable, "-I", "-S", "-c", *helper]
        try:
            done = subprocess.run(command, input=text, capture_output=True, timeout=SECONDS)
        except (OSError, ValueError, subprocess.SubprocessError):
            return
        said = done.stdout.decode(errors="replace").split("\n")[:-1]
        _known.update({n: s for n, s in zip(names, said, strict=False) if len(s) <= LONGEST})
        names = names[len(said) + 1 :]
        if not names or done.returncode >= 0:
            return


OPERATOR = re.compile(r"operator(?![A-Za-z0-9_])(\(\)|\[\]|[-+*/%^&|~!=<>,]+| [^(]*|\"\"[^(]*)?")


@checked
def short(name: str) -> str:
    """Removes template arguments, return type and parameters from a demangled name.

    Args:
        name: A demangled name. A text without a list of parameters stays unchanged.

    Example:
        >>> tt.demangle.short("void at::native::fill<float>(int)")
        'at::native::fill'
    """
    out: list[str] = []
    at = 0
    while at < len(name):
        letter = name[at]
        operator = OPERATOR.match(name, at) if letter == "o" else None
        if operator and (at == 0 or not (name[at - 1].isalnum() or name[at - 1] == "_")):
            out.append(operator[0])
            at = operator.end()
        elif letter in "<({":
            end = _closing(name, at)
            group = name[at:end]
            if letter == "{":
                out.append(re.sub(r"\(.*\)", "", group))
            elif group == "(anonymous namespace)":
                out.append(group)
            elif letter == "(" and name.startswith("::", end):
                out.append("()")
            elif letter == "(":
                return "".join(out) or name
            at = end
        else:
            if letter == " ":
                out.clear()  # it was the return type
            else:
                out.append(letter)
            at += 1
    return name


def readable(kernel: str) -> str:
    """Returns a kernel name for a screen: demangled, short if it is long, without control
    characters.

    Args:
        kernel: A mangled name.
    """
    name = demangle([kernel])[0]
    return text.printable(name if len(name) <= WHOLE else short(name))


def _closing(name: str, at: int) -> int:
    """Returns the position behind the bracket that closes the one at `at`, or the end of the
    name.
    """
    closes = {")": "(", "}": "{", ">": "<"}
    opened: list[str] = []
    for i in range(at, len(name)):
        letter = name[i]
        if letter in "({<":
            opened.append(letter)
        elif letter in closes and closes[letter] in opened:
            if letter == ">" and (opened[-1] != "<" or name[i - 1] == "-"):
                continue
            while opened.pop() != closes[letter]:  # what else was open was a comparison
                pass
            if not opened:
                return i + 1
    return len(name)
