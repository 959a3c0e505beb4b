"""The steps of a program, as its NVTX ranges or the names of its epochs tell them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ttanalyze.errors import Error
from ttanalyze.format import annotations as said
from ttanalyze.format.layout import NO_ID
from ttanalyze.format.process import Process

PATTERN = r"(?i)(step|iter|iteration|batch)[\s_#:=/-]*\d+"


@dataclass(frozen=True)
class Step:
    """A step: its name, and the calls with seq in [first, last]. last: None if it did not end."""

    name: str
    first: int
    last: int | None


def steps_of(process: Process, pattern: str | None = None) -> list[Step]:
    """Returns the steps of a process in order.

    They are the NVTX ranges whose message contains the pattern, without those inside another one.
    Without such a range they are epochs with such a name: each ends with its epoch.

    Args:
        process: The process.
        pattern: A regular expression. Default: words such as "step 12", "iter_3" or "batch#0".

    Raises:
        Error: The pattern is not a regular expression.
    """
    try:
        wanted = re.compile(PATTERN if pattern is None else pattern)
    except re.error as e:
        raise Error(f"--step {pattern}: not a regular expression: {e}") from None
    return _ranges(process, wanted) or _epochs(process, wanted)


def _ranges(process: Process, wanted: re.Pattern[str]) -> list[Step]:
    found = process.annotations.ranges
    records = process.annotations.records
    names: dict[int, str | None] = {}
    out: list[Step] = []
    for begin, end in zip(found["begin"].tolist(), found["end"].tolist(), strict=True):
        record = records[begin]
        message = int(record["id"])
        if message not in names:
            text = process.strings.get(message)
            names[message] = text if text is not None and wanted.search(text) else None
        name, first = names[message], int(record["seq"])
        if name is None or record["kind"] == said.MARK:
            continue
        if out and (out[-1].last is None or first < out[-1].last):
            continue  # inside
        out.append(Step(name, first, None if end < 0 else int(records[end]["seq"])))
    return out


def _epochs(process: Process, wanted: re.Pattern[str]) -> list[Step]:
    out: list[Step] = []
    first = 0
    for record in process.epochs:
        label = int(record["label"])
        name = None if label == NO_ID else process.strings.get(label)
        last = int(record["seq"])
        if name is not None and wanted.search(name) and last > first:
            out.append(Step(name, first, last))
        first = max(first, last + 1)
    return out
