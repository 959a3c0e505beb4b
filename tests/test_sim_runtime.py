"""Programs that nvcc builds run on the simulator, which has a CUDA runtime of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

PROGRAMS = sorted((support.PROGRAMS / "runtime").glob("*.cu"))


def nvcc() -> str | None:
    """The compiler on the path, of a toolkit, or of NVIDIA's Python packages."""
    package = importlib.util.find_spec("nvidia")
    homes = [Path(site) / "cu13" for site in (package and package.submodule_search_locations) or ()]
    homes += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), Path("/usr/local/cuda-13.0")]
    return shutil.which("nvcc") or next(
        (str(home / "bin/nvcc") for home in homes if (home / "bin/nvcc").exists()), None
    )


@pytest.fixture
def compiler() -> str:
    found = nvcc()
    if not found:
        pytest.skip("nvcc is missing: NVIDIA has no package of it for this machine")
    return found


def build(compiler: str, source: Path, target: Path, *options: str) -> Path:
    command = [compiler, "-arch=compute_75", "-cudart", "shared", *options]
    subprocess.run([*command, "-o", str(target), str(source)], check=True)
    return target


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(path, marks=() if path.stem == "graph" else pytest.mark.long, id=path.stem)
        for path in PROGRAMS
    ],
)
def test_programs_of_nvcc_run(source: Path, compiler: str, tmp_path: Path) -> None:
    """Each prints its first line, with and without the recorder."""
    program = build(compiler, source, tmp_path / "program")
    expected = source.read_text().splitlines()[0].removeprefix("// ") + "\n"
    bare = support.run([program], support.simulator_environment())
    assert (bare.stdout, bare.stderr, bare.status) == (expected, "", 0)
    done = support.ttanalyze("record", "--sim", "-o", tmp_path / "run", "--", program)
    assert (done.stdout, done.status) == (expected, 0)
    run = tt.open(tmp_path / "run")
    assert not run.warnings and len(run.events)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_compressed_code_is_read(mode: str, compiler: str, tmp_path: Path) -> None:
    source = support.PROGRAMS / "runtime" / "add.cu"
    options = ["-no-compress"] if mode == "none" else ["-compress-mode", mode]
    program = build(compiler, source, tmp_path / "program", *options)
    assert support.run([program], support.simulator_environment()).stdout == "2 198\n"


@pytest.mark.long
def test_calls_that_are_missing_are_named(compiler: str, tmp_path: Path) -> None:
    """By the loader, when the program makes them."""
    source = tmp_path / "missing.cu"
    source.write_text(
        "int main() { return cudaDeviceFlushGPUDirectRDMAWrites("
        "cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, "
        "cudaFlushGPUDirectRDMAWritesToOwner); }"
    )
    program = build(compiler, source, tmp_path / "program")
    done = support.run([program], support.simulator_environment())
    assert done.status and "cudaDeviceFlushGPUDirectRDMAWrites" in done.stderr


@pytest.mark.long
def test_static_runtime_is_told_to_be_shared(compiler: str, tmp_path: Path) -> None:
    source = support.PROGRAMS / "runtime" / "add.cu"
    program = tmp_path / "program"
    command = [compiler, "-arch=compute_75", "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    done = support.run([program], support.simulator_environment())
    assert done.status == 1 and done.stderr.count("\n") == 1
    assert "build the program with nvcc -cudart shared" in done.stderr
