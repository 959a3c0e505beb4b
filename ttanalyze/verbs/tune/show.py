"""The results of `tune`: a table with bars for a screen, and an HTML chart."""

from __future__ import annotations

from ttanalyze.code import demangle
from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.verbs.tune.space import NAMES
from ttanalyze.verbs.tune.table import Row
from ttanalyze.verbs.tune.tune import Tuned

SHOWN = 24  # rows of a table
BAR = 24  # letters of the longest bar
PARTS = " ▏▎▍▌▋▊▉█"
TITLES = {"opt_level": "opt level"}


def tuned_text(of: Tuned, colour: bool = False) -> str:
    """Returns a table for a screen: one line per configuration, the fastest first, and the best
    one.

    Args:
        of: The result of `tune`.
        colour: Whether to use terminal colours.
    """
    (name,) = demangle.demangle([of.plan.kernel])
    tried = text.count(len(of.rows), "configuration")
    head = f"launch {of.plan.seq}, {text.printable(name)}, on {text.printable(of.device)}: {tried}"
    if of.new < len({row.configuration for row in (of.recorded, *of.rows)}):
        head += f", {of.new:,} of them new"
    varied = _varied(of)
    good = _good(of)
    bad = [row for row in of.rows if not row.good]
    longest = max([row.median_ms or 0 for row in good], default=0)
    lines = [[*(TITLES.get(n, n) for n in varied), "median", "min", "spread", ""]]
    for row in good[:SHOWN]:
        times = (row.median_ms, row.min_ms, row.spread_ms)
        bar = _bar((row.median_ms or 0) / longest if longest else 0)
        mark = " recorded" if row.configuration == of.recorded.configuration else ""
        lines.append([*_cells(row, varied), *map(_time, times), bar + mark])
    numbers = {i for i, name in enumerate(varied) if name not in ("code", "cache")}
    numbers |= {len(varied), len(varied) + 1, len(varied) + 2}
    out = [head, *of.notes]
    out += ["", text.table(lines, numbers)]
    if len(good) > SHOWN:
        out.append(f"… {len(good) - SHOWN:,} slower ones not shown")
    if bad:
        out += ["", f"{text.count(len(bad), 'configuration')} can't be used:"]
        why: dict[str, list[Row]] = {}
        for row in bad:
            why.setdefault(row.error, []).append(row)
        for error, rows in list(why.items())[:SHOWN]:
            more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
            out.append(f"  {label(rows[0], varied)}{more}: {error}")
        out += [f"  … {len(why) - SHOWN:,} more reasons"] if len(why) > SHOWN else []
    best = f"best: {label(of.best, varied)}: {_time(of.best.median_ms)}"
    if of.best.configuration == of.recorded.configuration:
        best = f"best: as recorded: {_time(of.best.median_ms)}"
    else:
        best += f", {of.gain:.2f} times as fast as recorded ({_time(of.recorded.median_ms)})"
    return "\n".join([*out, "", text.coloured(best, "bold", colour)])


def _good(of: Tuned) -> list[Row]:
    """Returns the valid results and the recorded one, the fastest first."""
    rows = {row.configuration: row for row in (of.recorded, *of.rows) if row.good}
    return sorted(rows.values(), key=lambda row: row.median_ms or 0)


def _varied(of: Tuned) -> list[str]:
    """Returns the names of attributes that differ between configurations."""
    cells = [row.configuration.cells() for row in (of.recorded, *of.rows)]
    return [name for name in NAMES if len({cell[name] for cell in cells}) > 1] or ["block", "grid"]


def _cells(row: Row, varied: list[str]) -> list[str]:
    cells = row.configuration.cells()
    cells["code"] = cells["code"].partition(":")[0]
    return [cells[name] or "–" for name in varied]  # noqa: RUF001


def label(row: Row, varied: list[str]) -> str:
    """Returns a configuration in words: the attributes that differ between configurations."""
    pairs = zip(varied, _cells(row, varied), strict=True)
    return ", ".join(f"{TITLES.get(name, name)} {cell}" for name, cell in pairs)


def _time(milliseconds: float | None) -> str:
    return "" if milliseconds is None else text.duration(milliseconds * 1e6)


def _bar(share: float) -> str:
    eighths = round(share * BAR * 8)
    return PARTS[8] * (eighths // 8) + PARTS[eighths % 8].strip()


def chart_page(of: Tuned) -> str:
    """Returns an HTML page with a bar per valid configuration, the fastest first.

    Args:
        of: The result of `tune`.

    Raises:
        Error: plotly is not installed.
    """
    try:
        import plotly.graph_objects as plotly
    except ImportError:
        raise Error("--chart needs plotly: pip install 'ttanalyze[report]'") from None
    varied = _varied(of)
    good = _good(of)
    best, recorded = of.best.configuration, of.recorded.configuration
    special = {recorded: "#e9c46a", best: "#2a9d8f"}
    colours = [special.get(row.configuration, "#8d99ae") for row in good]
    bars = plotly.Bar(
        x=[row.median_ms for row in good],
        y=[label(row, varied) for row in good],
        error_x={"type": "data", "array": [row.spread_ms for row in good]},
        marker={"color": colours},
        orientation="h",
    )
    (name,) = demangle.demangle([of.plan.kernel])
    title = f"{text.printable(name)[:120]}: median of each configuration"
    figure = plotly.Figure(bars)
    figure.update_layout(
        title=title,
        xaxis_title="milliseconds (recorded: yellow, best: green)",
        yaxis={"autorange": "reversed", "automargin": True},
        template="plotly_white",
        height=max(400, 120 + 24 * len(good)),
    )
    return str(figure.to_html(include_plotlyjs=True, full_html=True))
