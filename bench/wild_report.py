"""Makes docs/wild.md of what bench/wild.py found.

    python bench/wild_report.py [RESULTS.jsonl …]

Rows of the results take the place of those in docs/wild.json, which also has remarks on programs;
without results the page is made of that file alone.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA, PAGE = ROOT / "docs" / "wild.json", ROOT / "docs" / "wild.md"
MODES = ("default", "deterministic", "replayable")
OUTPUTS = {"same": "same", "varies": "same but for what varies bare"}


def row_of(result: dict[str, Any]) -> dict[str, Any]:
    """What the page needs of a result. times: of the bare run's time."""
    modes = {}
    for name in MODES:
        mode = result["modes"].get(name)
        if not mode:
            continue
        verify = mode.get("verify") or {}
        nothing = "nothing to compare" in str(verify.get("said"))
        modes[name] = {
            "times": mode.get("times"),
            "output": mode.get("output"),
            "verify": "nothing" if nothing else verify.get("status"),
            "epochs": sum(p["epochs"] for p in mode.get("processes", ())),
        }
    return {"bare_s": result["bare_s"], "modes": modes}


def take(data: dict[str, Any], files: list[str]) -> None:
    for file in files:
        for line in Path(file).read_text().splitlines():
            result = json.loads(line)
            if result.get("modes"):
                data["rows"][f"{result['suite']}/{result['name']}"] = row_of(result)


def cell(mode: dict[str, Any] | None) -> str:
    if not mode or mode["times"] is None:
        return ""
    return f"{mode['times']:.2f}"


def outputs(row: dict[str, Any]) -> str:
    found = {OUTPUTS.get(m["output"], m["output"]) for m in row["modes"].values()}
    if len(found) > 1:
        found -= set(OUTPUTS.values())
    return ", ".join(sorted(found))


def verified(row: dict[str, Any]) -> str:
    found = [m["verify"] for m in row["modes"].values()]
    if all(v == 0 for v in found):
        return "yes"
    words = {0: "yes", "nothing": "nothing to verify"}
    return ", ".join(f"{n}: {words.get(v, 'no')}" for n, v in zip(row["modes"], found, strict=True))


def page(data: dict[str, Any]) -> str:
    rows, remarks = data["rows"], data["remarks"]
    suites = sorted({name.partition("/")[0] for name in rows})
    out = [
        "# Programs of others",
        "",
        f"{len(rows)} public programs of {len(suites)} suites, recorded on {data['machine']}. "
        "`bench/wild.py` runs each bare and recorded, and `bench/wild_report.py` makes this page. "
        "Repositories, commits and arguments are in `bench/wild.json`.",
        "",
        f"{data['method']}",
        "",
        "| times the bare run | median | 90 % | most |",
        "| --- | ---: | ---: | ---: |",
    ]
    for mode in MODES:
        times = sorted(
            r["modes"][mode]["times"]
            for r in rows.values()
            if mode in r["modes"] and r["modes"][mode]["times"] is not None
        )
        high = times[int(0.9 * len(times))]
        middle = statistics.median(times)
        out.append(f"| {mode} | {middle:.2f} | {high:.2f} | {times[-1]:.2f} |")
    out += ["", "## Remarks", ""]
    out += [f"- **{name}**: {text}" for name, text in sorted(remarks.items())]
    head = (
        "| program | bare, s | default | deterministic | replayable | epochs | output | verifies |"
    )
    out += ["", "## Table", "", head, "| --- |" + " ---: |" * 5 + " --- | --- |"]
    for name, row in sorted(rows.items()):
        modes = row["modes"]
        epochs = modes.get("default", {}).get("epochs", 0)
        cells = " | ".join(cell(modes.get(mode)) for mode in MODES)
        end = f"{epochs:,} | {outputs(row)} | {verified(row)}"
        out.append(f"| {name} | {row['bare_s']:.2f} | {cells} | {end} |")
    return "\n".join(out) + "\n"


def text_of(data: dict[str, Any]) -> str:
    """JSON with a line for each row and remark."""
    members = []
    for name, value in sorted(data.items()):
        text = json.dumps(value)
        if isinstance(value, dict):
            lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(value.items()))
            text = "{\n" + ",\n".join(lines) + "\n}"
        members.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def main() -> None:
    data = json.loads(DATA.read_text())
    take(data, sys.argv[1:])
    DATA.write_text(text_of(data))
    PAGE.write_text(page(data))


if __name__ == "__main__":
    main()
