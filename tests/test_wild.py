"""Whether a recorded program of others did the same is told by what it varies in by itself."""

from __future__ import annotations

import pytest

from bench.wild import Outcome, compare


def outcome(*lines: str, status: int = 0) -> Outcome:
    return Outcome(status, 0.1, {"standard output": list(lines)})


@pytest.mark.parametrize(
    ("bare", "recorded", "how"),
    [
        (["sum 1"], "sum 1", "same"),
        (["sum 1"], "sum 2", "numbers"),
        (["sum 1"], "mean 1", "differs"),
        (["at 0x10", "at 0x20"], "at 0x30", "varies"),
        (["kernel took 3.1 ms"], "kernel took 4.0 ms", "varies"),
        (["3 GB/s of 8"], "2 GB/s of 8", "varies"),
        (["total time =  668.66 ms"], "total time = 1031.02 ms", "varies"),
        (["sum:  9"], "sum: 10", "numbers"),
        (["won", "lost"], "drawn", "varies"),
    ],
)
def test_lines_that_vary_between_bare_runs_may_differ(
    bare: list[str], recorded: str, how: str
) -> None:
    said, lines = compare([outcome(line) for line in bare], outcome(recorded))
    assert said == how
    assert bool(lines) == (how in ("numbers", "differs"))


def test_different_exit_status_is_a_difference() -> None:
    assert compare([outcome("a")], outcome("a", status=1))[0] == "differs"


def test_different_line_count_is_a_difference() -> None:
    assert compare([outcome("a")], outcome("a", "b"))[0] == "differs"


def test_line_kinds_count_when_bare_line_counts_vary() -> None:
    bare = [outcome("step 1"), outcome("step 1", "step 2")]
    assert compare(bare, outcome("step 1", "step 2", "step 3"))[0] == "varies"
    assert compare(bare, outcome("step 1", "gave up"))[0] == "differs"


def test_files_of_the_program_are_compared() -> None:
    bare, recorded = outcome("a"), outcome("a")
    bare.texts["out.bin"], recorded.texts["out.bin"] = ["aa"], ["bb"]
    assert compare([bare], recorded)[0] == "differs"
