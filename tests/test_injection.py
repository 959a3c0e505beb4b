"""The second door: the driver loads the recorder, where LD_PRELOAD does not reach the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

SIM = support.simulator_environment()


def injected(environment: dict[str, str], run: Path) -> dict[str, str]:
    return environment | {"CUDA_INJECTION64_PATH": str(support.SHIM), "TT_OUT": str(run)}


def test_preloaded_recorder_is_not_injected_again(built: Path, tmp_path: Path) -> None:
    command = support.command("example-vecadd", built)
    bare = support.run(command, SIM)
    environment = injected(support.recording(SIM, tmp_path / "run"), tmp_path / "run")
    assert support.run(command, environment) == bare
    assert len(tt.open(tmp_path / "run").processes) == 1


@pytest.mark.parametrize("name", ["example-vecadd", "dlopen_only"])
def test_unknown_driver_is_not_patched(name: str, built: Path, tmp_path: Path) -> None:
    """The simulator's entry points are not those of the real driver."""
    command = support.command(name, built)
    bare = support.run(command, SIM)
    outcome = support.run(command, injected(SIM, tmp_path / "run"))
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    assert outcome.stderr.count("\n") == 1
    assert outcome.stderr.startswith("ttanalyze: recording stopped: the program runs without")
    assert not (tmp_path / "run").exists()


def test_no_output_folder_prints_nothing(built: Path, tmp_path: Path) -> None:
    command = support.command("example-vecadd", built)
    environment = injected(SIM, tmp_path / "run")
    del environment["TT_OUT"]
    assert support.run(command, environment) == support.run(command, SIM)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that all users can read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes programs of other users")
def test_privileged_program_ignores_options(open_folder: Path, tmp_path: Path) -> None:
    """Whoever starts it must not have it write where they can't."""
    for library in (support.SHIM, support.SIMULATOR):
        shutil.copy(library, open_folder)
    program = open_folder / "program"
    line = ["gcc", f"-I{support.ROOT / 'interpose' / 'include'}", "-o", str(program)]
    line += [str(support.PROGRAMS / "context_primary.c"), str(support.SIMULATOR), "-pthread"]
    subprocess.run([*line, f"-Wl,-rpath,{open_folder}", "-ldl"], check=True)
    os.chown(program, 65534, 65534)
    bare = support.run([program], {})
    assert bare.status == 0
    environment = injected({"LD_PRELOAD": str(support.SHIM)}, tmp_path / "run")
    environment["CUDA_INJECTION64_PATH"] = str(open_folder / support.SHIM.name)
    program.chmod(0o4755)
    outcome = support.run([program], environment)
    assert outcome.stderr.startswith("ERROR: ld.so: object") or not outcome.stderr
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    assert "ttanalyze" not in outcome.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
@pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU")
@pytest.mark.parametrize("entry", ["stubs", "cupti"])
@pytest.mark.parametrize(
    "name",
    [
        *("example-vecadd", "example-training", "example-graph", "example-async"),
        *("dlopen_only", "proc_address_run"),
    ],
)
def test_injection_into_the_real_driver(name: str, entry: str, built: Path, tmp_path: Path) -> None:
    """What the driver lets in sees the same calls as what was preloaded."""
    bare_environment = support.bare_environment()
    command = support.command(name, built)
    bare = support.run(command, bare_environment)
    preloaded, run = tmp_path / "preloaded", tmp_path / "run"
    support.run(command, support.recording(bare_environment, preloaded))
    environment = injected(bare_environment, run) | {"TT_ENTRY": entry}
    assert support.run(command, environment) == bare
    expected, opened = tt.open(preloaded), tt.open(run)
    assert opened.events["kind"].tolist() == expected.events["kind"].tolist()
    assert len(opened.epochs) == len(expected.epochs)
    assert tt.verify(opened, preloaded / "manifest.json").same
