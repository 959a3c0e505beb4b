"""The second door: the driver loads the recorder, where LD_PRELOAD does not reach the program."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

SIM = support.simulator_environment()


def injected(environment: dict[str, str], run: Path) -> dict[str, str]:
    return environment | {"CUDA_INJECTION64_PATH": str(support.SHIM), "TT_OUT": str(run)}


def test_a_preloaded_recorder_needs_no_second_door(built: Path, tmp_path: Path) -> None:
    command = support.command("example-vecadd", built)
    bare = support.run(command, SIM)
    environment = injected(support.recording(SIM, tmp_path / "run"), tmp_path / "run")
    assert support.run(command, environment) == bare
    assert len(tt.open(tmp_path / "run").processes) == 1


@pytest.mark.parametrize("name", ["example-vecadd", "dlopen_only"])
def test_a_driver_of_unknown_form_is_left_alone(name: str, built: Path, tmp_path: Path) -> None:
    """The simulator's entry points are not those of the real driver."""
    command = support.command(name, built)
    bare = support.run(command, SIM)
    outcome = support.run(command, injected(SIM, tmp_path / "run"))
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    assert outcome.stderr.count("\n") == 1
    assert outcome.stderr.startswith("ttanalyze: recording stopped: this program runs without")
    assert not (tmp_path / "run").exists()


def test_without_an_output_folder_nothing_is_said(built: Path, tmp_path: Path) -> None:
    command = support.command("example-vecadd", built)
    environment = injected(SIM, tmp_path / "run")
    del environment["TT_OUT"]
    assert support.run(command, environment) == support.run(command, SIM)


@pytest.mark.gpu
@pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU")
def test_the_real_driver_lets_us_in(built: Path, tmp_path: Path) -> None:
    bare_environment = support.bare_environment()
    names = ("example-vecadd", "example-training", "example-graph", "example-async")
    for name in (*names, "dlopen_only", "proc_address_run"):
        command = support.command(name, built)
        bare = support.run(command, bare_environment)
        preloaded, run = tmp_path / f"{name}-preloaded", tmp_path / name
        support.run(command, support.recording(bare_environment, preloaded))
        assert support.run(command, injected(bare_environment, run)) == bare
        expected, opened = tt.open(preloaded), tt.open(run)
        assert opened.events["kind"].tolist() == expected.events["kind"].tolist()
        assert len(opened.epochs) == len(expected.epochs)
        assert tt.verify.verify(opened, run / "manifest.json").same
