"""On a GPU: thousands of epochs under work in eight streams, none of them torn."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttanalyze as tt
from examples.demos import streams
from tests import support
from tests.gpu.test_gpu import BARE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]


def stress(built: Path, run: Path, *arguments: str, **options: str) -> streams.Findings:
    """Records examples/streams.c, which must not notice, and looks at each buffer in each epoch."""
    program = support.build_examples(built / "examples") / "streams"
    command = [str(program), "--size", "500000", "--rounds", "300", *arguments]
    bare = support.run(command, BARE)
    assert (bare.status, bare.stderr) == (0, "")
    recorded = support.recording(BARE, run, epoch="launch,graph", params="1", **options)
    assert support.run(command, recorded).stdout == bare.stdout
    assert not tt.open(run).epochs["refused"].any()
    return streams.check(tt.open(run))


@pytest.mark.parametrize("options", [[], ["--async"], ["--graphs"]])
@pytest.mark.parametrize(("deps", "regions"), [("region", "touched"), ("device", "all")])
def test_no_epoch_is_torn(
    deps: str, regions: str, options: list[str], built: Path, run_path: Path
) -> None:
    arguments = ["--steps", "3500", *options]
    found = stress(built, run_path, *arguments, deps=deps, regions=regions)
    assert found.epochs > 2000
    assert not found.wrong
    assert not tt.open(run_path).epochs["loose"].any()


def test_epochs_without_ordering_are_torn(built: Path, run_path: Path) -> None:
    """How often is up to the GPU: the buffers are large, so that a capture takes its time."""
    larger = ["--steps", "1000", "--size", "4000000"]
    found = stress(built, run_path, *larger, deps="off", regions="all")
    assert found.torn > 0
