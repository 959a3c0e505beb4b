"""Where the allocations of deterministic runs lie in their range of addresses."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from tests.ptx_machine import sanitizers
from tests.support import ROOT

pytestmark = pytest.mark.native
INTERPOSE = ROOT / "interpose"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("free_list") / "free_list"
    command = ["gcc", "-std=gnu11", *sanitizers(), "-O1", "-g", "-I", str(INTERPOSE)]
    sources = [str(ROOT / "tests" / "free_list.c"), str(INTERPOSE / "arena" / "free_list.c")]
    subprocess.run([*command, "-o", str(built), *sources], check=True)
    return built


def said(program: Path, *arguments: str) -> str:
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_free_blocks_do_not_overlap(program: Path) -> None:
    said(program, "random", "40000")


def test_blocks_with_guards_end_before_free_addresses(program: Path) -> None:
    """Of 3,000 blocks, 1,000 small ones may have guards; the range is used up more than once."""
    said(program, "guards", "40000")


def test_memory_with_zones_is_held_back_then_spare_then_free(program: Path) -> None:
    said(program, "zones", "40000")


def test_free_time_does_not_grow_with_the_number_of_blocks(program: Path) -> None:
    """Of 300,000 the oldest is freed each time: with a look at all, that takes minutes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert said(program, "churn", "300000") == "148 MiB\n"
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 10
