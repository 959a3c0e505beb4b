"""Makes docs/faults.md: what `check` says of planted faults. `python -m tests.check.corpus --gpu
--sanitizer --out docs/faults.json` makes the data.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from tests.check.corpus import REPORTS, cases

ROOT = Path(__file__).resolve().parents[2]
DATA, PAGE = ROOT / "docs" / "faults.json", ROOT / "docs" / "faults.md"
OWNERS = {
    "vllm": "vllm-project",
    "flashinfer": "flashinfer-ai",
    "rmm": "rapidsai",
    "triton": "triton-lang",
    "pytorch": "pytorch",
}
HEAD = (
    "# Planted faults\n\n"
    "What `ttanalyze check` says of {count} programs with one fault each, and of the same programs "
    "without it, on {places}. The programs are in `tests/check`: C on the driver API, "
    "PyTorch and Triton.\n\n"
    "Each program ran under the check that is to find its fault. `right line`: the first finding "
    "names the call of the fault, by the line of the source. `false alarms`: programs without a "
    "fault in which something was found. The last columns have the time of the whole check, with "
    "all its runs of the program, and of NVIDIA's compute-sanitizer (memcheck, initcheck or "
    "racecheck), as multiples of the bare program: the median of all. The programs are small, and "
    "up to {jobs} ran side by side, so start-up is most of their time.\n\n"
)


def _summary(answers: list[dict[str, Any]]) -> list[str]:
    lines = ["| check | faults | found | right line | false alarms | check | sanitizer |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for name in dict.fromkeys(a["case"]["check"] for a in answers):
        of = [a for a in answers if a["case"]["check"] == name]
        planted = [a for a in of if not a["fixed"]]
        alarms = sum(a["found"] for a in of if a["fixed"])
        times = f"{median(a['seconds'] / a['bare'] for a in of):.1f}"
        slow = [a["sanitizer"] / a["bare"] for a in of if a["sanitizer"]]
        counts = [len(planted), *(sum(a[key] for a in planted) for key in ("found", "call"))]
        row = [name, *counts, alarms, times, f"{median(slow):.1f}" if slow else "-"]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return lines


def _reports(answers: list[dict[str, Any]]) -> list[str]:
    """The public reports that programs re-create."""
    lines = ["", "## Public reports", ""]
    lines.append("Some programs do in small what public reports describe.")
    lines += ["", "| report | program | check | finding |", "|---|---|---|---|"]
    for report, (source, name) in REPORTS.items():
        (case,) = (case for case in cases(source) if case.name == name)
        repository, number = report.split("#")
        link = f"[{report}](https://github.com/{OWNERS[repository]}/{repository}/issues/{number})"
        key = source, name, False
        found = (a for a in answers if key == (a["case"]["source"], a["case"]["name"], a["fixed"]))
        shown = next(map(_finding, found), "not run on a GPU")
        lines.append(f"| {link} | `{name}` | {case.check} | {shown} |")
    return lines


def _finding(a: dict[str, Any]) -> str:
    if not a["found"]:
        return "not found"
    return f"{a['kind']}, at {'the right' if a['call'] else 'another'} line"


def _missed(answers: list[dict[str, Any]]) -> list[str]:
    lines = []
    for a in answers:
        if not a["fixed"] and not a["call"]:
            what = "found at another line" if a["found"] else f"not found ({a['status']})"
            lines.append(f"- `{a['case']['name']}` ({a['case']['check']}): {what}")
        elif a["fixed"] and a["found"]:
            lines.append(f"- `{a['case']['name']} --fixed` ({a['case']['check']}): a false alarm")
    return ["", "## What is missed", "", *lines] if lines else []


def pages() -> dict[Path, str]:
    """Returns the page and its text."""
    runs = json.loads(DATA.read_text())
    answers = [answer for run in runs for answer in run["answers"]]
    counts = [sum(not a["fixed"] for a in run["answers"]) for run in runs]
    places = [f"{run['device']} on {run['date']}" for run in runs]
    others = zip(counts[1:], places[1:], strict=True)
    places[1:] = [f"{count} of them on {place}" for count, place in others]
    jobs = max(run["jobs"] for run in runs)
    head = HEAD.format(count=sum(counts), places=", ".join(places), jobs=jobs)
    return {
        PAGE: head + "\n".join([*_summary(answers), *_reports(answers), *_missed(answers)]) + "\n"
    }
