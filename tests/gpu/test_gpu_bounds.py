"""On a GPU: zones show writes out of bounds, and `ttanalyze check` names the call."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.check import corpus
from ttanalyze.core import zones
from ttanalyze.format import layout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
FAULTS = ["end_4", "end_12", "start_4", "copy_too_long", "write_after_free", "pool_end_4"]
FAULTS += ["graph_end_4", "graph_branch_end_96", "end_by_two"]
MANAGED = layout.enum("region_kind")["TT_REGION_MANAGED"]
FRAMEWORKS = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
CASES = [case for case in corpus.cases() if case.name in FAULTS or case.check == "guard"]
CASES += [case for case in corpus.cases("torch_faults") if case.check == "bounds" and FRAMEWORKS]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.build(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_call_that_writes_out_of_bounds_is_named(
    case: corpus.Case, program: Path, tmp_path: Path
) -> None:
    answer = corpus.check(case, False, program, tmp_path / "faulty")
    assert (answer.found, answer.call) == (True, True), answer.reason
    fixed = corpus.check(case, True, program, tmp_path / "fixed")
    assert fixed.status == "clean", fixed.reason


def test_each_of_many_written_zones_is_found(built: Path, tmp_path: Path) -> None:
    """Each second of 500 allocations is written past its end, by 4 bytes."""
    count = 500
    command = [support.build_program("recorder_out_of_bounds", built)]
    steps = [f"a:{4 * (100 + i)}" for i in range(count)]
    steps += [f"w:{i}:{4 * (100 + i)}:1:{i}" for i in range(0, count, 2)]
    environment = support.recording(support.bare_environment(), tmp_path / "run", zones="256")
    done = support.run([*command, *steps], environment)
    assert done.status == 0, done.stderr
    found = zones.changed_zones(tt.open(tmp_path / "run").process(0))
    assert len(found) == count // 2
    assert {(zone.side, zone.first) for zone in found} <= {(zones.END, 0), (zones.END, 1)}


def test_write_into_the_tail_of_managed_memory_is_found(built: Path, tmp_path: Path) -> None:
    """Its last 256 bytes are mapped to the end, and the driver keeps nothing there."""
    command = [support.build_program("recorder_out_of_bounds", built)]
    sizes = [4000, 100, 70_004, 3_000_004]
    steps = [*(f"M:{size}" for size in sizes), "s"]
    steps += [*(f"w:{i}:{size}:1:{0x5A5A5A5A + i}" for i, size in enumerate(sizes)), "s"]
    environment = support.recording(support.bare_environment(), tmp_path / "run", zones="256")
    done = support.run([*command, *steps], environment)
    assert done.status == 0, done.stderr
    process = tt.open(tmp_path / "run").process(0)
    found = zones.changed_zones(process)
    managed = process.regions.id[process.regions.birth["kind"] == MANAGED].tolist()
    assert [zone.allocation for zone in found] == managed
    assert all(zone.tail and zone.first == 0 for zone in found)
