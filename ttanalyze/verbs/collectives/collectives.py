"""Matches the collectives of all ranks: the n-th call with a communicator is one collective."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
import pandas as pd

from ttanalyze.core.clocks import clocks
from ttanalyze.core.crash_report import crash_reports
from ttanalyze.errors import Error
from ttanalyze.format.collective_table import collectives as table_of
from ttanalyze.format.collectives import POINT_TO_POINT
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.output.tables import as_records
from ttanalyze.output.times import as_timedeltas
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.collectives.outputs import AGREED, TORN, Outputs, WrongOutput

ALIKE = ("operation", "bytes", "reduction", "root", "type")
LISTED = 100


@dataclass(frozen=True)
class Mismatch:
    """A collective that ranks called differently.

    Attributes:
        communicator: Its communicator, None if NCCL does not say it.
        number: Its number in the communicator, from 0.
        called: What each rank called, such as "AllReduce of 4.0 MiB, sum".
    """

    communicator: str | None
    number: int
    called: dict[int, str]


@dataclass(frozen=True)
class Open:
    """A collective that did not end, or that not all ranks called.

    Attributes:
        communicator: Its communicator, None if NCCL does not say it.
        number: Its number in the communicator, from 0.
        operation: What it is.
        inside: The ranks that called it and did not leave it.
        left: The ranks that left it.
        missing: The ranks of the communicator that did not call it.
        last: For each missing rank, the last collective that it called.
    """

    communicator: str | None
    number: int
    operation: str
    inside: list[int]
    left: list[int]
    missing: list[int]
    last: dict[int, str]


@dataclass
class Collectives:
    """The result of `collectives`.

    Attributes:
        run: The run.
        same: Whether nothing is wrong: no mismatch, nothing open, no wrong output.
        ranks: One row per rank: collectives, bytes, GPU time, how often it began last, and how much
            later than the first rank on average and at most (`late_mean`, `late_max`). Times are
            timedelta64[ns], in JSON nanoseconds.
        matched: The number of collectives that all ranks of their communicator called.
        mismatches: The first collectives that ranks called differently, at most 100.
        open: Collectives that did not end or that not all ranks called, one per communicator.
        checked: The number of all-reduces whose output was compared.
        wrong: All-reduces that left different memory on the ranks.
        notes: Further remarks, one line each.
    """

    run: str
    same: bool
    ranks: pd.DataFrame
    matched: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    checked: int = 0
    wrong: list[WrongOutput] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns the attributes as a JSON object in one line."""
        made: dict[str, Any] = asdict(self) | {"ranks": as_records(self.ranks)}
        return orjson.dumps(made, option=orjson.OPT_NON_STR_KEYS).decode()


def collectives(run: Run, progress: Progress = None) -> Collectives:
    """Matches the collectives of all ranks, and says what does not fit.

    Args:
        run: The run.
        progress: Called with the finished and the total number of processes.

    Returns:
        The report. `same` is true if nothing is wrong.

    Raises:
        Error: No process called NCCL.
        FormatError: A file does not follow the format.

    Example:
        >>> found = tt.collectives(tt.open("nccl"))
        >>> found.same, found.matched
        (True, 4)
        >>> found.ranks[["rank", "late_max", "last"]]
           rank                  late_max  last
        0     0 0 days 00:00:00.000000000     0
        1     1 0 days 00:00:00.000000000     0
        2     2 0 days 00:00:00.000000500     4
    """
    parts = []
    for number, process in enumerate(run.processes):
        tell(progress, number, len(run.processes))
        parts.append(table_of([process]))
    every = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if not len(every):
        raise Error(f"{run.path}: no call and no kernel of NCCL; record with NVTX and calls")
    ranks = {p.index: p.index if p.rank is None else p.rank.rank for p in run.processes}
    relations = clocks(run.processes)
    shift = every["process"].map({i: clock.offset_ns for i, clock in relations.items()})
    every["rank"] = every["process"].map(ranks)
    # Without GPU times, the call is the best that is known.
    every["came"] = every["gpu_begin"].fillna(every["time_ns"].astype("i8")).astype("i8") + shift
    every["inside"] = _inside(run.processes, every)
    every["key"] = every["communicator"].astype("object").where(every["communicator"].notna(), "")
    pairs = every["operation"].isin(POINT_TO_POINT)
    report = Collectives(str(run.path), True, pd.DataFrame())
    groups = every[~pairs].groupby("key", sort=False)
    late: list[pd.DataFrame] = []
    for key, calls in groups:
        late.append(_communicator(report, str(key) or None, calls))
    report.ranks = _ranks(every, pd.concat(late) if late else None)
    outputs = Outputs(run.processes, ranks)
    report.checked, report.wrong, left = outputs.compare(every[~pairs])
    if report.checked or left[TORN]:
        report.notes += [f"{text.count(n, 'output', 'outputs')} {what}" for what, n in left.items()]
    _note(report, run, relations, every)
    report.same = not (report.mismatches or report.open or report.wrong)
    return report


def _inside(processes: list[Process], every: pd.DataFrame) -> Any:
    """Returns which collectives were not left: their call or their kernel did not end."""
    out = every["end_seq"].isna() & every["seq"].notna()
    for process in processes:
        flying = [
            call["seq"]
            for report in crash_reports(process)
            for stream in report["in_flight"]
            for call in stream["calls"]
            if "seq" in call
        ]
        out |= (every["process"] == process.index) & every["launch"].isin(flying)
    return out


def _communicator(report: Collectives, key: str | None, calls: pd.DataFrame) -> pd.DataFrame:
    """Adds what is wrong with one communicator. Returns which ranks came when, by collective."""
    members = sorted(set(calls["rank"]))
    by_number = calls.groupby("number", sort=True)
    different = by_number[list(ALIKE)].nunique().gt(1).any(axis=1)
    for number in different.index[different][: LISTED - len(report.mismatches)].tolist():
        some = calls[calls["number"] == number]
        called = {int(row["rank"]): _called(row) for row in some.to_dict("records")}
        report.mismatches.append(Mismatch(key, int(number), called))
    counts = by_number["rank"].nunique()
    report.matched += int((counts == len(members)).sum()) if len(members) > 1 else 0
    unfinished = (counts < len(members)) | by_number["inside"].any()
    if unfinished.any() and (len(members) > 1 or calls["inside"].any()):
        number = int(unfinished.index[unfinished][0])
        report.open.append(_open(key, number, calls, members))
    whole = calls[calls["number"].isin(counts.index[counts == len(members)])]
    first = whole.groupby("number")["came"].transform("min")
    return whole.assign(late=whole["came"] - first)[["rank", "key", "number", "late"]]


def _open(key: str | None, number: int, calls: pd.DataFrame, members: list[int]) -> Open:
    some = calls[calls["number"] == number]
    missing = sorted(set(members) - set(some["rank"]))
    last = calls[calls["rank"].isin(missing)].sort_values("number").groupby("rank").last()
    return Open(
        communicator=key,
        number=number,
        operation=str(some["operation"].iloc[0]),
        inside=sorted(some.loc[some["inside"], "rank"]),
        left=sorted(some.loc[~some["inside"], "rank"]),
        missing=missing,
        last={int(rank): f"{row['operation']} {row['number']}" for rank, row in last.iterrows()},
    )


def _called(row: dict[str, Any]) -> str:
    parts = [str(row["operation"])]
    if not pd.isna(row["bytes"]):
        parts[0] += f" of {text.size(int(row['bytes']))}"
    parts += [str(row[name]) for name in ("type", "reduction") if not pd.isna(row[name])]
    return ", ".join(parts) + ("" if pd.isna(row["root"]) else f", root {row['root']}")


def _ranks(every: pd.DataFrame, late: pd.DataFrame | None) -> pd.DataFrame:
    groups = every.groupby("rank")
    table = groups.agg(
        process=("process", "first"),
        collectives=("number", "size"),
        bytes=("bytes", "sum"),
        gpu_time=("gpu_time", "sum"),
    )
    if late is not None and len(late):
        of = late.groupby("rank")["late"]
        table["late_mean"], table["late_max"] = of.mean().round().astype("i8"), of.max()
        latest = late.loc[late.groupby(["key", "number"])["late"].idxmax()]
        latest = latest[latest["late"] > 0]
        table["last"] = pd.Series(Counter(latest["rank"]), dtype="Int64")
        table["last"] = table["last"].fillna(0)
    return as_timedeltas(table.reset_index(), ("gpu_time", "late_mean", "late_max"))


def _note(report: Collectives, run: Run, relations: dict[int, Any], every: pd.DataFrame) -> None:
    if run.missing_ranks:
        report.notes.append(f"not recorded: {text.ranks(run.missing_ranks)}")
    if every["communicator"].isna().any():
        report.notes.append(
            "NCCL did not name the communicators: calls are matched by their order in each stream"
        )
    if every["gpu_begin"].isna().all():
        report.notes.append("without GPU times (--timeline cupti), ranks come when they call")
    errors = [clock.error_ns for clock in relations.values()]
    if None in errors:
        report.notes.append("the clocks of hosts are related by their wall clocks: error unknown")
    elif any(errors):
        worst = text.duration(max(error or 0 for error in errors))
        report.notes.append(f"the clocks of hosts are related by collectives, to {worst}")
    if not report.checked:
        report.notes.append(
            "no output was compared: it takes epochs right after all-reduces (--epoch "
            f"nvtx:^ncclAllReduce), {AGREED + 2} of one size with new results if other calls write "
            "too"
        )
