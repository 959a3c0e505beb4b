"""The launches whose instructions were traced, as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.format import layout
from ttanalyze.format.columns import (
    concat,
    joined,
    named,
    names_of,
    nullable,
    plain,
    process_column,
    string_of,
    texts_of,
)
from ttanalyze.format.instruction_traces import KIND
from ttanalyze.format.process import Process


def traced(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per launch whose instructions were to be traced.

    Columns:
        launch: number among these launches, from 0
        seq: the call: compare with `events["seq"]`; a launch of a graph has a row for each kernel
        node: number of the kernel's node in `graphs`, if a graph was launched
        kernel: mangled name
        kinds: what was to be recorded, as `count,addresses`: see docs/format.md#tracebin
        refused: why it was not traced: `code` `registers` `parameters` `memory` `call`, or `none`
        reason: details of that
        grid_x … cluster_z: blocks of the grid, threads of a block, blocks of a cluster; the last
            are 0 without clusters
        records: number of records in the trace, without its end
        lost: number of records for which there was no room
        complete: whether the trace has the end of the launch
    """
    records = [p.traced for p in processes]
    clusters = [p.traced_clusters for p in processes]
    found = [p.instruction_trace.summary for p in processes]
    sizes = {
        f"{size}_{axis}": concat([r[size][:, i] for r in records], "u4")
        for size in ("grid", "block")
        for i, axis in enumerate("xyz")
    } | {
        f"cluster_{axis}": concat([c[:, i] for c in clusters], "u4") for i, axis in enumerate("xyz")
    }
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        "launch": concat([np.arange(len(r)) for r in records], "u4"),
        **plain(records, "seq"),
        "node": nullable(concat([p.traced_nodes for p in processes], "u4"), layout.NO_ID),
        "kernel": texts_of(processes, [r["function"] for r in records], Process.kernel),
        "kinds": names_of([kinds_text(k) for r in records for k in r["kinds"].tolist()]),
        "refused": named(joined(records, "refused"), layout.REFUSED_TRACES),
        "reason": texts_of(
            processes,
            [np.where(r["refused"] != 0, r["text"], layout.NO_ID) for r in records],
            string_of,
        ),
        **sizes,
        **{name: joined(found, name) for name in ("records", "lost", "complete")},
    }
    return pd.DataFrame(columns)


def kinds_text(kinds: int) -> str:
    """Returns the names of kinds, given as bits 1 << kind."""
    return ",".join(name for name, number in KIND.items() if kinds >> number & 1)
