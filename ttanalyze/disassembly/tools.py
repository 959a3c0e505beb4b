"""Runs nvdisasm, which disassembles machine code, and ptxas, which compiles PTX.

They are searched in PATH, CUDA_HOME, CUDA_PATH, Python packages and /usr/local/cuda*. If one does
not know an architecture, the next one is used.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ttanalyze.errors import Error
from ttanalyze.output import text

SECONDS = 120
PACKAGES = {"nvdisasm": "ttanalyze[sass]", "ptxas": "nvidia-cuda-nvcc"}
FEATURES_FROM = 90  # architectures with instructions that are theirs alone: sm_90a
VERSION = re.compile(r"V(\d+(?:\.\d+)+)")


def _candidates(name: str) -> Iterator[Path]:
    found = shutil.which(name)
    if found:
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home, "bin", name)
    for find_folders in OTHERS:
        yield from (Path(folder, name) for folder in find_folders())


def _packages() -> Iterator[Path]:
    for package, inside in (("nvidia", "*/bin"), ("triton", "backends/nvidia/bin")):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from sorted(Path(folder).glob(inside), reverse=True)


def _toolkits() -> Iterator[Path]:
    yield from sorted(Path("/usr/local").glob("cuda*/bin"), reverse=True)


OTHERS: tuple[Callable[[], Iterator[Path]], ...] = (_packages, _toolkits)


def find(name: str) -> list[Path]:
    """Returns all programs with a name, the preferred one first."""
    usable = (path for path in _candidates(name) if os.access(path, os.X_OK) and path.is_file())
    return list(dict.fromkeys(path.resolve() for path in usable))


def needed(name: str) -> list[Path]:
    """Returns what `find` returns. Raises Error, which says what to install, if there is none."""
    found = find(name)
    if not found:
        raise Error(
            f"no {name} in PATH, CUDA_HOME, /usr/local/cuda* or Python's packages: "
            f"pip install '{PACKAGES[name]}', or install the CUDA toolkit"
        )
    return found


@functools.cache
def version(tool: Path) -> str:
    """Returns name and version, such as `nvdisasm 13.0.39`."""
    try:
        done = subprocess.run(
            [tool, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return tool.name
    found = VERSION.search(done.stdout)
    return f"{tool.name} {found[1]}" if found else tool.name


def disassembled(code: bytes, architecture: int) -> tuple[str, Path]:
    """Returns the text of instructions that begin at address 0, and the tool. Raises Error."""
    reason = ""
    with tempfile.TemporaryDirectory(prefix="ttanalyze-") as folder:
        file = Path(folder, "code")
        file.write_bytes(code)
        for tool in needed("nvdisasm"):
            for name in _names(architecture):
                done = _run(
                    [
                        str(tool),
                        "--binary",
                        name.upper().replace("_", ""),
                        "--no-dataflow",
                        str(file),
                    ]
                )
                if not isinstance(done, str) and done.returncode == 0 and done.stdout:
                    return done.stdout, tool
                reason = reason or f"{tool}: {done if isinstance(done, str) else _why(done)}"
    raise Error(f"code for sm_{architecture} can't be disassembled: {reason}")


def assembled(ptx: bytes, architecture: int) -> tuple[bytes, Path]:
    """Returns a cubin that was compiled from PTX, and the tool. Raises Error."""
    reason = ""
    with tempfile.TemporaryDirectory(prefix="ttanalyze-") as folder:
        source, cubin = Path(folder, "code.ptx"), Path(folder, "code.cubin")
        source.write_bytes(ptx.split(b"\0", 1)[0])
        for tool in needed("ptxas"):
            for name in _names(architecture):
                done = _run([str(tool), f"-arch={name}", "-o", str(cubin), str(source)])
                if not isinstance(done, str) and done.returncode == 0 and cubin.is_file():
                    return cubin.read_bytes(), tool
                reason = reason or f"{tool}: {done if isinstance(done, str) else _why(done)}"
    raise Error(f"PTX can't be compiled for sm_{architecture}: {reason}")


def _names(architecture: int) -> list[str]:
    plain = f"sm_{architecture}"
    return [f"{plain}a", plain] if architecture >= FEATURES_FROM else [plain]


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | str:
    """Runs a command and returns its result, or the reason why it failed."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS} s"
    except OSError as e:
        return e.strerror or str(e)


def _why(done: subprocess.CompletedProcess[str]) -> str:
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return text.printable(said[0].strip()) if said else f"exit status {done.returncode}"
