"""`memcheck`: accesses outside of allocations, from traces of launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.check import corpus

SIM = support.simulator_environment()


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    corpus.build(folder)
    return folder / "faults"


def traced(program: Path, run: Path, *words: str, kind: str = "addresses") -> None:
    # Deterministic allocations have room behind them, so that a wrong access does not fail.
    options = ("--deterministic", "--kind", kind, "--cpu-callstack", "backtrace")
    given: list[str | Path] = ["instrument", "--sim", *options, "-o", run, "--", program, *words]
    assert support.ttanalyze(*given, environment=SIM).status == 0


def memcheck(run: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = support.ttanalyze("memcheck", run, "--json", *options)
    return done.status, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "what", "access", "count", "distance"),
    [
        ("end_4", "outside", "store", 1, 0),
        ("start_4", "outside", "store", 1, -4),
        ("read_past_end", "outside", "load", 1, 0),
        ("write_after_free", "freed", "store", 1000, 0),
    ],
)
def test_wrong_accesses_are_found_with_their_thread_and_memory(
    name: str, what: str, access: str, count: int, distance: int, faults: Path, tmp_path: Path
) -> None:
    traced(faults, tmp_path / "run", name)
    status, report = memcheck(tmp_path / "run")
    found = [one for launch in report["launches"] for one in launch["found"]]
    one = found[-1]
    assert status == 1 and report["found"]
    assert (one["what"], one["access"], one["count"]) == (what, access, count)
    assert one["distance"] == distance and one["size"] == 4
    assert one["text"].startswith("st." if access == "store" else "ld.")
    assert "faults.c:" in one["allocated"]
    text = support.ttanalyze("memcheck", tmp_path / "run").stdout
    assert "wrong access" in text and f"region {one['region']}" in text
    traced(faults, tmp_path / "fixed", name, "--fixed", kind="values")
    status, report = memcheck(tmp_path / "fixed")
    assert status == 0 and all(launch["accesses"] for launch in report["launches"])


def test_a_launch_without_addresses_is_never_clean(faults: Path, tmp_path: Path) -> None:
    traced(faults, tmp_path / "run", "end_4", kind="opcode")
    done = support.ttanalyze("memcheck", tmp_path / "run")
    assert done.status == 2 and "the trace has no addresses" in done.stdout


def test_a_run_without_traces_says_how_to_make_one(faults: Path, tmp_path: Path) -> None:
    environment = support.recording(SIM, tmp_path / "run")
    assert support.run([faults, "end_4", "--fixed"], environment).status == 0
    done = support.ttanalyze("memcheck", tmp_path / "run")
    assert done.status == 2 and "ttanalyze instrument --kind addresses" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    traced(faults, tmp_path / "traced", "end_4")
    done = support.ttanalyze("memcheck", tmp_path / "traced", "--launch", "1")
    assert done.status == 2 and "launch 1 was not traced" in done.stderr
