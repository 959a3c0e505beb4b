"""On a GPU: kernels with recording code do what they did, and the records are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import sass_patcher, support

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("H" not in (support.gpu_name() or ""), reason="needs a GPU of sm_90"),
]
CUBIN = support.ROOT / "tests" / "data" / "sass" / "patch_90a.cubin"
WAITS = ("atomics",)  # what these compute, and how often, depends on the order of warps


KERNELS = ("scale", "reduce", "warps", "atomics", "matrix", "staged", "bulk", "groups")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Each kernel has a process of its own: one that fails ends its context."""
    case = Path(__file__).with_name("trace_code_case.py")
    folder = tmp_path_factory.mktemp("sass")
    sass_patcher.build(folder)
    environment = support.importing_environment()
    found = {}
    for kernel in KERNELS:
        command = [sys.executable, str(case), str(CUBIN), str(folder / "libsass.so"), kernel]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        found[kernel] = json.loads(done.stdout)
    return found


def test_results_are_the_same_to_the_bit(told: dict[str, dict[str, Any]]) -> None:
    ran = {name: said for name, said in told.items() if "refused" not in said}
    assert set(KERNELS) == set(ran)
    assert {
        name: said["same"]
        for name, said in ran.items()
        if name not in WAITS and not all(said["same"].values())
    } == {}
    assert not any(said["lost"] for said in ran.values())


def test_counts_are_those_of_the_records(told: dict[str, dict[str, Any]]) -> None:
    for name, said in told.items():
        if name not in WAITS and "refused" not in said:
            counted = {i: n for i, n in said["counted"].items() if i in said["recorded"]}
            assert counted == said["recorded"], name
            assert said["places"] == 16, name  # 4 blocks of 4 warps
    assert max(warps for warps, _ in told["scale"]["counted"].values()) <= 16 * 8
    assert [16, 512] in told["scale"]["counted"].values()


def test_addresses_are_those_of_the_items(told: dict[str, dict[str, Any]]) -> None:
    items = list(range(0, 4 * 4096, 4))
    assert told["scale"]["input"] == items
    assert told["scale"]["output"] == items
