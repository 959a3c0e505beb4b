"""On a GPU: planted races are found within 20 seeds, and named; their fixed versions are clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import support

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
# Whether handoff goes wrong depends on what else the device does.
NAMES = [pytest.param("handoff", marks=pytest.mark.exclusive), "barrier", "bulk", "cluster"]
FIXED_RUNS = 6  # of 20 that they would bear: a recording takes about a second
# Within a kernel: what was late, or is unordered with it, is one of these.
RACING = {
    "barrier": {"STS", "LDS"},
    "bulk": {"UBLKCP", "SYNCS", "LDS"},
    "cluster": {"STS", "LD"},
}


@pytest.fixture(scope="module")
def programs(built: Path) -> Path:
    examples = support.build_examples(built / "examples")
    support.build_races(built / "examples")
    return examples


def race(programs: Path, folder: Path, name: str, *options: str) -> tuple[int, dict[str, Any], str]:
    program = programs / ("" if name == "handoff" else "races") / name
    arguments = [option for option in options if option == "--fixed"]
    given = [option for option in options if option != "--fixed"]
    delays = ["--delay", "0"] if name == "handoff" else ["--launch-delay", "0"]
    outcome = support.ttanalyze(
        "race", "-o", str(folder), *delays, *given, "--", str(program), *arguments, timeout=300
    )
    report = folder / "report.json"
    assert outcome.status in (0, 1) and report.exists(), outcome
    return outcome.status, json.loads(report.read_text()), outcome.stdout


@pytest.mark.parametrize("name", NAMES)
def test_race_finds_a_planted_race(name: str, programs: Path, tmp_path: Path) -> None:
    status, report, shown = race(programs, tmp_path / "search", name)
    print(shown)
    assert status == 1, shown
    assert report["unsteady"] is None, "it shows without delays, too: not hidden well"
    found = report["findings"][0]
    assert report["runs"] <= 20 and found["diff"] is not None
    if name == "handoff":
        kernels = [found["pairs"][0][which]["kernel"] for which in ("first", "second")]
        assert kernels == ["make_values", "use_values"]
        return
    assert found["late"], found["notes"]
    assert all("racy" in late["instruction"]["kernel"] for late in found["late"])
    texts = [
        late[which]["text"]
        for late in found["late"]
        for which in ("instruction", "other")
        if late[which]
    ]
    assert any(op in text for text in texts for op in RACING[name]), texts


@pytest.mark.parametrize("name", NAMES)
def test_race_finds_nothing_in_the_synchronised_program(
    name: str, programs: Path, tmp_path: Path
) -> None:
    options = ("--runs", str(FIXED_RUNS), "--fixed")
    status, report, shown = race(programs, tmp_path / "search", name, *options)
    print(shown)
    assert status == 0, shown
    assert report["runs"] == FIXED_RUNS
