"""Makes docs/performance.md and its plots from what bench/run.py wrote.

    python bench/report.py [FILE] [--docs DIR] [--add FILE]

FILE: the results, by default those that the page was last made from, DIR/performance.json, which
this keeps beside it. --add: results whose parts replace those of FILE. They may come from another
machine: each part has its own. The page's own words stand in bench/performance.md; a line
<!-- NAME --> there is the place of what is measured. The table of README.md beside DIR is made too
(bench/readme.py).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import figures, plot, readme
from bench.bed import ROOT
from bench.run import FORMAT, PARTS
from ttanalyze.output import text

TEMPLATE = ROOT / "bench" / "performance.md"
LOGARITHMIC = {"bytes": (True, True), "regions": (True, True), "launches": (True, False)}


class ResultsError(Exception):
    """Not results that a page can be made from."""


def read(path: Path) -> dict[str, Any]:
    """Results, as bench/run.py wrote them. Raises ResultsError."""
    try:
        said: dict[str, Any] = json.loads(path.read_text())
    except OSError as e:
        raise ResultsError(f"{path}: {e.strerror}") from None
    except ValueError as e:
        raise ResultsError(f"{path}: not JSON: {e}") from None
    if not isinstance(said, dict) or any(said.get(k) != v for k, v in FORMAT.items()):
        raise ResultsError(f"{path}: not results of bench/run.py")
    for part in said["parts"].values():
        part.setdefault("machine", part["data"].pop("machine", said["machine"]))
    return said


def page(results: dict[str, Any], template: str, folder: str) -> tuple[str, dict[str, str]]:
    """The page, and its plots by file name. folder: what the page calls the plots' place."""
    plots = {
        f"{name}.svg": draw(name, of)
        for name, of in _data(results, "growth").get("sweeps", {}).items()
    }
    pictures = [f"![{_caption(n.removesuffix('.svg'))}]({folder}/{n})" for n in plots]
    made = {
        "machine": _machine(results),
        "figures": _figures(results),
        "ways": _ways(results),
        "traces": _traces(results),
        "plots": "\n".join(pictures),
        "length": _length(results, folder),
        "programs": _programs(results, folder),
        "examples": _markdown(_data(results, "examples").get("rows", [])),
        "parts": _parts(results),
    }
    unknown = set(re.findall(r"^<!-- (\w+) -->$", template, re.MULTILINE)) - made.keys()
    if unknown:
        raise ResultsError(f"{TEMPLATE.name}: nothing is called {min(unknown)}")
    for name, words in made.items():
        template = template.replace(f"<!-- {name} -->", words or "Not measured in this run.")
    return template, plots | _length_plots(results) | _programs_plot(results)


def draw(name: str, of: dict[str, Any]) -> str:
    log_x, log_y = LOGARITHMIC.get(name, (False, False))
    series = {key: [(x, y) for x, y in points] for key, points in of["series"].items()}
    return plot.line_plot(_caption(name), of["x"], f"time of {of['y']}", series, log_x, log_y)


def _length_plots(results: dict[str, Any]) -> dict[str, str]:
    """The plots of the verbs by the launches of a run."""
    launches = _data(results, "length").get("launches", {})
    if not launches:
        return {}
    out = {}
    for what, scale, units in (("busy", 1e9, plot.TIMES), ("private", 1.0, plot.BYTES)):
        series: dict[str, list[tuple[float, float]]] = {}
        for count, found in sorted(launches.items(), key=lambda item: int(item[0])):
            for verb, sample in found["verbs"].items():
                series.setdefault(verb, []).append((int(count), sample[what] * scale))
        name = "length-time" if what == "busy" else "length-memory"
        y = "time of the processor" if what == "busy" else "private memory, at most"
        out[f"{name}.svg"] = plot.line_plot(
            _caption(name), "launches of the run", y, series, True, what == "busy", units
        )
    return out


def _length(results: dict[str, Any], folder: str) -> str:
    """A table of the verbs by the launches of a run, with the plots."""
    data = _data(results, "length")
    rows = [["launches", "events.bin"]]
    for count, found in sorted(data.get("launches", {}).items(), key=lambda item: int(item[0])):
        if len(rows) == 1:
            rows[0] += found["verbs"]
        row = [f"{int(count):,}", text.size(found["events_bytes"])]
        for verb in rows[0][2:]:
            sample = found["verbs"].get(verb)
            if sample is None:
                row.append("not run to its end")
                continue
            spilled = f", {text.size(sample['spilled'])} in the file" if sample["spilled"] else ""
            row.append(f"{sample['busy']:,.1f} s, {text.size(sample['private'])}{spilled}")
        rows.append(row)
    if len(rows) == 1:
        return ""
    it = results["parts"]["length"]["machine"]
    memory = f"{it['memory'] / 1e9:.0f} GB of memory"
    where = f"{it['cpu']}, {it['cores']} cores, {memory}, {it['file_system']}"
    lines = [f"Measured on {results['parts']['length']['date']}: {where}.", "", _markdown(rows), ""]
    for name in _length_plots(results):
        lines.append(f"![{_caption(name.removesuffix('.svg'))}]({folder}/{name})")
    return "\n".join(lines)


WAYS = {
    "bare": "none, the bare program",
    "recorded": "LD_PRELOAD (`preload`)",
    "through the stubs": "the driver's entry points (`stubs`)",
    "through CUPTI": "CUPTI's callbacks (`cupti`)",
    "CUPTI callback": "an empty callback of CUPTI, no recorder",
}


def _ways(results: dict[str, Any]) -> str:
    """The table of launches by the way into the program."""
    data = _data(results, "launches")
    rows = [["way in", "median launch", "99 % of launches", "mean", "added, median"]]
    for name, way in WAYS.items():
        samples = [sample["program"] for sample in data.get("samples", {}).get(name, [])]
        if not samples:
            continue
        keys = ("median_ns", "p99_ns", "loop_ns")
        cells = [f"{median(sample[key] for sample in samples):,.0f} ns" for key in keys]
        added = data["added"].get(name)
        rows.append([way, *cells, f"{added['median_ns']:,.0f} ns" if added else ""])
    return _measured_table(results, "launches", rows)


WORKLOADS = {
    "copy": "copy of 64 MiB",
    "gemm": "product of 256 by 256, with tiles",
    "reduction": "reduction of 64 MiB with atomics",
    "softmax": "softmax in Triton, 8,192 rows",
    "step": "training step of a perceptron in PyTorch",
}


def _traces(results: dict[str, Any]) -> str:
    """The table of kernels whose instructions are traced, by kind."""
    data = _data(results, "traces")
    slow = data.get("slowdown", {})
    kinds = {way: {"sanitizer": "addresses, Sanitizer API"}.get(way, way) for way in slow}
    rows = [["kernels", "bare", *kinds.values()]]

    def varies(way: str, name: str) -> str:
        share = data["varies"].get(way, {}).get(name)
        return "" if share is None else f" ± {share * 100:.0f} %"

    for name, bare in data.get("bare_us", {}).items():
        cells = [f"{bare:,.1f} µs{varies('bare', name)}"]
        for way in kinds:
            value = slow[way].get(name)
            said = figures.amount(value, figures.RATIO) if value else ""
            cells.append(said + varies(way, name))
        rows.append([WORKLOADS[name], *cells])
    plain = [
        f"{refused:,} of {launches:,} launches of {what.split(' ', 1)[1]} ran without {kinds[way]}."
        for what, (refused, launches) in data.get("refused", {}).items()
        if refused and (way := what.split(" ", 1)[0]) in kinds
    ]
    table = _measured_table(results, "traces", rows)
    return f"{table}\n\n{' '.join(plain)}" if table and plain else table


def _measured_table(results: dict[str, Any], name: str, rows: list[list[str]]) -> str:
    """The table, with its date and machine before it; nothing if it has only its head."""
    return f"{_measured_on(results, name)}\n\n{_markdown(rows)}" if len(rows) > 1 else ""


def _measured_on(results: dict[str, Any], name: str) -> str:
    part = results["parts"][name]
    it = part["machine"]
    device = "the simulator" if results["simulator"] else f"{it.get('gpu')}, driver {it['driver']}"
    return f"Measured on {part['date']}: {device}, {it['cpu']}."


def _programs_plot(results: dict[str, Any]) -> dict[str, str]:
    groups = {
        name: {way: taken / of["bare"] for way, taken in of.items() if way != "bare"}
        for name, of in _data(results, "programs").get("step_us", {}).items()
        if of.get("bare")
    }
    return {"programs.svg": plot.bar_plot(_caption("programs"), groups)} if groups else {}


def _programs(results: dict[str, Any], folder: str) -> str:
    """The table of whole programs, and their picture."""
    data = _data(results, "programs")
    if not data.get("rows"):
        return ""
    part = results["parts"]["programs"]
    lines = [_measured_on(results, "programs"), "", _markdown(data["rows"]), ""]
    lines += [f"![{_caption('programs')}]({folder}/{name})" for name in _programs_plot(results)]
    if turns := sorted(set(data.get("turns", {}).values())):
        often = text.count(turns[-1], "turn")
        often = often if turns[0] == turns[-1] else f"{turns[0]} to {often}"
        lines += ["", f"These are medians of {data['steps']} steps of each way, in {often}."]
    return "\n".join([*lines, *([f"\nNot measured: {part['why']}."] if part["why"] else [])])


def _caption(name: str) -> str:
    return {
        "bytes": "An epoch, by the bytes it reads",
        "regions": "An epoch, by the number of regions",
        "dirty": "An epoch, by how much of memory changed",
        "epochs": "An epoch, over the length of a run",
        "launches": "A launch, over the length of a run",
        "programs": "A step of whole programs, of a bare one",
        "length-time": "Verbs, by the launches of a run",
        "length-memory": "Their memory with --max-memory 512M",
    }.get(name, name)


def _data(results: dict[str, Any], part: str) -> dict[str, Any]:
    data: dict[str, Any] = results["parts"].get(part, {}).get("data", {})
    return data


def _machine(results: dict[str, Any]) -> str:
    """A line for each machine: what was measured on it, and when."""
    lines = ["Measured" + (" with small sizes" if results["quick"] else "") + " on:", ""]
    machines: dict[str, list[str]] = {}
    for name, part in results["parts"].items():
        it = part["machine"]
        device = "no GPU"
        if results["simulator"]:
            device = "the simulator, whose times say nothing about a GPU"
        elif "gpu" in it:
            device = f"{it['gpu']}, driver {it['driver']}"
        host = f"{it['cpu']}, {it['cores']} cores, {it['system']}, Linux {it['kernel']}"
        machines.setdefault(f"{device}; {host}; {it['file_system']}", []).append(name)
    for machine, names in machines.items():
        dates = sorted({results["parts"][name]["date"] for name in names})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines.append(f"- {machine}; {when}: {', '.join(names)}.")
    return "\n".join(lines)


def _where(part: dict[str, Any]) -> str:
    """The GPU, or the processor's cores, and the date."""
    it = part["machine"]
    gpu = it.get("gpu", "").removeprefix("NVIDIA ").split(" ")[0]
    return f"{gpu or str(it['cores']) + ' cores'}, {part['date']}"


def _figures(results: dict[str, Any]) -> str:
    found = [figure for part in results["parts"].values() for figure in part["figures"]]
    them = figures.from_json(found)
    where = {name: _where(part) for name, part in results["parts"].items()}
    rows = figures.figure_rows(them, not results["simulator"], PARTS, where)
    notes: dict[str, list[str]] = {}
    for target in figures.TARGETS:
        figure = them.get(target.name)
        if figure and figure.note:
            notes.setdefault(figure.note, []).append(target.what)
    below = [f"- {', '.join(whats)}: {note}." for note, whats in notes.items()]
    return "\n".join([_markdown(rows), *([""] if below else []), *below])


def _parts(results: dict[str, Any]) -> str:
    rows = [["part", "status", "seconds", "why"]]
    for name, part in results["parts"].items():
        rows.append([name, part["status"], f"{part['seconds']:g}", part["why"] or ""])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = ["| " + " | ".join(_cell(c) for c in row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def _cell(words: str) -> str:
    return text.printable(words).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", nargs="?", type=Path, metavar="FILE")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR")
    parser.add_argument("--add", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    kept = options.docs / "performance.json"
    try:
        results = read(options.results or kept)
        if options.add:
            others = read(options.add)["parts"]
            results["parts"] |= {name: of for name, of in others.items() if of["data"]}
        words, plots = page(results, TEMPLATE.read_text(), "performance")
    except ResultsError as e:
        print(f"report.py: {e}", file=sys.stderr)
        return 2
    folder = options.docs / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, svg in plots.items():
        (folder / name).write_text(svg)
    (options.docs / "performance.md").write_text(words)
    kept.write_text(json.dumps(results, indent=1) + "\n")
    front = options.docs.parent / "README.md"
    if front.exists():
        front.write_text(readme.filled(front.read_text(), results))
    print(f"{options.docs / 'performance.md'}, {len(plots)} plots")
    return 0


if __name__ == "__main__":
    sys.exit(main())
