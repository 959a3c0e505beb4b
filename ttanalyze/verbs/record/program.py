"""Checks a program before it runs: whether it can run, and whether LD_PRELOAD reaches it.

It looks only for common surprises. A file of an unknown form is left to the system.
"""

from __future__ import annotations

import os
import stat
import struct

from ttanalyze.errors import Error

ELF, CLASS_64, INTERPRETER = b"\x7fELF", 2, 3
PRIVILEGED = "runs with privileges of its own"  # there the recorder takes no options
SCRIPTS = 4  # interpreters of interpreters, as the kernel has it


def find(name: str) -> str:
    """Returns the path of a program, from PATH if the name has no slash. Raises Error."""
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(p or ".", name) for p in os.get_exec_path()] if name else []
    there = [c for c in candidates if os.path.exists(c)]
    for candidate in there:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    if not there:
        if "/" not in name and os.path.isfile(name):
            raise Error(f"{name}: not found in PATH; for the one in this directory use ./{name}")
        where = "; check its path" if "/" in name else " in PATH; check its name, or give its path"
        raise Error(f"{name or 'the empty name'}: not found{where}")
    if os.path.isdir(there[0]):
        raise Error(f"{name}: is a directory; name the program in it")
    raise Error(f"{name}: not executable; chmod +x {there[0]}, or put its interpreter in front")


def obstacle(name: str, path: str) -> str | None:
    """Returns why LD_PRELOAD does not reach a program, None if it does.

    name: its name in errors. Raises Error if the program cannot run with the recorder.
    """
    for _ in range(SCRIPTS):
        head = _head(path)
        if not head.startswith(b"#!"):
            break
        words = head[2:].partition(b"\n")[0].split()
        interpreter = os.fsdecode(words[0]) if words else ""
        if not os.path.exists(interpreter):
            raise Error(f"{name}: its interpreter {interpreter or '(none)'} is missing")
        path = interpreter
    else:
        return None
    if head.startswith(ELF):
        return _obstacle_of(name, path, head)
    if b"\0" in head:
        raise Error(f"{name}: neither a program of this system nor a script")
    return None


def _head(path: str) -> bytes:
    """Returns the beginning of a file, b"" if it is executable but not readable."""
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _obstacle_of(name: str, path: str, head: bytes) -> str | None:
    ours = _head("/proc/self/exe")
    if head[4:6] != ours[4:6] or head[18:20] != ours[18:20]:
        bits = 64 if head[4] == CLASS_64 else 32
        raise Error(f"{name}: a {bits}-bit program for another machine; the recorder is for this")
    loader = _interpreter(path, head)
    if loader is None:
        return "is statically linked"
    if not os.path.exists(loader):
        raise Error(f"{name}: its loader {loader} is missing; it was built for another system")
    if "musl" in os.path.basename(loader):
        raise Error(
            f"{name}: built for musl; the recorder, like the driver, needs the GNU C library"
        )
    return PRIVILEGED if _privileged(path) else None


def _interpreter(path: str, head: bytes) -> str | None:
    """Returns the loader of an ELF program, None for a static one."""
    try:
        table, size, count = struct.unpack_from("<32xQ14xHH", head)
        for at in range(table, table + size * count, size):
            kind, offset, length = struct.unpack_from("<IxxxxQ16xQ", head, at)
            if kind == INTERPRETER:
                with open(path, "rb") as file:
                    file.seek(offset)
                    return os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
    except (struct.error, ValueError, OSError):
        raise Error(f"{path}: a damaged program file") from None
    return None


def _privileged(path: str) -> bool:
    """Returns whether the loader ignores LD_PRELOAD because the program gains rights."""
    found = os.stat(path)
    if found.st_mode & stat.S_ISUID and found.st_uid != os.geteuid():
        return True
    if found.st_mode & stat.S_ISGID and found.st_gid != os.getegid():
        return True
    return os.geteuid() != 0 and "security.capability" in _attributes(path)


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError:
        return []
