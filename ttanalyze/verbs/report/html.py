"""Renders a report page: the template with style, scripts, plotting library and data inside."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttanalyze import __version__
from ttanalyze.errors import Error
from ttanalyze.format.run import Run
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.breakdown import breakdown
from ttanalyze.verbs.breakdown.show import page_rows
from ttanalyze.verbs.info import Info, ProcessSummary, info
from ttanalyze.verbs.report import data, divergence
from ttanalyze.verbs.report.pack import compress, pack
from ttanalyze.verbs.report.results import read_results
from ttanalyze.verbs.report.series import series
from ttanalyze.verbs.report.verdict import verdict

SCRIPTS = (
    "data",
    "bins",
    "plots",
    "timeline",
    "usage",
    "heat",
    "flames",
    "values",
    "tables",
    "main",
)
WARNINGS = 20
STEPS = 200  # rows of the breakdown
BUDGET = 12_000_000  # characters of data in a page, beside the library's two million
MISSING = "a report needs plotly and jinja2: pip install 'ttanalyze[report]'"


def page(
    run: Run,
    against: Run | None = None,
    progress: Progress = None,
    values: Sequence[str] = (),
) -> str:
    """Returns a report as HTML.

    Args:
        run: The run.
        against: Another run. If given, the page shows where it first differs.
        progress: Called with the finished and the total number of epochs.
        values: Tensors whose statistics the page shows over time, as NAME or NAME=TYPE: the name of
            a tensor, or the label or id of a region.

    Raises:
        Error: plotly or jinja2 is not installed, or there is no such tensor or type.
        FormatError: A file does not follow the format.

    Example:
        >>> tt.report.report(tt.open("run1"))[:15]
        '<!doctype html>'
    """
    template, library = _template("page.html.j2"), _library()
    chosen = series(run, values)
    compared = None if against is None else divergence.compare(run, against, progress)
    limits = data.Limits()
    while True:
        shown = data.document(run, limits, progress)
        for process in shown["processes"]:
            of_process = chosen.get(process["process"], [])
            process["values"] = [one.as_dict() for one in of_process]
        packed = pack(shown)
        if len(packed) <= BUDGET:
            break
        limits = limits.divided(2)
    script = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    nonce = hashlib.sha256(f"{packed}{script}".encode()).hexdigest()[:32]
    return template.render(
        **_head(run, shown),
        **_breakdown(run),
        divergence=compared,
        nonce=nonce,
        style=_safe(_read("style.css")),
        script=_safe(script),
        library=_safe(library),
        data=_safe(packed),
        version=__version__,
    )


def _head(run: Run, shown: dict[str, Any]) -> dict[str, Any]:
    overview = info(run)
    programs = [text.command(p.argv) or "unknown" for p in overview.processes]
    program = programs[0] if programs else "nothing recorded"
    path = text.printable(overview.run)
    warnings = [text.printable(line) for line in overview.warnings]
    unread = sum(p.unread for p in overview.processes)
    if unread:
        warnings.insert(0, f"{text.count(unread, 'region-epoch')} uncertain: {UNREAD}")
    launches = sum(p["kernels"]["launches"] for p in shown["processes"])
    return {
        "verdict": verdict(overview, warnings, launches),
        "title": f"{program[:80]} · ttanalyze",
        "program": program[:400],
        "subtitle": _subtitle(overview),
        "path": path,
        "processes": [
            {"process": _name(p), "name": programs[i][:60]}
            for i, p in enumerate(overview.processes)
            if p.process in {q["process"] for q in shown["processes"]}
        ],
        "tiles": _tiles(overview, shown),
        "warnings": warnings[:WARNINGS],
        "hidden_warnings": max(0, len(warnings) - WARNINGS),
        "hidden": shown["hidden"],
    }


def _name(process: ProcessSummary) -> str:
    return str(process.process) if process.rank is None else f"rank {process.rank.rank}"


def _breakdown(run: Run) -> dict[str, Any]:
    """Returns the times of ranks and steps, nothing without GPU times."""
    if not any(process.activities.there for process in run.processes):
        return {"ranks": [], "steps": []}
    found = breakdown(run)
    steps = page_rows(found.steps, STEPS) if len(found.steps) > len(found.ranks) else []
    more = max(0, len(found.steps) - STEPS) if steps else 0
    return {"ranks": page_rows(found.ranks, STEPS), "steps": steps, "more_steps": more}


def _subtitle(overview: Info) -> str:
    processes = overview.processes
    devices = {d.get("name", "?"): None for p in processes for d in p.devices}
    parts = [text.printable(overview.run), f"{text.size(overview.bytes_on_disk)} on disk"]
    parts += [text.printable(name) for name in devices]
    return " · ".join(parts)


def _tiles(overview: Info, shown: dict[str, Any]) -> list[dict[str, str]]:
    processes = overview.processes
    total = {
        key: sum(getattr(p, key) for p in processes)
        for key in ("epochs", "kernels", "bytes_read", "bytes_changed", "bytes_stored")
    }
    flags = {
        "refused": sum(p.epoch_flags["refused"] for p in processes),
        "dropped": sum(p.epochs_dropped for p in processes),
    }
    lost = ", ".join(f"{n:,} {name}" for name, n in flags.items() if n)
    regions = sum(sum(p.regions_captured.values()) for p in processes)
    captured = sum(p.bytes_captured for p in processes)
    launches = sum(p["kernels"]["launches"] for p in shown["processes"])
    peaks = [p["usage"]["peak"] for p in shown["processes"]]
    tiles = [
        ("epochs", f"{total['epochs']:,}", lost),
        ("launches", f"{launches:,}", text.count(total["kernels"], "kernel")),
        ("regions captured", f"{regions:,}", f"{text.size(captured)} in total"),
        ("peak device memory", text.size(max(peaks, default=0)), ""),
        ("changed", text.size(total["bytes_changed"]), f"of {text.size(total['bytes_read'])} read"),
        ("stored", text.size(total["bytes_stored"]), ""),
    ]
    return [{"name": n, "value": v, "note": note} for n, v, note in tiles]


@checked
def results_page(path: str | os.PathLike[str]) -> str:
    """Returns a page about the JSON that `check`, `race`, `prove` or `tune` wrote, as HTML.

    Args:
        path: The file.

    Raises:
        Error: jinja2 is not installed, or the file is something else.

    Example:
        >>> report = tt.check.CheckReport(["./app"], "app.check", [], 3, False, 1.5)
        >>> _ = Path("report.json").write_text(report.to_json())
        >>> tt.report.results_page("report.json")[:15]
        '<!doctype html>'
    """
    found = read_results(Path(path))
    nonce = hashlib.sha256(repr(found).encode()).hexdigest()[:32]
    return _template("results.html.j2").render(
        results=found,
        title=f"{found.verb}: {found.subject[:80]} · ttanalyze",
        path=text.printable(os.fspath(path)),
        nonce=nonce,
        style=_safe(_read("style.css")),
        version=__version__,
    )


def _template(name: str) -> Any:
    try:
        import jinja2
    except ImportError:
        raise Error(MISSING) from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)


def _library() -> str:
    """Returns plotly.js of the plotly package, compressed."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise Error(MISSING)
    path = Path(found.origin).parent / "package_data" / "plotly.min.js"
    try:
        return compress(path.read_bytes())
    except FileNotFoundError:
        raise Error(f"{path}: missing; {MISSING}") from None


def _read(name: str) -> str:
    return (importlib.resources.files(__package__) / "page" / name).read_text()


def _safe(content: str) -> Any:
    """Marks our own content, which the template does not escape."""
    from markupsafe import Markup

    return Markup(content)
