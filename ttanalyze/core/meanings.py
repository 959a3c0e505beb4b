"""What the columns of tables mean, taken from docstrings, which are the only place that says it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from ttanalyze.core.allocating_calls import allocs
from ttanalyze.core.run_tables import TABLES
from ttanalyze.format import collective_table, graph_tables, tables, trace_tables

LISTS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Columns": "Columns",
    "Raises": "Raises",
    "Warns": "Warns",
}
TEXTS = ("Returns", "Yields", "Example", "Source")
SECTION = re.compile(rf"^({'|'.join((*LISTS, *TEXTS))}):$", re.M)
MADE: dict[str, Callable[..., pd.DataFrame]] = {
    "epochs": tables.epochs,
    "regions": tables.regions,
    "events": tables.events,
    "activities": tables.activities,
    "ranges": tables.ranges,
    "collectives": collective_table.collectives,
    "graphs": graph_tables.graphs,
    "graph_nodes(graph, seq)": graph_tables.nodes,
    "graph_edges(graph, seq)": graph_tables.edges,
    "stacks": tables.stacks,
    "labels": tables.labels,
    "digests": tables.digests,
    "functions": tables.functions,
    "modules": tables.modules,
    "traced": trace_tables.traced,
}
OF_ALL = {
    "process": "N of `RUN/pN`",
    "graph": "number of the graph",
    "checksum": "checksum of the kernel's code, 16 hexadecimal digits",
}


def sections(documented: Any) -> dict[str, str]:
    """Returns the sections of a docstring by title. The description has the title ""."""
    parts = SECTION.split(inspect.cleandoc(documented.__doc__ or ""))
    found = dict(zip(parts[1::2], map(inspect.cleandoc, parts[2::2]), strict=True))
    return {"": parts[0].strip(), **found}


def items(section: str) -> dict[str, str]:
    """Returns the entries of a section such as Args, by name."""
    found = re.findall(r"^([\w*,… ]+): (.*(?:\n .*)*)", section, re.M)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def meanings(table: str) -> dict[str, str]:
    """Returns the meaning of each column of a table for queries."""
    columns = TABLES[table].columns
    known = dict(OF_ALL)
    source = {"nodes": ["graph_nodes(graph, seq)"], "allocs": ["regions"]}.get(table, [table])
    documented = [*(MADE[name] for name in source), *([allocs] if table == "allocs" else [])]
    for function in documented:
        for names, meaning in items(sections(function).get("Columns", "")).items():
            known |= dict.fromkeys(_names(names, columns), meaning)
    made = TABLES[table].worked_out
    known |= made if isinstance(made, dict) else {}
    return {column: known.get(column, "") for column in columns}


def _names(listed: str, columns: tuple[str, ...]) -> list[str]:
    """Returns the columns of an entry such as "dst, src" or "grid_x … cluster_z"."""
    found: list[str] = []
    for part in listed.split(","):
        first, _, last = (name.strip() for name in part.partition("…"))
        if last and {first, last} <= {*columns}:
            found += columns[columns.index(first) : columns.index(last) + 1]
        else:
            found.append(first)
    return found
