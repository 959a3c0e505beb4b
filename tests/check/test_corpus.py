"""What `ttanalyze check` says of planted faults, and of the same programs without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check import corpus

CHECKS = ("bounds", "determinism", "guard", "order", "uninitialized", "values")
MISSED = corpus.GPU_ONLY
KINDS = {
    "zero_by_zero": "computed",
    "infinite": "computed",
    "loaded_nan": "loaded",
    "zero_by_unwritten": "uninitialized",
    "graph_nan": "computed",
    "graph_unwritten": "uninitialized",
    "nan_inside": "computed",
    "nan_from_chain": "uninitialized",
    "nan_beside_chain": "computed",
    "nan_past_end": "out of bounds",
    "infinity_past_end": "out of bounds",
    "nan_after_free": "out of bounds",
}
# The instruction that a finding names, with the block and the thread: where the element is.
INSTRUCTIONS = {
    "zero_by_zero": "st.global.f32 [%rd10], %f3 by [0, 0, 0] [10, 0, 0]",
    "nan_past_end": "st.global.f32 [%rd10], %f3 by [3, 0, 0] [231, 0, 0]",
    "half_overflow": "st.global.u16 [%rd4], %rs9 by [0, 0, 0] [7, 0, 0]",
    "end_4": "st.global.f32 [%rd8], %f1 by [3, 0, 0] [231, 0, 0]",
    "write_after_free": "st.global.f32 [%rd4], %f3 by [0, 0, 0] [0, 0, 0]",
    "end_by_two": "st.global.f32 [%rd8], %f1 by [3, 0, 0] [231, 0, 0]",
    "through_memory": "st.global.f32 [%rd6], %f1 by [3, 0, 0] [230, 0, 0]",
    "read_before_write": "ld.global.f32 %f2, [%rd5] by [0, 0, 0] [0, 0, 0]",
    "two_writes": "st.global.f32 [%rd8], %f1 by [0, 0, 0] [0, 0, 0]",
    "clock_in_kernel": "st.global.f32 [%rd6], %f3 by [0, 0, 0] [0, 0, 0]",
    "graph_end_4": "st.global.f32 [%rd8], %f1 by [3, 0, 0] [231, 0, 0]",
    "read_neighbour": "ld.global.f32 %f1, [%rd6+4] by [3, 0, 0] [231, 0, 0]",
    "read_in_a_queue": "ld.global.f32 %f1, [%rd6+4] by [3, 0, 0] [231, 0, 0]",
    "read_row_too_many": "ld.global.f32 %f1, [%rd5] by [0, 0, 0] [0, 0, 0]",
    "route_past_map": "ld.volatile.global.u32 %r3, [%rd6] by [3, 0, 0] [8, 0, 0]",
    "graph_nan": "st.global.f32 [%rd10], %f3 by [0, 0, 0] [20, 0, 0]",
    "graph_unwritten": "st.global.f32 [%rd10], %f3 by [0, 0, 0] [20, 0, 0]",
}
SHORT = {
    "nan_past_end",
    "nan_after_free",
    "zero_by_zero",
    "zero_by_unwritten",
    "end_4",
    "late_seed",
    "write_after_free",
    "graph_end_4",
    "read_before_write",
    "read_in_a_queue",
    "graph_race",
    "graph_nan",
    "graph_unwritten",
}
CASES = [
    pytest.param(case, marks=() if case.name in SHORT else pytest.mark.long, id=case.name)
    for case in corpus.cases()
    if case.check in CHECKS and case.name not in MISSED
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.build(tmp_path_factory.mktemp("corpus"))


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_check_finds_the_planted_fault(case: corpus.Case, program: Path, tmp_path: Path) -> None:
    answer = corpus.check(case, False, program, tmp_path / "faulty", "--sim")
    assert answer.found, answer.reason
    assert answer.call
    assert answer.kind == KINDS.get(case.name, answer.kind)
    assert answer.instruction == INSTRUCTIONS.get(case.name, answer.instruction)
    fixed = corpus.check(case, True, program, tmp_path / "fixed", "--sim")
    assert fixed.status == "clean", fixed.reason


def test_each_public_report_has_a_program() -> None:
    known = {(case.source, case.name) for name in corpus.SOURCES for case in corpus.cases(name)}
    assert set(corpus.REPORTS.values()) <= known


def test_quick_check_of_values_looks_before_the_first_epoch(program: Path, tmp_path: Path) -> None:
    """The first epoch comes after the culprit; memory was zero before."""
    case = next(case for case in corpus.cases() if case.name == "zero_by_zero")
    answer = corpus.check(case, False, program, tmp_path / "faulty", "--sim", "--quick")
    assert answer.found and "the first NaN" in answer.summary
    fixed = corpus.check(case, True, program, tmp_path / "fixed", "--sim", "--quick")
    assert fixed.status == "clean", fixed.reason
