"""Code to run in place of a kernel's: PTX, cubins, CUDA C++ (NVRTC) and LLVM IR (NVVM)."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ttanalyze.code import elf, fatbin
from ttanalyze.errors import Error, system_errors

SOURCES = (".cu", ".ll", ".bc")
SUFFIXES = (".ptx", ".cubin", ".fatbin", *SOURCES)
SHOWN = 3  # lines of a compiler's log
NVRTC = ("nvrtc", "CUDA C++", "nvidia-cuda-nvrtc", ("13", "12", "11.2"))
NVVM = ("nvvm", "LLVM IR", "nvidia-nvvm", ("4",))
LIBDEVICE = "libdevice.10.bc"


def read(path: Path) -> bytes:
    """Reads a file with code. Raises Error if it does not exist or is of another kind."""
    if path.suffix not in SUFFIXES:
        raise Error(f"{path}: expected {', '.join(SUFFIXES)}")
    with system_errors(path):
        return path.read_bytes()


def compiled(path: Path, data: bytes, architecture: int) -> bytes:
    """Returns the image of a file with code, compiled to PTX if it is CUDA C++ or LLVM IR.

    Raises Error if the compiler is missing or refuses it.
    """
    if path.suffix not in SOURCES:
        return data
    compiler = _Nvrtc if path.suffix == ".cu" else _Nvvm
    return compiler(path, data).compile(architecture)


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


class _Compiler:
    """A program of a compiler's library. Both libraries have functions of the same form."""

    PREFIX, LOG, RESULT = "", "", ""

    def __init__(self, library: Any, path: Path) -> None:
        self._library, self._path = library, path
        self._program = ctypes.c_void_p()

    def _check(self, call: str, *arguments: Any) -> None:
        result = getattr(self._library, self.PREFIX + call)(*arguments)
        if result:
            text = getattr(self._library, f"{self.PREFIX}GetErrorString")
            text.restype = ctypes.c_char_p
            raise Error(f"{self.PREFIX}{call}: {text(result).decode()}")

    def _result(self, options: Sequence[str]) -> bytes:
        """Compiles and ends the program."""
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            compile_program = getattr(self._library, f"{self.PREFIX}CompileProgram")
            if compile_program(self._program, len(options), words):
                log = self._text(self.LOG).split(b"\0")[0].decode(errors="replace")
                lines = [line.strip() for line in log.splitlines() if line.strip()]
                name = self.PREFIX.upper()
                raise Error("; ".join(lines[:SHOWN]) or f"{self._path}: {name} can't compile it")
            return self._text(self.RESULT).rstrip(b"\0")
        finally:
            getattr(self._library, f"{self.PREFIX}DestroyProgram")(ctypes.byref(self._program))

    def _text(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"Get{what}Size", self._program, ctypes.byref(size))
        out = ctypes.create_string_buffer(max(1, size.value))
        self._check(f"Get{what}", self._program, out)
        return out.raw


class _Nvrtc(_Compiler):
    PREFIX, LOG, RESULT = "nvrtc", "ProgramLog", "PTX"

    def __init__(self, path: Path, source: bytes) -> None:
        super().__init__(_library(*NVRTC), path)
        given = ctypes.byref(self._program), source, str(path).encode(), 0, None, None
        self._check("CreateProgram", *given)

    def compile(self, architecture: int) -> bytes:
        options = [f"--gpu-architecture=compute_{architecture}"]
        folders = [self._path.resolve().parent]
        for home in (*_toolkits(), *_packages()):
            folders += [home / "include", home / "include" / "cccl"]
        return self._result([*options, *(f"-I{path}" for path in folders if path.is_dir())])


class _Nvvm(_Compiler):
    PREFIX, LOG, RESULT = "nvvm", "ProgramLog", "CompiledResult"

    def __init__(self, path: Path, module: bytes) -> None:
        super().__init__(_library(*NVVM), path)
        self._check("CreateProgram", ctypes.byref(self._program))
        given = module, ctypes.c_size_t(len(module)), str(path).encode()
        self._check("AddModuleToProgram", self._program, *given)
        for library in _libdevices():
            functions = library.read_bytes()
            given = functions, ctypes.c_size_t(len(functions)), LIBDEVICE.encode()
            self._check("LazyAddModuleToProgram", self._program, *given)
            break

    def compile(self, architecture: int) -> bytes:
        return self._result([f"-arch=compute_{architecture}"])


def _library(name: str, language: str, package: str, versions: Sequence[str]) -> Any:
    for path in _candidates(name, versions):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    raise Error(
        f"{language} needs {name.upper()}, which was not found: give PTX or a cubin, or "
        f"pip install {package}, or set CUDA_HOME"
    )


def _toolkits() -> list[Path]:
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    return [Path(path) for path in (*named, "/usr/local/cuda") if path]


def _packages() -> Iterator[Path]:
    """Yields the folders of NVIDIA's Python packages."""
    package = importlib.util.find_spec("nvidia")
    for site in (package and package.submodule_search_locations) or ():
        yield from sorted(Path(site).glob("*"))


def _candidates(name: str, versions: Sequence[str]) -> Iterator[str]:
    """Yields possible paths of a compiler: as the loader finds it, in toolkits, in packages."""
    yield from (f"lib{name}.so.{version}" for version in versions)
    for home in (*_toolkits(), *_packages()):
        for folder in ("lib64", "lib", "nvvm/lib64", "nvvm/lib"):
            for path in sorted((home / folder).glob(f"lib{name}.so*")):
                yield str(path)


def _libdevices() -> Iterator[Path]:
    for home in (*_toolkits(), *_packages()):
        path = home / "nvvm/libdevice" / LIBDEVICE
        if path.is_file():
            yield path
