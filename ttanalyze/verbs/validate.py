"""Checks files and traces of runs, and shows the result as text and JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import open_run
from ttanalyze.output import text
from ttanalyze.schemas import Fault, Report
from ttanalyze.schemas import validate as validate_file
from ttanalyze.schemas.files import MOST, RECORDS
from ttanalyze.util.progress import Progress

__all__ = ["Fault", "Report", "validate"]

RUN = "instruction-trace"


def validate(
    path: str | os.PathLike[str], kind: str | None = None, progress: Progress = None
) -> Report:
    """Checks a file, or the instruction traces of a run.

    Args:
        path: The file or the run.
        kind: The kind of the file, such as "manifest". Default: found from its contents.
        progress: Called with the finished and the total number of bytes.

    Raises:
        Error: It cannot be read, its kind is unclear, or the run has no traces.

    Example:
        >>> import json
        >>> record = {"type": "opcode_only", "ctx": "0x1", "grid_launch_id": 0, "cta": [0, 0, 0]}
        >>> record |= {"warp": 0, "opcode_id": 0, "pc": "0x0", "sass": "EXIT ;"}
        >>> record |= {"trace_index": 0, "timestamp": 1}
        >>> _ = Path("trace.ndjson").write_text(json.dumps(record))
        >>> tt.validate.validate("trace.ndjson").faults
        []
    """
    path = Path(path)
    if not path.is_dir():
        return validate_file(path, kind, progress)
    if kind not in (None, RUN):
        raise Error(f"--kind {kind}: {path} is a run directory")
    launches = records = 0
    faults = []
    for process in open_run(path).processes:
        try:
            launches += len(process.traced)
            records += int(process.instruction_trace.summary["records"].sum())
        except FormatError as e:
            name = Path(e.path).relative_to(path)
            where = f"offset {e.where}" if isinstance(e.where, int) else e.where
            faults.append(Fault(None, f"{name}: {where}", e.reason))
    if not launches and not faults:
        raise Error(f"{path}: no launch was to be traced; nothing was checked")
    return Report(str(path), RUN, records, faults, False)


def report_text(report: Report) -> str:
    """Returns one line per fault, or one line that there is none."""
    name = text.printable(report.path)
    if report.good:
        what = "record" if report.kind in (RUN, *RECORDS) else "document"
        return f"{name}: {report.kind}, {text.count(report.checked, what)}: good"
    lines = [f"{name}: {fault}" for fault in report.faults]
    if report.more:
        lines.append(f"{name}: and more than {MOST:,} faults")
    return "\n".join(lines)


def to_object(report: Report) -> dict[str, Any]:
    """Returns the report for `--json`."""
    return {
        "path": report.path,
        "kind": report.kind,
        "checked": report.checked,
        "good": report.good,
        "more": report.more,
        "faults": [{"line": f.line, "where": f.where, "reason": f.reason} for f in report.faults],
    }
