"""Draws a run with plotly, for notebooks: `run.plot`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core import allocations
from ttanalyze.core.tensors import type_of
from ttanalyze.core.values import Type, parse, summarise
from ttanalyze.errors import Error
from ttanalyze.format import contents
from ttanalyze.format.labels import Part
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.format.selection import named
from ttanalyze.output import text

__all__ = ["Plots"]

MOST_BARS = 5_000
MOST_COLOURS = 9
MOST_REGIONS = 60
MOST_EPOCHS = 500


class Plots:
    """Draws a run. `run.plot` is one of these.

    Each method returns a `plotly.graph_objects.Figure`, which a notebook shows. `figure.show()`
    opens it in a browser, `figure.write_html("x.html")` saves it. It needs plotly: `pip install
    'ttanalyze[report]'`.

    Example:
        >>> run = tt.open("run1")
        >>> run.plot.memory().layout.title.text
        'Device memory: peak 4.0 KiB'
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def timeline(self, process: int = 0, rank: int | None = None) -> Any:
        """Draws when the GPU did what. It needs a run with `--timeline`.

        Args:
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            A figure with a bar for each piece of GPU work, one line per stream. Of more than 5,000
            pieces, it has the longest, and says so.

        Raises:
            Error: The run has no such process or no GPU times, or plotly is not installed.
        """
        go = _plotly()
        process = self._run.process(process, rank).index
        table = self._run.activities
        table = table[(table["process"] == process) & (table["kind"] != "sync") & ~table["own"]]
        if not len(table):
            raise Error(f"{self._run.path}: no GPU times: record with --timeline")
        count, begin = len(table), table["begin_ns"].min()
        table = table.assign(length=table["end_ns"] - table["begin_ns"])
        table = table.nlargest(MOST_BARS, "length").sort_values("begin_ns")
        kinds, kernels = (table[c].astype("object") for c in ("kind", "kernel"))
        names = [short(name) for name in demangle(kernels.fillna(kinds))]
        longest = table.groupby(names)["length"].sum().nlargest(MOST_COLOURS).index
        table = table.assign(name=names, group=[n if n in longest else "other" for n in names])
        figure = go.Figure()
        for group, rows in table.groupby("group", sort=False):
            figure.add_bar(
                orientation="h",
                name=group,
                base=(rows["begin_ns"] - begin) / 1e3,
                x=rows["length"] / 1e3,
                y=[f"stream {s}" for s in rows["stream"].astype("object").fillna("?")],
                hovertext=rows["name"],
                hovertemplate="%{hovertext}<br>%{x} µs from %{base} µs<extra></extra>",
                marker_line_width=0,
            )
        shown = f", the longest {len(table):,}" if len(table) < count else ""
        title = f"GPU work: {text.count(count, 'piece')}{shown}"
        return figure.update_layout(title=title, barmode="overlay", xaxis_title="µs")

    def memory(self, process: int = 0, rank: int | None = None) -> Any:
        """Draws the device memory in use after each call that changed it.

        Args:
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            A figure with a line: bytes over sequence numbers of calls.

        Raises:
            Error: The run has no such process, or plotly is not installed.
        """
        go = _plotly()
        of = self._run.process(process, rank)
        steps = allocations.timeline(of)
        line = go.Scatter(
            x=steps["seq"],
            y=steps["bytes"],
            mode="lines+markers",
            line_shape="hv",
            text=[f"region {region}" for region in steps["region"]],
            hovertemplate="%{text}<br>%{y:,} bytes after call %{x}<extra></extra>",
        )
        peak = text.size(int(steps["bytes"].max()) if len(steps) else 0)
        return go.Figure(line).update_layout(
            title=f"Device memory: peak {peak}",
            xaxis_title="sequence number of the call",
            yaxis_title="bytes",
        )

    def changes(self, process: int = 0, rank: int | None = None) -> Any:
        """Draws which regions changed in which epochs.

        Args:
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            A heat map: the changed blocks of each region in each epoch. Of more than 60 regions, it
            has those that changed most often, and says so.

        Raises:
            Error: The run has no such process, or plotly is not installed.
        """
        go = _plotly()
        process = self._run.process(process, rank).index
        table = self._run.digests
        table = table[(table["process"] == process) & (table["changed"] > 0)]
        often = table["region"].value_counts()
        table = table[table["region"].isin(often.index[:MOST_REGIONS])]
        cells = pd.pivot_table(table, "changed", index="region", columns="epoch", aggfunc="sum")
        regions = self._run.regions
        labels = regions[regions["process"] == process].set_index("region")["label"]
        names = [f"{r} {labels[r]}" if pd.notna(labels[r]) else str(r) for r in cells.index]
        shown = f", the {MOST_REGIONS} that changed most often" * (len(often) > MOST_REGIONS)
        cells_of = go.Heatmap(
            x=cells.columns.to_list(),
            y=names,
            z=cells.to_numpy("f8"),
            zmin=0,  # has an effect only beside zmax
            zmax=table["changed"].max() if len(table) else 1,
            colorscale="Blues",
            colorbar_title="blocks",
            hovertemplate="region %{y}<br>epoch %{x}: %{z} blocks<extra></extra>",
        )
        return go.Figure(cells_of).update_layout(
            title=f"Changes: {text.count(len(often), 'region')}{shown}",
            xaxis_title="epoch",
            yaxis={"title": "region", "type": "category", "autorange": "reversed"},
        )

    def values(
        self,
        tensor: str | int,
        dtype: str | None = None,
        process: int = 0,
        rank: int | None = None,
    ) -> Any:
        """Draws the values of a tensor or region over the epochs in which its memory changed.

        Args:
            tensor: The name of a tensor, or the id or label of a region.
            dtype: The type of the items, such as `f32` or `bf16`. Default: the tensor's own.
            process: The number of the process.
            rank: Its rank, instead of the number.

        Returns:
            A figure with minimum, mean and maximum of the finite items, and the numbers of NaNs and
            infinities. Of more than 500 epochs it has 500, evenly spaced. The title says so, and
            how many epochs have no contents.

        Raises:
            Error: There is no such process, region or tensor, its type is unknown, or plotly is not
                installed.
        """
        go = _plotly()
        of = self._run.process(process, rank)
        parts = _parts(of, str(tensor))
        kind = type_of(parts[0]) if dtype is None else parse(dtype)
        if kind is None:
            raise Error(f"{tensor}: the type of its items is unknown: give dtype, such as 'f32'")
        epochs = self._epochs(of, parts)
        found = _statistics(of, parts, kind, epochs[_spread(len(epochs))])
        figure = go.Figure()
        for name in ("max", "mean", "min"):
            figure.add_scatter(x=found["epoch"], y=found[name], name=name, mode="lines+markers")
        for name in ("nan", "inf"):
            if found[name].any():
                figure.add_bar(x=found["epoch"], y=found[name], name=name, yaxis="y2", opacity=0.5)
        lost = len(found) - int(found["there"].sum())
        remarks = [f"{len(found):,} of {len(epochs):,} epochs"] * (len(found) < len(epochs))
        remarks += [f"{text.count(lost, 'epoch')} without contents"] * bool(lost)
        return figure.update_layout(
            title=": ".join([f"{tensor} as {kind.name}", *remarks]),
            xaxis_title="epoch",
            yaxis_title="finite values",
            yaxis2={
                "title": "NaN and infinite items",
                "overlaying": "y",
                "side": "right",
                "rangemode": "tozero",
                "showgrid": False,
                "tickmode": "auto",
            },
            legend={"orientation": "h", "y": 1.1},
        )

    def _epochs(self, process: Process, parts: list[Part]) -> Any:
        table = self._run.digests
        mine = table["region"].isin([part.region for part in parts]) & (table["changed"] > 0)
        return np.unique(table[mine & (table["process"] == process.index)]["epoch"])


def _plotly() -> Any:
    try:
        import plotly.graph_objects
    except ImportError:
        raise Error("plots need plotly: pip install 'ttanalyze[report]'") from None
    return plotly.graph_objects


def _parts(process: Process, name: str) -> list[Part]:
    found = named(process, name)
    if not isinstance(found, int):
        return found
    row = contents.region_row(process, found)
    return [Part(found, 0, int(process.regions.size[row]), name, 0, None)]


def _spread(count: int) -> Any:
    return np.unique(np.linspace(0, count - 1, min(count, MOST_EPOCHS)).round().astype("i8"))


def _statistics(process: Process, parts: list[Part], kind: Type, epochs: Any) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for epoch in epochs.tolist():
        try:
            pieces = [
                contents.read(process, epoch, p.region, p.offset, p.offset + p.bytes) for p in parts
            ]
        except Error:
            rows.append((epoch, None, None, None, 0, 0, False))
            continue
        found = summarise(kind, np.concatenate(pieces))
        rows.append((epoch, found.min, found.mean, found.max, found.nan, found.inf, True))
    return pd.DataFrame(rows, columns=["epoch", "min", "mean", "max", "nan", "inf", "there"])
