"""`ttanalyze check --only uninitialized`, on programs that use memory that they did not write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.support import Cli
from ttanalyze.format import contents, layout
from ttanalyze.format.process import Process
from ttanalyze.verbs.check import check as run_checks
from ttanalyze.verbs.check import fills, values, zoom
from ttanalyze.verbs.check.session import Settings

pytestmark = pytest.mark.native


@pytest.fixture
def check(built: Path, cli: Cli, tmp_path: Path) -> Callable[..., Any]:
    """The outcome of the check for tests/programs/recorder_uninitialized.c."""
    program = support.build_program("recorder_uninitialized", built)

    def run(mode: str, *options: str) -> Any:
        only = ("check", "--sim", "--only", "uninitialized", "-o", tmp_path / "out", "--json", "-q")
        outcome = cli(*only, *options, "--", program, mode)
        return json.loads(outcome.stdout)["outcomes"][0]

    return run


def test_unwritten_memory_that_nobody_reads_is_clean(
    check: Callable[..., Any], tmp_path: Path
) -> None:
    outcome = check("clean")
    assert (outcome["status"], outcome["findings"]) == ("clean", [])
    assert (outcome["launches"], outcome["bytes"]) == (1, 1)
    assert len(list((tmp_path / "out").glob("*.status"))) == 6


@pytest.mark.parametrize("much", [False, pytest.param(True, marks=pytest.mark.long)])
def test_first_launch_that_computes_with_it_is_named(
    check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, much: bool
) -> None:
    if much:
        monkeypatch.setattr(values, "MOST", 0)
    (finding,) = check("computes")["findings"]
    assert (finding["kind"], finding["certainty"]) == ("uninitialized", "confirmed")
    assert finding["call"]["kernel"] == "add"
    assert any("recorder_uninitialized.c" in frame for frame in finding["call"]["stack"])
    assert finding["memory"]["region"] == 0
    assert (finding["memory"]["first"], finding["memory"]["count"]) == (2048, 2048)
    (source,) = finding["details"]["sources"]
    assert (source["region"], source["count"]) == (0, 2048)
    assert "in allocate" in source["line"]


@pytest.mark.long
def test_copy_of_unwritten_memory_is_possible(check: Callable[..., Any]) -> None:
    (finding,) = check("copies")["findings"]
    assert (finding["kind"], finding["certainty"]) == ("uninitialized copy", "possible")
    assert finding["call"]["kernel"] == "copy"
    assert finding["memory"]["region"] == 2
    assert [source["region"] for source in finding["details"]["sources"]] == [0]


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        ("prints", "output", "prints something else if new memory is not zero"),
        pytest.param("fails", "exit status", "ended with status 0 if", marks=pytest.mark.long),
        pytest.param("launches", "launches", "makes other launches if", marks=pytest.mark.long),
    ],
)
def test_other_conduct_is_found(check: Callable[..., Any], mode: str, kind: str, said: str) -> None:
    (finding,) = check(mode)["findings"]
    assert (finding["kind"], finding["certainty"]) == (kind, "confirmed")
    assert said in finding["summary"]


@pytest.mark.long
def test_results_that_depend_on_order_are_not_called_uninitialized(
    check: Callable[..., Any],
) -> None:
    outcome = check("varies")
    assert [finding["kind"] for finding in outcome["findings"]] == ["order-dependent"]
    assert outcome["reason"] == "runs with the same contents of new memory differ"


def test_both_faults_are_told_apart(check: Callable[..., Any]) -> None:
    order, memory = check("both")["findings"]
    assert (order["kind"], order["memory"]["region"]) == ("order-dependent", 3)
    assert (memory["kind"], memory["memory"]["region"]) == ("uninitialized", 0)


@pytest.mark.long
def test_quick_check_looks_no_closer(check: Callable[..., Any], tmp_path: Path) -> None:
    (finding,) = check("computes", "--quick")["findings"]
    assert finding["certainty"] == "confirmed" and finding["details"]["calls"] > 1
    assert len(list((tmp_path / "out").glob("*.status"))) == 6


@pytest.mark.long
def test_a_long_window_takes_more_rounds(
    check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoom, "EACH", 7)
    monkeypatch.setattr(zoom, "EPOCHS", 4)
    (finding,) = check("computes", "--epoch", "sync,@999-999")["findings"]
    assert finding["call"]["kernel"] == "add" and finding["details"]["calls"] == 1


POOL = """
import ctypes
cu, p, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_void_p()
assert not cu.cuInit(0) and not cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cu.cuCtxSetCurrent(context)
assert not cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4 << 20))
for step in range(30):
    assert not cu.cuMemsetD8_v2(p, ctypes.c_ubyte(step), ctypes.c_size_t(1000))
    assert not cu.cuCtxSynchronize()
"""


def test_unwritten_blocks_of_a_pool_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step changes a little of it, and most of it nobody writes: digests say so."""
    read = list[int]()

    def counted(process: Process, records: Any, out: Any) -> None:
        read.append(len(out))
        read_blocks(process, records, out)

    read_blocks = contents.read_blocks
    monkeypatch.setattr(contents, "read_blocks", counted)
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    settings = Settings((sys.executable, str(program)), sim=True)
    report = run_checks(settings, tmp_path / "out", ["uninitialized"])
    assert report.outcomes[0].status == "clean"
    assert 0 < sum(read) <= 30 * 4 * layout.BLOCK_SIZE, "the block that the steps write to"
    fillings = ("fill-zero", "fill-ones", "fill-pattern-1", "fill-pattern-2")
    (same,) = fills.aligned([tmp_path / "out" / name for name in fillings])
    (pool,) = (region for region in same.regions if same.kind(region) == "arena")
    found = fills.sorts(same, int(same.epochs[-1][0]), pool)
    assert found is not None
    assert found.unwritten == fills.Tally((4 << 20) - 1000, 1000)
    assert found.copied.count == found.computed.count == 0
