"""Many streams at once, an epoch after each launch: no epoch has a torn buffer where captures are
waited for, and where they are not, torn buffers are seen.

The simulator runs what is not ordered in any order, and kernels in parts with others between them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from examples.demos import streams
from tests import support

pytestmark = [pytest.mark.native, pytest.mark.large]


def stress(built: Path, run: Path, seed: int, *arguments: str, **options: str) -> streams.Findings:
    """Records examples/streams.c, which must not notice, and looks at each buffer in each epoch."""
    program = support.build_examples(built / "examples") / "streams"
    command = [str(program), "--seed", str(seed), *arguments]
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed))
    bare = support.run(command, environment)
    assert (bare.status, bare.stderr) == (0, "")
    recorded = support.recording(environment, run, epoch="launch,graph", params="1", **options)
    assert support.run(command, recorded) == bare
    opened = tt.open(run)
    assert tt.verify(opened, run / "manifest.json").same
    assert not opened.epochs["refused"].any()
    assert opened.processes[0].info["counters"]["events_lost"] == 0
    return streams.check(opened)


ORDERED = [("region", "touched"), ("region", "all"), ("device", "touched"), ("device", "all")]


@pytest.mark.sampled
@pytest.mark.parametrize("options", [[], ["--async"], ["--host"], ["--graphs", "--async"]])
@pytest.mark.parametrize(("deps", "regions"), ORDERED)
def test_no_epoch_is_torn(
    deps: str, regions: str, options: list[str], built: Path, run_path: Path
) -> None:
    seed = 1 + ORDERED.index((deps, regions)) + len(options)
    arguments = ["--steps", "80", "--size", "2000", *options]
    found = stress(built, run_path, seed, *arguments, deps=deps, regions=regions)
    assert found.epochs > 30
    assert found.looked > 15 * 30
    assert all(wrong.loose for wrong in found.wrong)
    if "--host" not in options:  # which a slow machine may not call in time
        assert not tt.open(run_path).epochs["loose"].any()


def test_no_epoch_of_large_buffers_is_torn(built: Path, run_path: Path) -> None:
    found = stress(built, run_path, 1, "--steps", "60", "--size", "40000", "--buffers", "5")
    assert found.epochs > 20
    assert not found.wrong


@pytest.mark.long
def test_none_of_a_thousand_epochs_is_torn(built: Path, run_path: Path) -> None:
    arguments = ["--steps", "1700", "--size", "1500", "--async"]
    found = stress(built, run_path, 5, *arguments, deps="region", regions="touched")
    assert found.epochs > 1000
    assert not found.wrong


@pytest.mark.parametrize("regions", ["touched", "all"])
@pytest.mark.parametrize("seed", [1, 2])
def test_epochs_without_ordering_are_torn(
    seed: int, regions: str, built: Path, run_path: Path
) -> None:
    """Which also shows that who looks would see it."""
    found = stress(built, run_path, seed, "--steps", "150", deps="off", regions=regions)
    assert found.epochs > 80
    assert found.torn > 5
    assert len(found.wrong) > found.torn
    assert tt.open(run_path).epochs["loose"].all()
