"""The page that `ttanalyze report` makes of what check, race, prove and tune found."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import Cli
from ttanalyze.verbs.check.findings import Call, CheckReport, Finding, Memory, Outcome
from ttanalyze.verbs.prove.determinism import Verdict
from ttanalyze.verbs.race.exact.report import InnerRace, InnerReport, LaunchRaces, Side
from ttanalyze.verbs.race.report import Finding as Delayed
from ttanalyze.verbs.race.report import Late, OneCall, Pair, RaceReport
from ttanalyze.verbs.tune.space import Configuration
from ttanalyze.verbs.tune.table import Row

HOSTILE = "</script><script>alert(1)</script>"


def checked(*findings: Finding) -> str:
    outcomes = [
        Outcome("bounds", "clean", launches=1.0, bytes=0.5),
        Outcome("order", "found" if findings else "clean", findings=list(findings)),
    ]
    return CheckReport(["./app", HOSTILE], "checked", outcomes, 9, False, 4.2).to_json()


def fault() -> Finding:
    call = Call(
        0, 11, "launch", "cuLaunchKernel", "_Z4usedPi", 17, "a.c:39 in main", ["a.c:39 in main"]
    )
    instruction = {"number": 68, "machine": False, "text": "ld.global", "line": "k.cu:5"}
    instruction |= {"access": "load", "block": [1, 0, 0], "thread": [0, 2, 0], "count": 1}
    return Finding(
        "order",
        "race",
        "confirmed",
        f"it races {HOSTILE}",
        call,
        Memory(0, "weights", 64, 4, 8, "a.c:24 in main"),
        "epoch 1",
        ["ttanalyze", "diff"],
        {"instruction": instruction},
    )


def raced() -> str:
    first, second = (
        OneCall(seq, "launch", "cuLaunchKernel", "_Z4usedPi", 16, 1, "writes", seq == 13, None)
        for seq in (13, 15)
    )
    pair, late = Pair(first, second, 0, "weights", 64), Late(stream=16, seq=13, kernel="_Z4usedPi")
    found = Delayed(1, "r/seed-1", "r/seed-1.json", output=True, pairs=[pair], late=[late])
    return RaceReport(["./app"], "r/reference", runs=3, wanted=20, findings=[found]).to_json()


def raced_within() -> str:
    first, second = (
        Side(n, "st.shared", "k.cu:7", "stores", 4, (0, 0, 0), (n, 0, 0)) for n in (1, 2)
    )
    race = InnerRace(first, second, True, [], False, 31, "shared", 16, (0, 0, 0))
    launch = LaunchRaces(7, "_Z4usedPi", (2, 1, 1), (64, 1, 1), records=99, races=[race])
    return InnerReport("run1", [launch]).to_json()


def proven(status: str = "varies") -> str:
    one = Verdict(7, "_Z4usedPi", status, runs=20, recorded=True, site="a.c:3 in main")
    return json.dumps({"run": "run1", "launches": [one.as_dict()], "not_kept": 2, "failure": None})


def tuned() -> str:
    rows = [
        Row(Configuration("recorded", (threads, 1, 1), (8, 1, 1), 0), took, took, 0.1, True)
        for threads, took in ((64, 2.0), (128, 1.0))
    ]
    failed = Row(Configuration("recorded", (2048, 1, 1), (8, 1, 1), 0), error="too many threads")
    made = {
        "kernel": "_Z4usedPi",
        "launch": 7,
        "device": "GPU",
        "gain": 2.0,
        "tried": 2,
        "notes": [],
    }
    made |= {"recorded": rows[0].as_dict(), "best": rows[1].as_dict()}
    return json.dumps(made | {"rows": [row.as_dict() for row in (*rows, failed)]})


def page_of(cli: Cli, folder: Path, content: str) -> str:
    source, page = folder / "found.json", folder / "page.html"
    source.write_text(content)
    outcome = cli("report", source, "-o", page)
    assert (outcome.status, outcome.stderr) == (0, "")
    return re.sub(r"<style>.*?</style>", "", page.read_text(), flags=re.DOTALL)


FAULT = ["1 fault found, 1 confirmed.", "used(int*)", "8 bytes from byte 4 of weights", "k.cu:5"]
LATE = [
    "1 of 3 runs differs",
    "used(int*) (call 13, stream 16, delayed) writes it",
    "weights region",
]
WITHIN = ["1 race within 1 traced launch.", "st.shared at k.cu:7", "shared 0x10"]
VARIES = ["1 of 1 launch varies", "a.c:3 in main", "2 other launches"]
FASTER = ["2.00 times as fast as recorded: 1 ms", "too many threads", "best"]
STEADY = "not seen to vary"
PAGES = [
    (checked(fault()), "different", FAULT),
    (checked(), "same", ["Nothing was found.", "100.0 %", "50.0 %"]),
    (raced(), "different", LATE),
    (RaceReport(["a"], "r", runs=20).to_json(), "same", ["20 runs with delays gave the same"]),
    (raced_within(), "different", WITHIN),
    (proven(), "different", VARIES),
    (proven(STEADY), "same", ["None of 1 launch was seen to vary."]),
    (tuned(), "same", FASTER),
]


@pytest.mark.parametrize(("content", "kind", "said"), PAGES)
def test_page_shows_the_verdict_and_the_findings(
    cli: Cli, tmp_path: Path, content: str, kind: str, said: list[str]
) -> None:
    page = page_of(cli, tmp_path, content)
    assert f'class="verdict {kind}"' in page
    for text in said:
        assert html.escape(text, quote=False) in page
    assert "<table" not in page[: page.index('class="verdict')]
    assert page.count("<script") == 1 and "alert(1)</script>" not in page


def test_tables_have_only_columns_that_say_something(cli: Cli, tmp_path: Path) -> None:
    page = page_of(cli, tmp_path, tuned())
    rows = [re.findall(r"<t[dh][^>]*>([^<]*)", row) for row in re.findall(r"<tr>.*?</tr>", page)]
    assert rows[0] == ["block", "median ms", "min ms", "spread ms", "same result", "remark"]
    assert rows[-1][-2:] == ["-", "too many threads"]  # it has no result that could differ
    assert ">reason</th>" not in page_of(cli, tmp_path, proven(STEADY))


def test_folders_of_check_and_race_have_a_page(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "checked"
    folder.mkdir()
    (folder / "report.json").write_text(checked())
    assert cli("report", folder, "-o", tmp_path / "page.html").status == 0
    assert "Nothing was found." in (tmp_path / "page.html").read_text()


def test_checks_that_covered_nothing_are_not_clean(cli: Cli, tmp_path: Path) -> None:
    outcomes = [Outcome("bounds", "clean"), Outcome("order", "not covered", "no events")]
    made = CheckReport(["a"], "f", outcomes, 1, True, 1.0).to_json()
    page = page_of(cli, tmp_path, made)
    assert 'class="verdict unsure"' in page and "no events" in page


def test_long_results_are_cut_and_say_so(cli: Cli, tmp_path: Path) -> None:
    page = page_of(cli, tmp_path, checked(*[fault()] * 300))
    assert page.count('class="card"') == 100
    assert "200 more findings are in the JSON." in page


def _damaged() -> list[tuple[str, str]]:
    made: dict[str, Any] = json.loads(checked(fault()))
    made["outcomes"][1]["findings"][0].pop("certainty")
    return [
        ("", "not the JSON of check, race, prove or tune"),
        ("[1, 2]", "not the JSON"),
        ('{"a": 1}', "not the JSON"),
        (json.dumps(made), "damaged, or of another version (KeyError('certainty'))"),
        (raced().replace('"pairs": [', '"pairs": [3, '), "damaged"),
    ]


@pytest.mark.parametrize(("content", "said"), _damaged())
def test_other_files_are_one_line(cli: Cli, tmp_path: Path, content: str, said: str) -> None:
    source, page = tmp_path / "found.json", tmp_path / "page.html"
    source.write_text(content)
    outcome = cli("report", source, "-o", page)
    assert outcome.status == 2 and said in outcome.stderr and outcome.stderr.count("\n") == 1
    assert not page.exists()


def test_results_take_no_options_of_runs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text(checked())
    outcome = cli("report", tmp_path / "found.json", "--values", "0=f32")
    assert outcome.status == 2 and "leave out --against and --values" in outcome.stderr
