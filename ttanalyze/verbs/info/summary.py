"""Finds what is told of a run and its processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttanalyze.core.summary import summarise
from ttanalyze.format import layout, statuses, summaries
from ttanalyze.format.process import Process
from ttanalyze.format.process_info import Rank, missing_ranks
from ttanalyze.format.run import AT_ONCE, Run, warnings_of
from ttanalyze.traces.hangs import hang_of
from ttanalyze.util.parallel import each
from ttanalyze.util.remote import Url, sizes_below


@dataclass(frozen=True)
class ProcessSummary:
    """One process of a run. What process.json has is as docs/format.md#processjson says.

    Attributes:
        process: Its number.
        pid: Its id in the system.
        argv: The program and its arguments.
        rank: Its place in a job. None if no launcher gave ranks.
        cwd: Its working directory.
        status: How the recording ended: `complete`, `signal`, `timeout`, `failed`, `killed`, or
            `running`.
        reason: Why it ended so, a few words.
        started_ns, ended_ns: When it began and ended, nanoseconds since 1970. None if not recorded.
        driver_version: Such as 13000 for CUDA 13.0.
        devices: The GPUs, of process.json.
        deterministic: Whether it was recorded with `--deterministic`.
        options: The TT_ variables that are not the default.
        ring: Size and place of the ring, of process.json.
        epochs: The number of epochs.
        triggers: How often each trigger cut an epoch, the most frequent first.
        epoch_flags: The number of epochs with each flag.
        epochs_dropped: The number of epochs without contents.
        epochs_skipped: The number of epochs that were refused to keep to `--max-overhead`.
        overhead: What recording cost, of process.json. None without `--max-overhead`.
        threads: Processor time of the recorder's threads, of process.json.
        epochs_digests_only: The number of epochs whose contents were not recorded.
        unread: How often an epoch did not read a region.
        bytes_read, bytes_changed, bytes_stored: Sums over the epochs, in bytes.
        regions_captured, regions_not_captured: The number of regions of each kind.
        bytes_captured: The size of the captured regions in bytes.
        kernels: The number of kernels.
        replayable: `launches`, `kernels`, and `without_code`: kernels by what is missing. None
            without `--replayable`.
        traced: `launches` whose instructions were traced, `bytes` of that, and how many were
            `refused`, by why. None if none was to be traced.
        modules: The number of loaded images.
        events: The number of driver calls.
        events_lost: The number of calls for which there was no room.
        annotations: The number of NVTX calls.
        timeline: What process.json says of GPU times, and the number of `launches` and
            `timed_launches`. None without a timeline.
        capture_waits: `count`: the calls that made their stream wait for a capture. `time_ns`: the
            sum of these waits, None without a timeline.
        late: The number of delayed `calls` and `instructions`. None without delays.
        zones: How many zones `changed`, the `epochs` that show it first, and how many
            `allocations` and `bytes` have zones, of how many. None without zones.
        guards: How many `allocations` and `bytes` have guards, of how many. None without `--guard`.
        unknown_calls: Names of calls that were passed on without being recorded.
        incidents: Crash reports.
        last_epoch: The last epoch with its `epoch`, `trigger` and `seq`. None if there is none.
    """

    process: int
    pid: int | None
    argv: list[str]
    rank: Rank | None
    cwd: str | None
    status: str
    reason: str | None
    started_ns: int | None
    ended_ns: int | None
    driver_version: int | None
    devices: list[dict[str, Any]]
    deterministic: bool
    options: dict[str, str]
    ring: dict[str, Any]
    epochs: int
    triggers: dict[str, int]
    epoch_flags: dict[str, int]
    epochs_dropped: int
    epochs_skipped: int
    overhead: dict[str, Any] | None
    threads: list[dict[str, Any]]
    epochs_digests_only: int
    unread: int
    bytes_read: int
    bytes_changed: int
    bytes_stored: int
    regions_captured: dict[str, int]
    regions_not_captured: dict[str, int]
    bytes_captured: int
    kernels: int
    replayable: dict[str, Any] | None
    traced: dict[str, Any] | None
    modules: int
    events: int
    events_lost: int
    annotations: int
    timeline: dict[str, Any] | None
    capture_waits: dict[str, Any]
    late: dict[str, int] | None
    zones: dict[str, Any] | None
    guards: dict[str, int] | None
    unknown_calls: list[str]
    incidents: list[dict[str, Any]]
    last_epoch: dict[str, Any] | None


@dataclass(frozen=True)
class Info:
    """The result of `info`.

    Attributes:
        run: The path of the run.
        format: The version of its format.
        created_ns: When it was made, nanoseconds since 1970.
        bytes_on_disk: The size of its files in bytes.
        exit: `status` and `signal` of the recorded program.
        processes: Its processes, by number.
        missing_ranks: The ranks of the job that were not recorded, ascending.
        warnings: The warnings of the recorder and gaps of the run, one line each.
    """

    run: str
    format: int
    created_ns: int | None
    bytes_on_disk: int
    exit: dict[str, Any] | None
    processes: list[ProcessSummary]
    missing_ranks: list[int]
    warnings: list[str]


def info(run: Run) -> Info:
    """Summarises a run.

    Args:
        run: The run.

    Returns:
        Programs, devices, options, epochs, regions, counters and warnings.

    Raises:
        FormatError: A file does not follow the format.

    Example:
        >>> summary = tt.info(tt.open("run1"))
        >>> summary.processes[0].argv
        ['./app', '--fast']
    """

    def told(process: Process) -> tuple[ProcessSummary, list[str], int]:
        files = summaries.files_of(process.path)
        found = summaries.kept(process.path, files)
        warnings = warnings_of(run, process, found.pop("warnings") if found else None)
        return _process(run, process, found), warnings, sum(size for size, _ in files.values())

    here = not isinstance(run.path, Url)
    found = each(told, run.processes, len(run.processes) > AT_ONCE and here)
    if here:
        others = {process.path.name for process in run.processes}
        rest = summaries.files_of(run.path, others)
        size = sum(of for of, _ in rest.values()) + sum(of for *_, of in found)
    else:
        size = sum(sizes_below(run.path).values())
    processes = [process for process, *_ in found]
    warnings = [line for _, lines, _ in found for line in lines] if found else run.warnings
    return Info(
        run=str(run.path),
        format=run.info.get("version", layout.VERSION),
        created_ns=run.info.get("created_ns"),
        bytes_on_disk=size,
        exit=run.info.get("exit"),
        processes=processes,
        missing_ranks=missing_ranks(p.rank for p in processes) if run.ranks is None else [],
        warnings=warnings,
    )


def _process(run: Run, process: Process, kept: dict[str, Any] | None) -> ProcessSummary:
    """Returns what is told of a process of a run. kept: what it kept of this."""
    told = {"process": process.index, "traced": None, **(kept or summarise(process))}
    if told["status"] == statuses.RUNNING and run.over:
        told["status"] = statuses.KILLED
    told["incidents"] = [_incident(run, process, one) for one in told["incidents"]]
    told["rank"] = told["rank"] and Rank(**told["rank"])
    return ProcessSummary(**told)


def _incident(run: Run, process: Process, report: dict[str, Any]) -> dict[str, Any]:
    """Returns a crash report with what the warps of its launches did in words."""
    told = report.pop("launches", None)
    return {**report, "hang": hang_of(run, process, told).as_dict()} if told else report
