"""The report of `collectives` as text."""

from __future__ import annotations

from collections.abc import Iterator

from ttanalyze.output import text
from ttanalyze.output.tables import as_records
from ttanalyze.verbs.collectives.collectives import Collectives, Open

SHOWN = 10


def collectives_text(report: Collectives, colour: bool = False, width: int = 0) -> str:
    """Returns the report for a screen: the verdict, what is wrong, and how late each rank was.

    Args:
        report: The result of `collectives`.
        colour: Whether to use terminal colours.
        width: The width of the screen in characters, 0 for no limit.
    """
    word, hue = ("same", "green") if report.same else ("different", "red")
    lines = [f"{text.coloured(word, hue, colour)}: {_verdict(report)}"]
    lines += [f"  {line}" for line in _wrong(report)]
    lines += ["", *text.table(list(_ranks(report)), set(range(8)), width).splitlines()]
    lines += [f"note: {text.printable(note)}" for note in report.notes]
    return "\n".join(lines)


def _verdict(report: Collectives) -> str:
    counts = [
        (len(report.open), "collective that did not end", "collectives that did not end"),
        (len(report.mismatches), "mismatch", "mismatches"),
        (len(report.wrong), "wrong output", ""),
    ]
    found = [text.count(number, *names) for number, *names in counts if number]
    matched = f"{report.matched:,} matched across ranks, {report.checked:,} outputs compared"
    return ", ".join(found or ["all collectives fit"]) + f"; {matched}"


def _wrong(report: Collectives) -> Iterator[str]:
    for one in report.open:
        yield f"{one.operation} {one.number}{_of(one.communicator)}: {_state(one)}"
    for mismatch in report.mismatches[:SHOWN]:
        by_call: dict[str, list[int]] = {}
        for rank, called in mismatch.called.items():
            by_call.setdefault(called, []).append(rank)
        said = "; ".join(f"{text.ranks(sorted(some))}: {call}" for call, some in by_call.items())
        yield f"collective {mismatch.number}{_of(mismatch.communicator)} differs: {said}"
    for wrong in report.wrong[:SHOWN]:
        where = ", ".join(map(text.printable, wrong.names[:4])) or f"region {wrong.region}"
        groups = " / ".join(map(text.ranks, wrong.groups))
        yield (
            f"AllReduce {wrong.number}{_of(wrong.communicator)}: its output in {where}, block "
            f"{wrong.block}, differs in epoch {wrong.epoch}: {groups}"
        )
    more = len(report.mismatches) - SHOWN
    if more > 0:
        yield f"and {more} more mismatches (--json has them)"


def _state(one: Open) -> str:
    parts = []
    if one.inside:
        parts.append(f"{text.ranks(one.inside)} {_verb(one.inside, 'is', 'are')} in it")
    if one.left:
        parts.append(f"{text.ranks(one.left)} left it")
    if one.missing:
        last = set(one.last.values())
        tail = f" (the last was {last.pop()})" if len(last) == 1 else ""
        parts.append(f"{text.ranks(one.missing)} did not call it{tail}")
    return "; ".join(parts)


def _verb(some: list[int], one: str, several: str) -> str:
    return several if some[1:] else one


def _of(communicator: str | None) -> str:
    return f" of {communicator}" if communicator else ""


def _ranks(report: Collectives) -> Iterator[list[str]]:
    late = "late_mean" in report.ranks
    yield ["rank", "collectives", "bytes", "GPU time", *["last in", "late: mean", "most"] * late]
    for row in as_records(report.ranks):
        cells = [str(row["rank"]), f"{row['collectives']:,}", text.size(int(row["bytes"]))]
        cells.append(text.duration(row["gpu_time"]) if row["gpu_time"] else "")
        if late:
            cells += [
                f"{row['last']:,}",
                *(text.duration(row[n]) for n in ("late_mean", "late_max")),
            ]
        yield cells
