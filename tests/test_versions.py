"""Runs of every version of the format that was ever written can be read.

tests/data/runs/VERSION.tar.xz is examples/streams, recorded on the simulator with --deterministic,
--params, --compress 3 and --epoch sync,launch:2 by the package that wrote that version.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import ttanalyze as tt
from tests.support import Cli
from ttanalyze.format import files, layout

RUNS = Path(__file__).parent / "data" / "runs"
VERSIONS = range(files.OLDEST, layout.VERSION + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_run_of_each_format_version_is_readable(version: int, cli: Cli, tmp_path: Path) -> None:
    with tarfile.open(RUNS / f"{version}.tar.xz") as archive:
        archive.extractall(tmp_path / "run")
    run = tt.open(tmp_path / "run")
    info = cli("info", run.path).stdout
    assert f"(format {version}, " in info and "in device memory\n" in info
    assert tt.verify(run, run.path / "manifest.json").same
    assert run.manifest() == tt.open(run.path).manifest()
    launches = run.events[run.events["kind"] == "launch"]
    assert len(run.epochs) > 2 and len(launches) > 2
    assert set(launches["kernel"]) == {"advance", "combine"}
    last, region = len(run.epochs) - 1, int(run.regions["region"][0])
    assert cli("blame", run.path, "-r", region, "--watch", "changed", "-q").status == 0
    assert run.read(last, region).any()
    assert cli("diff", run.path, run.path, "-q").status == 0


def test_each_format_version_has_a_stored_run() -> None:
    stored = sorted(int(path.name.split(".")[0]) for path in RUNS.iterdir())
    assert stored == list(VERSIONS)
