"""Makes docs/reference/tables.md from the docstrings of what makes the tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pandas as pd

from ttanalyze.core import allocating_calls
from ttanalyze.core.run_tables import TABLES
from ttanalyze.format import graph_tables, tables
from ttanalyze.format.columns import meanings

PAGE = Path(__file__).resolve().parents[1] / "reference" / "tables.md"
HEAD = """# Tables

A run has these tables, as pandas DataFrames (`run.events`) and in `ttanalyze query`. All have a column `process`: N of `RUN/pN`. Times are nanoseconds of CLOCK_MONOTONIC, sizes are bytes, addresses are the driver's. Names are categoricals. Missing values are `NA`."""  # noqa: E501
MADE: dict[str, Callable[..., pd.DataFrame]] = {
    "epochs": tables.epochs,
    "regions": tables.regions,
    "events": tables.events,
    "activities": tables.activities,
    "ranges": tables.ranges,
    "graphs": graph_tables.graphs,
    "graph_nodes(graph, seq)": graph_tables.nodes,
    "graph_edges(graph, seq)": graph_tables.edges,
    "stacks": tables.stacks,
    "labels": tables.labels,
    "digests": tables.digests,
    "functions": tables.functions,
    "modules": tables.modules,
}
TAIL = """## Computed columns

A query computes these columns when it names them. The table `nodes` has the nodes of all graphs at their end.

{computed}

[Make CUDA graphs](../guides/graphs.md#graphs-of-a-run) has more about graphs of a run.

## Checksums

`run.functions` has one column more: `checksum`, of the kernel's code, 16 hexadecimal digits. It is the same for the same code in other runs, processes and modules.

- For a cubin it covers the kernel's instructions and constants, and the functions that they call.
- For PTX it covers the text, without comments, white space, debug lines and label names.
- For a fatbin it covers the code of all architectures.

A checksum is missing if the module's image was not saved or cannot be read. Fatbins are often compressed: `pip install 'ttanalyze[zstd]'`. `ttanalyze.kernels.checksums(image, names)` computes checksums of any image. `ttanalyze.demangle.demangle(names)` and `short(name)` demangle any names.
"""  # noqa: E501


def rows(columns: dict[str, str]) -> list[str]:
    """Rows of a Markdown table; columns that mean the same share one."""
    found = []
    for what, names in groupby(columns, lambda name: columns[name]):
        code = " ".join(name if name == "…" else f"`{name}`" for name in names)
        found.append(f"{code} | {linked(what)} |")
    return found


def linked(words: str) -> str:
    return re.sub(r"docs/(\w+)\.md(#\w+)", r"[\1](../\1.md\2)", words)


def section(name: str, documented: object) -> str:
    parts = []
    for paragraph in (inspect.getdoc(documented) or "").split("\n\n"):
        if columns := meanings(paragraph):
            lines = [f"| {row}" for row in rows(columns)]
            parts.append("\n".join(["| column | meaning |", "| --- | --- |", *lines]))
        else:
            parts.append(" ".join(paragraph.split()))
    parts[0] = parts[0].replace("One row", f"`run.{name}` has one row", 1)
    title = name.partition("(")[0].replace("_", " ")
    return "\n\n".join([f"## {title}", *parts])


def computed() -> str:
    """The columns that queries work out, by table."""
    lines = ["| table | column | meaning |", "| --- | --- | --- |"]
    for name, table in TABLES.items():
        own = meanings(inspect.getdoc(allocating_calls.allocs) or "") if name == "allocs" else {}
        more = table.worked_out if isinstance(table.worked_out, dict) else {}
        some = rows({**own, **more})
        lines += [f"| {'' if i else f'`{name}`'} | {row}" for i, row in enumerate(some)]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """What the file is to hold."""
    made = [section(name, function) for name, function in MADE.items()]
    return {PAGE: "\n\n".join([HEAD, *made, TAIL.format(computed=computed())])}
