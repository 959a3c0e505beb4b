"""Delays inside kernels on the simulator: warps are held up at PTX statements."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.support import Outcome
from ttanalyze.core import delays

pytestmark = pytest.mark.native
SIM = support.simulator_environment()


@pytest.fixture(scope="module")
def examples(built: Path) -> Path:
    return support.build_examples(built / "examples")


def record(run: Path, command: list[str | Path], **options: str) -> Outcome:
    return support.run(command, support.recording(SIM, run, **options))


def points(run: Path) -> dict[str, Any]:
    kernels = delays.of_run(tt.open(run)).kernels.values()
    return {pc: p for k in kernels for pc, p in k["instrumentation_points"].items()}


@pytest.mark.long
def test_delays_change_only_what_is_not_ordered(examples: Path, tmp_path: Path) -> None:
    """The same seed gives the same result; a kernel with its barriers gives the right one."""
    race = examples / "race"
    plain = support.run([race], SIM).stdout
    right = support.run([race, "--fixed"], SIM).stdout
    seen: set[tuple[str, str]] = set()
    for seed in ("1", "1", "2"):
        run = tmp_path / f"{len(seen)}-{seed}"
        done = record(run, [race], delay="3000", delay_seed=seed)
        assert done.status == 1 or done.stdout != plain
        seen.add((seed, done.stdout))
        fixed = record(tmp_path / f"f{len(seen)}-{seed}", [race, "--fixed"], delay="3000")
        assert fixed.stdout == right
    assert len(seen) == 2
    listed = points(tmp_path / "0-1")
    assert {point["sass"] for point in listed.values()} == {"ld", "st", "bar"}
    assert {point["on"] for point in listed.values()} == {True, False}


def test_delay_file_repeats_the_delays(examples: Path, tmp_path: Path) -> None:
    first = record(tmp_path / "a", [examples / "race"], delay="3000", delay_seed="5")
    file = next((tmp_path / "a").glob("*/delays.json"))
    again = record(tmp_path / "b", [examples / "race"], delay_load=str(file))
    assert again.stdout == first.stdout
    document = json.loads(file.read_text())
    for kernel in document["kernels"].values():
        kernel["kernel_checksum"] = "0" * 16
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    strange = record(tmp_path / "c", [examples / "race"], delay_load=str(other))
    assert "30 delays in 2 kernels were not inserted" in strange.stderr


@pytest.mark.parametrize(("patterns", "found"), [("ST", {"st"}), ("MUL,BAR.SYNC", {"mul", "bar"})])
def test_patterns_are_ptx_opcodes(
    patterns: str, found: set[str], examples: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    record(run, [examples / "race"], delay="1000", delay_patterns=patterns)
    assert {point["sass"] for point in points(run).values()} == found


def test_blocks_overtake_each_other(built: Path, tmp_path: Path) -> None:
    """A block that is held up does not hold up the next one."""
    program = support.build_program("recorder_two_blocks", built)
    assert record(tmp_path / "a", [program], delay="100000", delay_mode="fixed").stdout == "7 7\n"
    document = json.loads(next((tmp_path / "a").glob("*/delays.json")).read_text())
    (kernel,) = document["kernels"].values()
    found = kernel["instrumentation_points"]
    assert [point["sass"] for point in found.values()] == ["st", "ld", "st"]
    said = []
    for number, late in enumerate(found):
        for pc, point in found.items():
            point["on"] = pc == late
        file = tmp_path / f"{late}.json"
        file.write_text(json.dumps(document))
        said.append(record(tmp_path / str(number), [program], delay_load=str(file)).stdout)
    assert said == ["7 0\n", "7 7\n", "7 7\n"]


@pytest.mark.long
def test_race_and_reduce_find_the_statement(examples: Path, tmp_path: Path) -> None:
    """From a program to the delayed statements, without a GPU."""
    race, found = str(examples / "race"), tmp_path / "found"
    line = ("race", "--sim", "-q", "--runs", "3", "--delay", "3us", "--launch-delay", "0", "-o")
    done = support.ttanalyze(*line, found, "--", race, environment=SIM)
    assert done.status == 1, done
    done = support.ttanalyze(*line, tmp_path / "none", "--", race, "--fixed", environment=SIM)
    assert done.status == 0, done
    config = max(found.rglob("delays.json"), key=lambda path: sum(of_points(path)))
    plain = support.run([race], SIM).stdout
    test = tmp_path / "fails.sh"
    (tmp_path / "plain").write_text(plain)
    again = f"record --sim -q -f -o {tmp_path}/t --delay-load $TT_DELAY_LOAD -- {race}"
    command = f"{sys.executable} -m ttanalyze {again}"
    compared = f"cmp -s {tmp_path}/now {tmp_path}/plain"
    test.write_text(f"#!/bin/sh\n{command} > {tmp_path}/now\n{compared}\n")
    test.chmod(0o755)
    report = tmp_path / "report.json"
    given = ("reduce", "-q", "--config", config, "--test", test, "-o", report)
    done = support.ttanalyze(*given, environment=SIM)
    assert done.status == 0, done
    left = json.loads(report.read_text())["essential"]
    assert left and {one["kernel_name"] for one in left} == {"block_sums_racy"}
    assert len(left) < sum(of_points(config))


def of_points(path: Path) -> list[bool]:
    kernels = json.loads(path.read_text())["kernels"].values()
    return [p["on"] for k in kernels for p in k["instrumentation_points"].values()]
