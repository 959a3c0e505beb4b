"""Makes docs/reference/tables.md from the docstrings of what makes the tables."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from docs.tools import api
from ttanalyze.core.allocating_calls import allocs
from ttanalyze.core.meanings import MADE, items, sections
from ttanalyze.core.run_tables import TABLES

PAGE = Path(__file__).resolve().parents[1] / "reference" / "tables.md"
HEAD = """# Tables

A run has these tables, as pandas DataFrames (`run.events`) and in `ttanalyze query`. All have a column `process`: N of `RUN/pN`. Times are those of CLOCK_MONOTONIC. They are whole nanoseconds in columns whose name ends in `_ns`. Other times are `timedelta64[ns]` in DataFrames, and nanoseconds in filters, in SQL, on the screen and in files. Sizes are bytes, addresses are the driver's. Names are categoricals. Missing values are `NA`."""  # noqa: E501
TAIL = """## Computed columns

A query computes these columns when it names them. The table `nodes` has the nodes of all graphs at their end.

{computed}

[Make CUDA graphs](../guides/graphs.md#graphs-of-a-run) has more about graphs of a run.

## Checksums

`run.functions` has one column more: `checksum`, of the kernel's code, 16 hexadecimal digits. It is the same for the same code in other runs, processes and modules.

- For a cubin it covers the kernel's instructions and constants, and the functions that they call.
- For PTX it covers the text, without comments, white space, debug lines and label names.
- For a fatbin it covers the code of all architectures.

A checksum is missing if the module's image was not saved or cannot be read. `ttanalyze.kernels.checksums(image, names)` computes checksums of any image. `ttanalyze.demangle.demangle(names)` and `short(name)` demangle any names.
"""  # noqa: E501


def row(names: str, meaning: str) -> str:
    spelled = re.sub(r"\w+", r"`\g<0>`", names.replace(",", ""))
    return f"{spelled} | " + re.sub(r"docs/(\w+)\.md(#\w+)", r"[\1](../\1.md\2)", meaning) + " |"


def section(name: str, documented: object) -> str:
    parts = sections(documented)
    rows = [f"| {row(*each)}" for each in items(parts["Columns"]).items()]
    return "\n\n".join(
        [
            f"## {name.partition('(')[0].replace('_', ' ')}",
            api.prose(parts[""]).replace("One row", f"`run.{name}` has one row", 1),
            "\n".join(["| column | meaning |", "| --- | --- |", *rows]),
        ]
    )


def computed() -> str:
    """The columns that queries work out, by table."""
    lines = ["| table | column | meaning |", "| --- | --- | --- |"]
    for name, table in TABLES.items():
        own = items(sections(allocs)["Columns"]) if name == "allocs" else {}
        made = table.worked_out if isinstance(table.worked_out, dict) else {}
        same = {" ".join(names): what for what, names in groupby(made, made.__getitem__)}
        for i, each in enumerate({**own, **same}.items()):
            lines.append(f"| {'' if i else f'`{name}`'} | {row(*each)}")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """What the file is to hold."""
    made = [section(name, function) for name, function in MADE.items()]
    return {PAGE: "\n\n".join([HEAD, *made, TAIL.format(computed=computed())])}
