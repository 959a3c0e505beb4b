"""Code to try in place of a kernel's: PTX, cubins, and CUDA C++ that NVRTC compiles."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ttanalyze.code import elf, fatbin
from ttanalyze.errors import Error, system_errors

SUFFIXES = (".ptx", ".cubin", ".fatbin", ".cu")
VERSIONS = ("13", "12", "11.2")  # of NVRTC
SHOWN = 3  # lines of a compiler's log


def read(path: Path) -> bytes:
    """Reads a file with code. Raises Error if it does not exist or is of another kind."""
    if path.suffix not in SUFFIXES:
        raise Error(f"{path}: expected {', '.join(SUFFIXES)}")
    with system_errors(path):
        return path.read_bytes()


def ptx_of(image: bytes, architecture: int) -> bytes | None:
    """Returns the PTX of an image for devices of an architecture such as 90, None if it has
    none.
    """
    if image.startswith(elf.MAGIC):
        return None
    if not image.startswith(fatbin.MAGIC):
        return image
    found = [
        (entry.architecture, entry.contents)
        for entry in fatbin.entries(image)
        if entry.kind == fatbin.PTX and entry.contents and entry.architecture <= architecture
    ]
    return max(found)[1] if found else None


# ---- NVRTC ----


def compile_cuda(path: Path, source: bytes, architecture: int) -> bytes:
    """Compiles CUDA C++ to PTX. Raises Error if NVRTC is missing or refuses it."""
    library = _nvrtc()
    program = ctypes.c_void_p()
    given = ctypes.byref(program), source, str(path).encode(), 0, None, None
    _check(library, "nvrtcCreateProgram", *given)
    try:
        options = [f"--gpu-architecture=compute_{architecture}", f"-I{path.resolve().parent}"]
        options += [f"-I{path}" for home in _toolkits() if (path := home / "include").is_dir()]
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), words):
            log = _text(library, "ProgramLog", program).decode(errors="replace")
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            raise Error("; ".join(lines[:SHOWN]) or f"{path}: NVRTC can't compile it")
        return _text(library, "PTX", program).rstrip(b"\0")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: Any, what: str, program: Any) -> bytes:
    size = ctypes.c_size_t()
    _check(library, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    out = ctypes.create_string_buffer(max(1, size.value))
    _check(library, f"nvrtcGet{what}", program, out)
    return out.raw


def _check(library: Any, call: str, *arguments: Any) -> None:
    result = getattr(library, call)(*arguments)
    if result:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise Error(f"{call}: {library.nvrtcGetErrorString(result).decode()}")


def _nvrtc() -> Any:
    for name in _candidates():
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise Error(
        "CUDA C++ needs NVRTC, which was not found: give PTX or a cubin, or "
        "pip install nvidia-cuda-nvrtc, or set CUDA_HOME"
    )


def _toolkits() -> list[Path]:
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    return [Path(path) for path in (*named, "/usr/local/cuda") if path]


def _candidates() -> Iterator[str]:
    """Yields possible paths of NVRTC: as the loader finds it, in toolkits, in Python packages."""
    yield from (f"libnvrtc.so.{version}" for version in VERSIONS)
    folders = [home / "lib64" for home in _toolkits()]
    package = importlib.util.find_spec("nvidia")
    for site in (package and package.submodule_search_locations) or ():
        folders += sorted(Path(site).glob("*/lib"))
    for folder in folders:
        for path in sorted(folder.glob("libnvrtc.so*")):
            yield str(path)
