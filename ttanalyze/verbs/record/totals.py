"""What was recorded: counts, warnings and gaps, by the sizes of files and without numpy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ttanalyze import options
from ttanalyze._format import ffi
from ttanalyze.errors import Error
from ttanalyze.format import statuses
from ttanalyze.output import text

HEADER = ffi.sizeof("struct tt_file_header")
LONG = 1000  # epochs from which on `info` would notice how many there are
RECORDS = {"epochs.bin": "struct tt_epoch", "launches.bin": "struct tt_launch"}
WARNED_OF = {
    name: ffi.integer_const(f"TT_EPOCHF_{name.upper()}") for name in ("refused", "dropped", "loose")
}


def contents(out: Path) -> list[dict[str, Any]]:
    """Returns the processes in run.json."""
    with contextlib.suppress(OSError, orjson.JSONDecodeError):
        return processes(orjson.loads((out / "run.json").read_bytes()))
    return []


def timed_out(out: Path) -> bool:
    """Returns whether the recorder ended a process at a limit."""
    return any(process.get("status") == statuses.TIMEOUT for process in contents(out))


def processes(info: dict[str, Any]) -> list[dict[str, Any]]:
    return [process for process in info.get("processes", []) if isinstance(process, dict)]


def folder_of(out: Path, process: dict[str, Any]) -> Path:
    return out / f"p{process.get('process')}"


def warnings(out: Path, process: dict[str, Any], epochs: bytes) -> int:
    """Returns the number of warnings of a process, as in Run.warnings, without numpy. epochs: their
    flags.
    """
    launches = records(folder_of(out, process) / "launches.bin")
    count = len(process.get("warnings", []))
    count += process.get("status") not in statuses.WITH_THE_PROCESS
    count += len(options.unmet(process, len(epochs), launches))
    count += sum(1 for _ in flagged(process, epochs))
    return count + bool(process.get("counters", {}).get("events_lost"))


def flagged(process: dict[str, Any], epochs: bytes) -> Iterator[tuple[str, int]]:
    """Returns how many epochs of a process have each flag that users should know."""
    for name, flag in WARNED_OF.items():
        count = sum(bool(flags & flag) for flags in epochs)
        if count:
            yield name, count


def incomplete(processes: list[tuple[dict[str, Any], bytes]], folders: int) -> str | None:
    """Returns the first thing that is missing in the recording, None if nothing is.

    processes: with the flags of their epochs.
    """
    if not folders:
        return "no process was recorded"
    if len(processes) < folders:
        return "a process was killed before run.json listed it"
    for process, epochs in processes:
        lead = f"process {process.get('process')}: " if folders > 1 else ""
        status, reason = process.get("status"), process.get("reason") or "no reason given"
        if status == statuses.RUNNING:
            return f"{lead}the process was killed, or still runs"
        if status != statuses.COMPLETE:
            return f"{lead}{status}: {reason}"
        if losses := process.get("losses"):
            return f"{lead}{losses[0]}"
        for name, count in flagged(process, epochs):
            return f"{lead}{text.count(count, f'{name} epoch')}"
        if lost := process.get("counters", {}).get("events_lost"):
            return f"{lead}{text.count(lost, 'lost call')}"
    return None


def flags(folder: Path) -> bytes:
    """Returns the low byte of the flags of each epoch of a process."""
    size = ffi.sizeof("struct tt_epoch")
    with contextlib.suppress(OSError):
        epochs = (folder / "epochs.bin").read_bytes()
        return epochs[HEADER + ffi.offsetof("struct tt_epoch", "flags") :: size]
    return b""


def records(path: Path) -> int:
    """Returns the number of records in a file, by its size."""
    count = 0
    with contextlib.suppress(OSError):
        count = (path.stat().st_size - HEADER) // ffi.sizeof(RECORDS[path.name])
    return max(0, count)


def sums(out: Path) -> tuple[int, int, int, int]:
    """Returns processes, epochs, launches and bytes of a run directory, by file sizes."""
    counts = dict.fromkeys(RECORDS, 0)
    processes = size = 0
    for folder, _, names in os.walk(out):
        for name in names:
            with contextlib.suppress(OSError):
                length = os.stat(os.path.join(folder, name)).st_size
                size += length
                if name in RECORDS:
                    processes += name == "epochs.bin"
                    counts[name] += max(0, length - HEADER) // ffi.sizeof(RECORDS[name])
    return processes, counts["epochs.bin"], counts["launches.bin"], size


def keep_summaries(processes: list[tuple[Path, dict[str, Any]]]) -> None:
    """Writes what `info` tells of long recordings of ranks, so that it need not read their epochs.

    processes: folder and process.json of each, of which those that have ended count.
    """
    folders = [
        folder
        for folder, process in processes
        if process.get("status") in statuses.OVER
        and process.get("rank")
        and records(folder / "epochs.bin") >= LONG
    ]
    if folders:
        from ttanalyze.util.parallel import each

        each(_keep_summary, folders)


def _keep_summary(folder: Path) -> None:
    from ttanalyze.core import summary

    with contextlib.suppress(OSError, Error):  # `info` then reads the files
        summary.keep(folder)
