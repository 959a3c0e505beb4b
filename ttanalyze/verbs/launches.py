"""A database of recorded launches: by kernel, with sizes, epochs before and after, and code."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ttanalyze.code import demangle
from ttanalyze.errors import Error
from ttanalyze.format import layout, modules
from ttanalyze.format.kernel_checksums import Checksums
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.gpu.rebuild.steps import three
from ttanalyze.output import text
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.replay.plan import launches as executed

__all__ = ["KernelLaunches", "RecordedLaunch", "launches"]

Three = tuple[int, int, int]


@dataclass(frozen=True)
class RecordedLaunch:
    """A recorded launch.

    Attributes:
        seq: Its sequence number: `replay`, `tune` and `export` take it as --launch.
        grid, block: Its blocks, and the threads of each, in x, y and z.
        shared: Its dynamic shared memory in bytes.
        before, after: The epochs right before and after it, None for a launch that was not recorded
            with --replayable, or whose result did not reach the disk.
        params: The bytes of its parameters, as hexadecimal digits; "" if they were not recorded.
        occurrences: The number of launches of the kernel with these sizes in the process.
    """

    seq: int
    grid: Three
    block: Three
    shared: int
    before: int | None
    after: int | None
    params: str
    occurrences: int


@dataclass(frozen=True)
class KernelLaunches:
    """The recorded launches of a kernel.

    Attributes:
        process: The index of the process.
        name: The mangled name.
        demangled: The name in the source.
        checksum: The checksum of the code, None if the code was not saved.
        module: The file with the code, relative to the run, None if it was not saved.
        launches: The launches, by sequence number.
    """

    process: int
    name: str
    demangled: str
    checksum: str | None
    module: str | None
    launches: list[RecordedLaunch] = field(default_factory=list)


def launches(
    run: Run, names: Sequence[str] = (), kernel: str | None = None, progress: Progress = None
) -> list[KernelLaunches]:
    """Returns the recorded launches of a run, by kernel.

    These are the replayable launches of each process, or all of them if none is.

    Args:
        run: The run.
        names: Exact mangled names. Default: all kernels.
        kernel: A regular expression for the kernel name, mangled or demangled.
        progress: Called with the finished and the total number of processes.

    Raises:
        Error: The regular expression is malformed, or no kernel has one of the names.

    Example:
        >>> (kernel,) = tt.launches.launches(tt.open("run1"))
        >>> kernel.name, len(kernel.launches)
        ('scale', 2)
    """
    checksums = Checksums()
    out: list[KernelLaunches] = []
    for number, process in enumerate(run.processes):
        tell(progress, number, len(run.processes))
        out += _of_process(process, kernel, checksums)
    known = {one.name for one in out}
    for name in names:
        if name not in known:
            raise Error(f"no recorded launch of a kernel with the mangled name {name}")
    return [one for one in out if not names or one.name in names]


def _of_process(process: Process, kernel: str | None, checksums: Checksums) -> list[KernelLaunches]:
    events = executed(process, kernel)
    keys = [_key(event) for event in events]
    counts = collections.Counter(keys)
    kept = {int(one["seq"]): one for one in process.launches}
    out: dict[int, KernelLaunches] = {}
    for event, key in zip(events, keys, strict=True):
        one = kept.get(int(event["seq"]))
        if kept and one is None:
            continue
        function, grid, block, shared = key
        if function not in out:
            out[function] = _kernel(process, function, checksums)
        before, after = _epoch(process, one, "before"), _epoch(process, one, "after")
        params = process.params(event).hex() if event["params"] else ""
        seq, many = int(event["seq"]), counts[key]
        made = RecordedLaunch(seq, grid, block, shared, before, after, params, many)
        out[function].launches.append(made)
    return list(out.values())


def _key(event: Any) -> tuple[int, Three, Three, int]:
    grid, block = (three(event[name]) for name in ("grid", "block"))
    return int(event["id"]), grid, block, int(event["shared"])


def _epoch(process: Process, kept: Any, name: str) -> int | None:
    number = layout.NO_ID if kept is None else int(kept[name])
    return number if number < len(process.epochs) else None


def _kernel(process: Process, function: int, checksums: Checksums) -> KernelLaunches:
    name = process.kernel(function) or "?"
    (full,) = demangle.demangle([name])
    module = modules.of_kernel(process, function)
    path = None
    if module is not None and module["image"]:
        path = os.path.relpath(modules.path_of(process, int(module["image"])), process.path.parent)
    return KernelLaunches(process.index, name, full, checksums.get(process, function), path)


def to_object(run: str, found: Sequence[KernelLaunches]) -> dict[str, Any]:
    """Returns the database as docs/format.md describes it.

    Args:
        run: The path of the run.
        found: The launches.
    """
    return {
        "format": "ttanalyze-launches",
        "version": 1,
        "run": run,
        "kernels": [asdict(one) for one in found],
    }


def launches_text(found: Sequence[KernelLaunches], width: int = 0) -> str:
    """Returns a table with one line per launch.

    Args:
        found: The launches.
        width: The width of the screen, 0 for any.
    """
    rows = [["launch", "kernel", "grid", "block", "shared", "before", "after", "same sizes"]]
    for kernel in found:
        for one in kernel.launches:
            epochs = ["" if epoch is None else str(epoch) for epoch in (one.before, one.after)]
            sizes = [text.extent(one.grid, "x"), text.extent(one.block, "x"), text.size(one.shared)]
            name = text.printable(demangle.short(kernel.demangled))
            rows.append([str(one.seq), name, *sizes, *epochs, str(one.occurrences)])
    return text.table(rows, {0, 4, 5, 6, 7}, width)
