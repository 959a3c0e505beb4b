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
from ttanalyze.util.libraries import STATIC_RUNTIME

PROGRAMS = sorted((support.PROGRAMS / "runtime").glob("*.cu"))


def nvcc() -> str | None:
    """The compiler of NVIDIA's Python packages, on the path, or of a toolkit."""
    package = importlib.util.find_spec("nvidia")
    homes = [Path(site) / "cu13" for site in (package and package.submodule_search_locations) or ()]
    packed = next((str(home / "bin/nvcc") for home in homes if (home / "bin/nvcc").exists()), None)
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    return packed or shutil.which("nvcc") or (str(toolkit) if toolkit.exists() else None)


@pytest.fixture
def compiler() -> str:
    found = nvcc()
    if not found:
        pytest.skip("nvcc is missing: NVIDIA has no package of it for this machine")
    return found


def build(
    compiler: str, source: Path, target: Path, *options: str, runtime: str = "static"
) -> Path:
    """The program, with NVIDIA's runtime in it (nvcc's default) or a shared one."""
    command = [compiler, "-arch=compute_75", "-cudart", runtime, *options]
    packed = Path(compiler).parents[1] / "lib" / "libcudart.so.13"
    if runtime == "shared" and packed.exists():  # the package has no name for the linker
        link = target.parent / "libcudart.so"
        link.unlink(missing_ok=True)
        link.symlink_to(packed)
        command.append(f"-L{target.parent}")
    subprocess.run([*command, "-o", str(target), str(source)], check=True)
    return target


def environment() -> dict[str, str]:
    """That of `record --sim`, without the recorder."""
    simulated = support.simulator_environment()
    preload = [simulated.get("LD_PRELOAD"), str(support.SIMULATOR.parent / STATIC_RUNTIME)]
    return simulated | {"LD_PRELOAD": ":".join(filter(None, preload))}


@pytest.mark.whole
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_programs_of_nvcc_run(source: Path, compiler: str, tmp_path: Path) -> None:
    """Each prints its first line, with and without the recorder."""
    assert len(PROGRAMS) >= 10
    program = build(compiler, source, tmp_path / "program")
    expected = source.read_text().splitlines()[0].removeprefix("// ") + "\n"
    for environ in (environment(), support.recording(environment(), tmp_path / "run")):
        done = support.run([program], environ)
        assert (done.stdout, done.stderr, done.status) == (expected, "", 0)
    run = tt.open(tmp_path / "run")
    assert not run.warnings and len(run.events)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(path, marks=() if path.stem == "graph" else pytest.mark.long, id=path.stem)
        for path in PROGRAMS
    ],
)
def test_shared_runtime_is_replaced(source: Path, compiler: str, tmp_path: Path) -> None:
    """By the command alone."""
    program = build(compiler, source, tmp_path / "program", runtime="shared")
    expected = source.read_text().splitlines()[0].removeprefix("// ") + "\n"
    done = support.ttanalyze("record", "--sim", "-o", tmp_path / "run", "--", program)
    assert (done.stdout, done.status) == (expected, 0)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_compressed_code_is_read(mode: str, compiler: str, tmp_path: Path) -> None:
    source = support.PROGRAMS / "runtime" / "add.cu"
    options = ["-no-compress"] if mode == "none" else ["-compress-mode", mode]
    program = build(compiler, source, tmp_path / "program", *options)
    assert support.run([program], environment()).stdout == "2 198\n"


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_calls_that_are_missing_are_named(runtime: str, compiler: str, tmp_path: Path) -> None:
    """When the program makes them, in one line."""
    source = tmp_path / "missing.cu"
    source.write_text(
        "int main() { return cudaDeviceFlushGPUDirectRDMAWrites("
        "cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, "
        "cudaFlushGPUDirectRDMAWritesToOwner); }"
    )
    program = build(compiler, source, tmp_path / "program", runtime=runtime)
    done = support.run([program], environment())
    assert (done.stdout, done.status, done.stderr.count("\n")) == ("", 127, 1)
    assert "cudaDeviceFlushGPUDirectRDMAWrites" in done.stderr


@pytest.mark.long
def test_functions_of_a_program_keep_their_code(compiler: str, tmp_path: Path) -> None:
    """Names like those of the runtime, which are not the runtime's."""
    source = tmp_path / "own.cu"
    source.write_text(
        "#include <stdio.h>\n"
        'extern "C" __attribute__((noinline)) int cudaOwn(int a) { return a * 2; }\n'
        'extern "C" __attribute__((noinline)) int cuda_own(int a) { return a * 3; }\n'
        'int main(int n, char **) { int d; cudaGetDevice(&d); printf("%d %d %d\\n", d, '
        "cudaOwn(n), cuda_own(n)); }"
    )
    program = build(compiler, source, tmp_path / "program")
    assert support.run([program], environment()).stdout == "0 2 3\n"


@pytest.mark.long
@pytest.mark.parametrize("how", ["not preloaded", "no symbols"])
def test_runtime_of_nvidia_names_its_table(how: str, compiler: str, tmp_path: Path) -> None:
    """Where its runtime can't be replaced, the program ends by itself after one line."""
    options = ["-Xlinker", "--strip-all"] if how == "no symbols" else []
    source = support.PROGRAMS / "runtime" / "add.cu"
    program = build(compiler, source, tmp_path / "program", *options)
    simulated = support.simulator_environment() if how == "not preloaded" else environment()
    done = support.run([program], simulated)
    assert done.status == 1 and done.stderr.count("\n") == 1
    assert "the driver's export table 6bd5fb6c-" in done.stderr
