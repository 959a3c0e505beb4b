"""The table of what recording costs in README.md, from the results of bench/run.py."""

from __future__ import annotations

from typing import Any

from bench import figures
from bench.figures import Figure

BEGIN, END = "<!-- costs: made by bench/report.py -->", "<!-- end of costs -->"
ROWS = {  # of the perceptron's and the Llama's figures
    "ttanalyze, driver calls only": ("step-events", "llama-events"),
    "ttanalyze, with call stacks and parameters": ("", "llama-stacks"),
    "ttanalyze, with GPU times by CUPTI": ("", "llama-cupti"),
    "ttanalyze, an epoch of digests each step": ("step-digests", "llama-digests"),
    "ttanalyze, an epoch each step": ("step-all", "llama-coded"),
}
PICTURE = "![Time of a step of whole programs, of a bare one](docs/performance/programs.svg)"
PEERS = ("torch.profiler, GPU only", "torch.profiler with stacks", "compute-sanitizer initcheck")


def filled(text: str, results: dict[str, Any]) -> str:
    """README.md with the table between its two marks; as it is where it lacks them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        return text
    return f"{before}{begin}\n{_costs(results)}\n{end}{after}"


def _costs(results: dict[str, Any]) -> str:
    parts = results["parts"]
    found = figures.from_json(figure for part in parts.values() for figure in part["figures"])
    heads = ["", "bare", *ROWS, *PEERS]
    columns = [_column(found, parts.get(what), i) for i, what in enumerate(("training", "llama"))]
    lines = ["| " + " | ".join(row) + " |" for row in zip(heads, *columns, strict=True)]
    shown = [line for line in lines if not line.endswith("|  |  |")]
    out = [shown[0], "| --- | --- | --- |", *shown[1:]]
    if "programs" in parts:
        words = "Other programs, in four modes of recording and under other tools"
        out += ["", f"{words} ({_on(parts['programs'])}, logarithmic):", "", PICTURE]
    if "launch-median" in found:
        added = figures.amount(found["launch-median"].value, "ns")
        out += ["", f"A launch takes {added} longer ({_on(parts['launches'])})."]
    return "\n".join(out)


def _column(found: dict[str, Figure], part: Any, i: int) -> list[str]:
    """The cells below a program's name."""
    of = [found.get(names[i]) for names in ROWS.values()]
    measured = [figure for figure in of if figure]
    bare = next((q for figure in measured for q in figure.ours if q.name == "bare"), None)
    peers = {peer.name: peer for figure in measured for peer in figure.peers}
    cells = [figures.amount(bare.value, bare.unit) if bare else "", *map(_ratio, of)]
    cells += [figures.amount(peers[n].value, peers[n].unit) if n in peers else "" for n in PEERS]
    return [f"{('perceptron', 'Llama')[i]} ({_on(part) if part else 'not measured'})", *cells]


def _on(part: dict[str, Any]) -> str:
    return f"{part['machine'].get('gpu', 'no GPU')}, {part['date']}"


def _ratio(figure: Figure | None) -> str:
    return figures.amount(figure.value, figures.RATIO) if figure else ""
