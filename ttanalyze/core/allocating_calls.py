"""Allocations with the calls, threads and source lines that made them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core import stacks
from ttanalyze.format import tables
from ttanalyze.format.columns import Texts, categories
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run


def allocs(processes: Sequence[Process]) -> pd.DataFrame:
    """`regions`, of which these columns have other names or are new.

    Columns:
        bytes: the size
        freed: whether it was freed
        free_call, free_seq, free_ns: the call that freed it, and when; missing while it lives
        live_ns: how long it lived; missing while it lives
    """
    regions = tables.regions(processes)
    names = {"size": "bytes", "death_call": "free_call", "death_seq": "free_seq"}
    allocs: pd.DataFrame = regions.rename(columns=names)
    ends = np.concatenate([np.empty(0, "u8"), *(p.regions.death_ns for p in processes)])
    alive = allocs["free_seq"].isna().to_numpy()
    lived = ends.astype("i8") - allocs["time_ns"].to_numpy().astype("i8")
    allocs["freed"] = ~alive
    allocs["free_ns"] = pd.arrays.IntegerArray(ends.astype("i8"), alive)
    allocs["live_ns"] = pd.arrays.IntegerArray(lived, alive.copy())
    return allocs


def line_of(process: Process, birth: Any) -> str | None:
    """Returns the program's line that made an allocation, such as "train.py:12 in step".

    None without a call stack.
    """
    seq = int(birth["seq"])
    events = process.events_between(seq - 1, seq)
    frames = process.stack(int(events[0]["stack"])) if len(events) and events[0]["stack"] else []
    return stacks.site(frames) if frames else None


def allocating_calls(
    process: Process, advance: Callable[[int], None] | None = None
) -> tuple[Any, Array]:
    """Returns the thread and the stack of the call that made each region: missing and 0 if it was
    not recorded.

    advance: called with the number of further events.
    """
    regions = process.regions
    by_seq = np.argsort(regions.birth["seq"], kind="stable")
    births = regions.birth["seq"][by_seq]
    threads, known = np.zeros(len(births), "i8"), np.zeros(len(births), bool)
    made_by = np.zeros(len(births), "u4")
    for records in process.event_pieces() if len(births) else ():
        at = np.minimum(np.searchsorted(births, records["seq"]), len(births) - 1)
        mine = births[at] == records["seq"]
        # Several regions may be of one call, as the variables of a module are.
        first = at[mine]
        count = np.searchsorted(births, births[first], "right") - first
        rows = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
        threads[by_seq[rows]] = np.repeat(records["thread"][mine], count)
        made_by[by_seq[rows]] = np.repeat(records["stack"][mine], count)
        known[by_seq[rows]] = True
        if advance:
            advance(len(records))
    return pd.arrays.IntegerArray(threads, ~known), made_by


def threads(run: Run, frame: pd.DataFrame) -> Any:
    parts = [pd.Series(allocating_calls(p)[0]) for p in run.processes]
    return pd.concat(parts).array if parts else pd.array([], "Int64")


def sites(run: Run, allocs: pd.DataFrame) -> Any:
    return site_column(run.processes, allocs["call"])


def site_column(
    processes: Sequence[Process], calls: Any, advance: Callable[[int], None] | None = None
) -> Any:
    """Returns for each region the source line that made it, or call and thread without a stack: a
    categorical.

    calls: the driver calls, a categorical. advance: called with the number of further events.
    """
    made = [allocating_calls(p, advance) for p in processes]
    threads = [of.to_numpy("i8", na_value=-1) for of, _ in made]
    lines = Texts(stacks.StackTexts(stacks.site).get)
    where = lines.column(processes, [stack for _, stack in made])
    numbers = np.concatenate([np.empty(0, "i8"), *threads])
    kinds, which = np.unique(
        np.stack([calls.cat.codes.to_numpy("i8"), numbers, where.codes.astype("i8")]),
        axis=1,
        return_inverse=True,
    )
    texts: dict[str, int] = {}
    codes = np.empty(kinds.shape[1], "i4")
    for i, (call, thread, line) in enumerate(kinds.T.tolist()):
        name = "unknown call" if call < 0 else str(calls.cat.categories[call])
        site = name if thread < 0 else f"{name}, thread {thread}"
        site = site if line < 0 else str(where.categories[line])
        codes[i] = texts.setdefault(site, len(texts))
    return categories(codes[which.ravel()], list(texts))
