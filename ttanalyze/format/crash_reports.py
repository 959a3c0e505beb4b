"""The crash reports in process.json: in-flight work at the end of the process or of a context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ttanalyze.errors import FormatError
from ttanalyze.format.files import expect, expect_list

GROUP_NUMBERS = ("instruction", "first", "last", "access", "object")
NUMBERS = ("seq", "submitted_ns", "thread", "stack", "bytes")


def check(path: Path, where: str, process: dict[str, Any]) -> None:
    """Raises FormatError if members of crash reports have a wrong type."""
    expect_list(path, where, process, "incidents", dict)
    for i, report in enumerate(process.get("incidents", [])):
        here = f"{where}incidents[{i}]."
        _require(path, here, report, "reason")
        expect(path, here, report, reason=str, call=(str, None), seq=int, time_ns=int)
        expect(path, here, report, answered=bool, streams=int)
        expect_list(path, here, report, "threads", dict)
        for k, thread in enumerate(report.get("threads", [])):
            _require(path, f"{here}threads[{k}].", thread, "thread", "call")
            expect(path, f"{here}threads[{k}].", thread, thread=int, call=str, stack=int)
        expect_list(path, here, report, "launches", dict)
        for k, launch in enumerate(report.get("launches", [])):
            _check_launch(path, f"{here}launches[{k}].", launch)
        expect_list(path, here, report, "in_flight", dict)
        for k, stream in enumerate(report.get("in_flight", [])):
            _check_stream(path, f"{here}in_flight[{k}].", stream)


def _check_launch(path: Path, where: str, launch: dict[str, Any]) -> None:
    _require(path, where, launch, "seq", "launch", "warps", "warps_per_block", "groups")
    expect(path, where, launch, seq=int, launch=int, warps=int, warps_per_block=int)
    expect_list(path, where, launch, "groups", dict)
    for i, group in enumerate(launch["groups"]):
        here = f"{where}groups[{i}]."
        _require(path, here, group, "state", "count", "warps")
        expect(path, here, group, state=str, count=int)
        expect_list(path, here, group, "warps", int)
        expect(path, here, group, **dict.fromkeys(GROUP_NUMBERS, int))
        if "last" in group:
            _require(path, here, group, "first")


def _check_stream(path: Path, where: str, stream: dict[str, Any]) -> None:
    _require(path, where, stream, "context", "stream")
    expect(
        path,
        where,
        stream,
        context=int,
        stream=int,
        thread=int,
        count=int,
        more=bool,
        destroyed=bool,
    )
    expect(path, where, stream, behind=dict)
    if "behind" in stream:
        _require(path, f"{where}behind.", stream["behind"], "context", "stream")
        expect(path, f"{where}behind.", stream["behind"], context=int, stream=int, thread=int)
    expect_list(path, where, stream, "calls", dict)
    for i, call in enumerate(stream.get("calls", [])):
        here = f"{where}calls[{i}]."
        _require(path, here, call, "seq", "kind", "call")
        expect(path, here, call, **dict.fromkeys(NUMBERS, int))
        expect(path, here, call, kind=str, call=str, kernel=(str, None))
        for shape in ("grid", "block"):
            expect_list(path, here, call, shape, int)


def _require(path: Path, where: str, value: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in value:
            raise FormatError(path, f"{where}{key}", "it is missing")
