"""The examples do what they say, on the simulator and without the recorder."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import support

pytestmark = pytest.mark.native


@pytest.fixture(scope="session")
def examples(built: Path) -> Path:
    """The folder of the built examples."""
    return support.build_examples(built / "examples")


def output(program: Path, *arguments: str, **environment: str) -> str:
    outcome = support.run([program, *arguments], support.simulator_environment(**environment))
    assert outcome.status == 0, outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize("name", support.EXAMPLE_ARGUMENTS)
def test_examples_are_reproducible(name: str, examples: Path) -> None:
    arguments = support.EXAMPLE_ARGUMENTS[name]
    usual = output(examples / name, *arguments)
    for seed in ("1", "2"):
        assert (
            output(examples / name, *arguments, TT_SIM_SCHEDULE="random", TT_SIM_SEED=seed) == usual
        )


@pytest.mark.parametrize("name", support.EXAMPLE_ARGUMENTS)
def test_sizes_steps_and_seeds_matter(name: str, examples: Path) -> None:
    arguments = support.EXAMPLE_ARGUMENTS[name]
    steps = "--iterations" if name == "patching" else "--steps"
    changes = (["--seed", "2"], ["--size", "1000"], [steps, "2"])
    outputs = {output(examples / name, *arguments, *change) for change in ([], *changes)}
    assert len(outputs) == 4


@pytest.mark.parametrize("name", ["vecadd", "pipeline", "training"])
def test_a_perturbed_run_differs(name: str, examples: Path) -> None:
    usual = output(examples / name, "--steps", "4")
    assert output(examples / name, "--steps", "4", "--perturb", "2") != usual
    assert output(examples / name, "--steps", "4", "--perturb", "9") == usual


def test_vecadd_checks_itself(examples: Path) -> None:
    assert output(examples / "vecadd").endswith(", right\n")
    assert output(examples / "vecadd", "--perturb", "3").endswith(", right\n")


def test_training_learns(examples: Path) -> None:
    losses = [float(x) for x in re.findall(r"loss (\S+)", output(examples / "training"))]
    assert len(losses) == 20
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    "options", [[], ["--async"], ["--host"], ["--graphs"], ["--streams", "20"]], ids=str
)
@pytest.mark.parametrize("seed", range(3))
def test_streams_example_is_correct_in_any_order(
    seed: int, options: list[str], examples: Path
) -> None:
    arguments = ["--seed", str(seed), *options]
    usual = output(examples / "streams", *arguments)
    assert usual.endswith(", 0 elements wrong\n")
    random = {"TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": str(seed)}
    assert output(examples / "streams", *arguments, **random) == usual


def test_patching_checks_itself(examples: Path) -> None:
    arguments = ["--iterations", "9", "--toggle-every", "2"]
    patched = output(examples / "patching", *arguments, "--kernel-patch")
    plain = output(examples / "patching", *arguments)
    for printed, factors in ((plain, [2]), (patched, [2, 3, 4, 5, 6])):
        lines = re.findall(r"iteration \d+: value (\d+), factor (\d+), slot (\d)", printed)
        values = [(int(value), int(slot)) for value, _, slot in lines]
        assert values == [(1 + 100 * (i // 2), i // 2 % 2) for i in range(9)]
        assert sorted({int(factor) for _, factor, _ in lines}) == factors
        assert printed.count(", 0 wrong\n") == 11
        assert "same form: taken" in printed
        assert "node more: refused" in printed


def test_scribble_changes_the_masses_unless_fixed(examples: Path) -> None:
    found = [output(examples / "scribble", *how) for how in ([], ["--fixed"])]
    assert [line.split(", ")[-1] for line in found] == [
        "240 masses changed\n",
        "0 masses changed\n",
    ]


def test_race_depends_on_the_schedule_unless_fixed(examples: Path) -> None:
    def sums(seed: int, *how: str) -> str:
        return output(examples / "race", *how, TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed))

    assert len({sums(seed) for seed in range(1, 6)}) > 1
    fixed = {sums(seed, "--fixed") for seed in range(1, 6)}
    assert len(fixed) == 1
    assert fixed.pop().endswith(" 0 of 4 steps wrong\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--size", "0"],
        ["--size", "many"],
        ["--steps"],
        ["--steps", "-1"],
        ["--perturb", "1"],
        ["x"],
    ],
)
def test_wrong_arguments_print_the_usage(arguments: list[str], examples: Path) -> None:
    outcome = support.run([examples / "scribble", *arguments], support.simulator_environment())
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("usage: ")


def test_help_prints_the_usage(examples: Path) -> None:
    outcome = support.run([examples / "streams", "--help"], support.simulator_environment())
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("usage: ") and "--buffers N" in outcome.stdout


def test_failing_call_is_named(examples: Path) -> None:
    environment = support.simulator_environment(TT_SIM_FAULT="oom:1")
    outcome = support.run([examples / "vecadd"], environment)
    assert outcome.status == 1
    assert "cuMemAlloc(&device_a, bytes): CUDA_ERROR_OUT_OF_MEMORY" in outcome.stderr


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_ptx_is_current() -> None:
    command = ["make", "-s", "-C", str(support.EXAMPLES), "ptx-check"]
    done = subprocess.run(command, env=support.bare_environment(), check=False)
    assert done.returncode == 0


def test_ptx_has_the_oldest_version() -> None:
    newer = {"hangs.ptx": ".version 7.1\n.target sm_80\n"}  # it has mbarriers
    for path in support.EXAMPLES.glob("*.ptx"):
        oldest = newer.get(path.name, ".version 6.3\n.target sm_70\n")
        assert oldest in path.read_text(), path
