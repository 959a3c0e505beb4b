"""The tables of a run as DataFrames. Each has a column `process`: N of RUN/pN.

Times are nanoseconds of CLOCK_MONOTONIC, of which `output/times.py` makes timedeltas for users.
Sizes are bytes, addresses are the driver's. Texts that were not recorded are missing values.
Numbers that may be missing have the dtype Int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.format import annotations as said
from ttanalyze.format import layout
from ttanalyze.format.activity_table import ActivityTable
from ttanalyze.format.columns import (
    Texts,
    concat,
    joined,
    masked,
    named,
    names_of,
    nullable,
    plain,
    process_column,
    string_of,
    texts_of,
)
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.kernel_checksums import Checksums, Sources
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process


def epochs(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per epoch.

    Columns:
        epoch: number, from 0
        trigger: `sync` `launch` `kernel-before` `kernel-after` `copy` `api` `final`
        label: the kernel, or the label given to `tt_epoch`
        full, touched, loose, refused, dropped, gap: flags, see docs/format.md#epochsbin
        skipped: whether it was refused to keep to `--max-overhead`
        context: number of the context, in order of first use
        device: ordinal of the device
        seq: position in the order of calls: compare with `events["seq"]`
        time_ns: when it was cut
        done_ns: when its contents were on disk
        regions: number of captured live regions
        changed_regions, changed_blocks: number of listed regions and blocks; all of them if the
            epoch is full
        bytes_read: bytes that were hashed
        bytes_changed: bytes of listed blocks
        bytes_stored: new bytes in the data files
        segment: N of `data-N.bin`
        controls: settings of `tt_control`, as `points=on;stamps=on;snapshot=64;regions=all`;
            missing if none were made
    """
    records = [p.epochs for p in processes]
    without = [p.removed | p.digests_alone for p in processes]
    flags = joined(records, "flags")
    kept = flags & layout.REFUSED == 0
    flags = np.where(concat(without, bool) & kept, flags | layout.DROPPED, flags)
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        "epoch": joined(records, "number"),
        "trigger": named(joined(records, "trigger"), layout.TRIGGERS),
        "label": texts_of(processes, [r["label"] for r in records], string_of),
        **{name: flags & bit != 0 for name, bit in layout.EPOCH_FLAGS.items()},
        "skipped": joined(records, "skipped") != 0,
        **plain(records, "context", "device", "seq", "time_ns", "done_ns", "regions"),
        "changed_regions": joined(records, "digests_count"),
        "changed_blocks": joined(records, "blocks_count"),
        **plain(records, "bytes_read", "bytes_changed", "bytes_stored", "segment"),
        "controls": texts_of(processes, [r["controls"] for r in records], _setting),
    }
    return pd.DataFrame(columns)


def _setting(process: Process, offset: int) -> str | None:
    return process.strings.get(offset) if offset else None


def regions(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per allocation.

    Columns:
        region: id, in order of allocation, never reused
        kind: `device` `managed` `async` `vmm` `global` `ipc` `arena`; `host` `host-registered`
            (captured with `--host-memory`); `array` (captured with `--arrays`)
        label: name of a variable, or a name from the program
        size: bytes
        base: address
        captured: whether epochs contain it
        unstable: whether its address comes from the driver in a deterministic run
        guarded: whether unmapped memory follows it (`--guard`)
        device, context, stream: where it belongs
        module: the module of a variable
        call, seq, time_ns: the call that allocated it, and when
        born, died: it lives in the epochs `[born, died)`; `died` is missing while it lives
        death_call, death_seq: the call that freed it
    """
    tables = [p.regions for p in processes]
    records = [t.birth for t in tables]
    flags = joined(records, "flags")
    died = concat([t.died for t in tables], "u4")
    alive = died == layout.NO_EPOCH
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        "region": joined(records, "id"),
        "kind": named(joined(records, "kind"), layout.REGION_KINDS),
        "label": texts_of(processes, [t.label for t in tables], string_of),
        **plain(records, "size", "base"),
        "captured": flags & layout.CAPTURED != 0,
        "unstable": flags & layout.UNSTABLE != 0,
        "guarded": flags & layout.GUARDED != 0,
        **plain(records, "device", "context", "stream"),
        "module": nullable(joined(records, "module"), layout.NO_ID),
        "call": texts_of(processes, [r["call"] for r in records], Process.call),
        **plain(records, "seq", "time_ns"),
        "born": joined(records, "epoch"),
        "died": nullable(died, layout.NO_EPOCH),
        "death_call": texts_of(processes, [t.death_call for t in tables], Process.call),
        "death_seq": masked(concat([t.death_seq for t in tables], "u8"), alive),
    }
    return pd.DataFrame(columns)


AXES = {
    f"{size}_{axis}": (size, i)
    for size in ("grid", "block", "cluster")
    for i, axis in enumerate("xyz")
}
EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    "process": (),
    **{name: (name,) for name in ("seq", "time_ns", "kind", "call")},
    "kernel": ("kind", "id"),
    **{name: (name,) for name in ("thread", "result", "context", "stream", "dst", "src")},
    **{name: (name,) for name in ("bytes", "id", "flags", "shared")},
    **{name: (size,) for name, (size, _) in AXES.items()},
    "stack": ("stack",),
}


def events(processes: Sequence[Process], columns: Sequence[str] = ()) -> pd.DataFrame:
    """One row per driver call, by process and seq.

    Columns:
        seq: position in the process-wide order of calls
        time_ns: when the call was made
        kind: such as `launch`, `copy` or `alloc`: all are in docs/format.md#eventsbin
        call: name of the driver call
        kernel: mangled name of a launched kernel
        thread: thread id
        result: the CUresult that the program got
        context, stream: stream 1 is the legacy default stream, 2 the per-thread one, others start
            at 16
        dst, src, bytes: of copies, sets and allocations; `src` of a set is the value
        id: a function, region, module, graph or epoch, depending on the kind; for annotations
            (`mark` to `name`) see `ranges`
        flags: see docs/format.md#eventsbin
        shared: bytes of dynamic shared memory of a block
        grid_x … cluster_z: blocks of the grid, threads of a block, blocks of a cluster; for
            copies and sets of rows, their shape, see docs/format.md#eventsbin
        stack: the call stack in `stacks`; missing if it was not recorded
    """
    fields = [f for column in columns or EVENT_FIELDS for f in EVENT_FIELDS[column]]
    records = [p.event_columns("seq", *fields) for p in processes]
    return EventTable().frame(processes, records, columns)


class EventTable:
    """Makes DataFrames of events in pieces with shared categories."""

    def __init__(self) -> None:
        self._texts = {"call": Texts(Process.call), "kernel": Texts(Process.kernel)}

    def frame(
        self, processes: Sequence[Process], records: Sequence[Any], columns: Sequence[str] = ()
    ) -> pd.DataFrame:
        """Returns columns of tt_event records of each process, or of arrays by member."""
        wanted = columns or list(EVENT_FIELDS)
        made = {c: self._column(c, processes, records) for c in wanted}
        return pd.DataFrame(made, copy=False)

    def _column(self, column: str, processes: Sequence[Process], records: Sequence[Any]) -> Any:
        if column == "process":
            return process_column(processes, [r["seq"] for r in records])
        if column == "kernel":
            launch = KIND["launch"]
            kernels = [np.where(r["kind"] == launch, r["id"], layout.NO_ID) for r in records]
            return self._texts["kernel"].column(processes, kernels)
        if column in AXES:
            field, axis = AXES[column]
            return concat([r[field][:, axis] for r in records], "u4")
        values = concat([r[column] for r in records], layout.EVENT[column])
        if column == "call":
            return self._texts["call"].column(processes, [r["call"] for r in records])
        if column == "kind":
            return named(values, layout.EVENT_KINDS)
        missing = {"id": layout.NO_ID, "stack": 0}.get(column)
        return values if missing is None else nullable(values, missing)


def activities(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per piece of GPU work and per wait of the host, ordered by call and begin.

    It needs a run with a `--timeline`.

    Columns:
        seq: the call that submitted the work; missing if unknown, as for the recorder's own work
        kind: `launch` `copy` `set`; `graph-launch` is a graph as a whole, `sync` a wait
        kernel: mangled name of a kernel, also of a graph's kernels
        context, device, stream: where it ran; missing if unknown
        bytes: of copies and sets
        node: of a graph's work: the driver's number of the node; for a stamped kernel, the `node`
            of `run.graph_nodes`
        begin_ns, end_ns: times; `run.process(0).info["timeline"]["clock_error_ns"]` is their error
        gpu_time: duration of GPU work
        wait_time: duration of a wait of the host
        coarse: whether the times are those of events around the work, so that it began no earlier
            and ended no later
        stamped: whether the times were read on the device before and after a kernel inside its
            graph (`--graph-stamps`)
        own: whether it is work of the recorder: captures, copies of the drain; has a `seq` inside
            graphs
    """
    records = [p.activities.between(-1, (1 << 64) - 1) for p in processes]
    return ActivityTable().frame(processes, records)


RANGE_KINDS = {said.PUSH: "push", said.START: "start", said.MARK: "mark"}


def ranges(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per NVTX range or mark, ordered by begin.

    `run.process(0).annotations.threads` and `.streams` have the names that the program gave to
    threads (by id) and streams (by context and stream).

    Columns:
        kind: `push`: nested in its thread; `start`: may end in another thread; `mark`
        annotation: the message
        domain: the domain; missing for the default one
        path: the messages of the enclosing ranges and its own, with slashes
        level: the number of enclosing ranges
        thread: the thread that began it
        context: the context that the thread used last
        seq, end_seq: its two calls; `end_seq` is missing if it did not end
        begin_ns, end_ns, time: times and duration
        color, category: ARGB and a number; 0 is none
        payload: a number that the program attached
    """
    tables = [p.annotations.ranges for p in processes]
    both = list(zip(processes, tables, strict=True))
    begins = [p.annotations.records[t["begin"]] for p, t in both]
    # Of what did not end: any record, which is masked.
    ends = [
        p.annotations.records[t["end"]] if len(t) else b
        for (p, t), b in zip(both, begins, strict=True)
    ]
    endless = concat([t["end"] < 0 for t in tables], bool)
    begun, ended = joined(begins, "time_ns"), joined(ends, "time_ns")
    columns: dict[str, Any] = {
        "process": process_column(processes, begins),
        "kind": names_of([RANGE_KINDS[k] for r in begins for k in r["kind"].tolist()]),
        "annotation": texts_of(processes, [r["id"] for r in begins], string_of),
        "domain": texts_of(processes, [r["dst"] for r in begins], string_of),
        "path": texts_of(processes, [t["path"] for t in tables], annotation_path),
        **plain(tables, "level"),
        **plain(begins, "thread"),
        "context": nullable(joined(begins, "context"), layout.NO_ID),
        **plain(begins, "seq"),
        "end_seq": masked(joined(ends, "seq"), endless),
        "begin_ns": begun,
        "end_ns": masked(ended, endless),
        "time": masked(ended - begun, endless),
        "color": joined(begins, "shared"),
        "category": concat([r["grid"][:, 1] for r in begins], "u4"),
        "payload": concat([said.payloads(r) for r in begins], "f8"),
    }
    return pd.DataFrame(columns)


def annotation_path(process: Process, number: int) -> str | None:
    """Returns the text of a path of Annotations."""
    return process.annotations.path(number)


def digests(processes: Sequence[Process], first: int = 0, last: int | None = None) -> pd.DataFrame:
    """One row per captured region of an epoch whose digest was recorded.

    Columns:
        epoch, region: the contents of a region in an epoch
        digest: XXH3-64 over the digests of its blocks
        changed: number of blocks that the epoch lists
    """
    # Of epochs first to last - 1 of each process.
    ends = [len(p.epochs) if last is None else last for p in processes]
    records = [p.digests(first, end) for p, end in zip(processes, ends, strict=True)]
    numbers = [p.epoch_of("digests", first, end) for p, end in zip(processes, ends, strict=True)]
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        "epoch": concat(numbers, "u4"),
        **plain(records, "region", "digest", "changed"),
    }
    return pd.DataFrame(columns)


def functions(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per kernel.

    Columns:
        function: id; the `id` of `launch` in `events`
        name: mangled name
        module: the module that it is in; missing if unknown
        registers, local: registers, and bytes of local memory, of a thread
        shared: bytes of static shared memory
        max_threads: the most threads of a block
        param_bytes, param_count: size and number of its parameters
        cluster_x, cluster_y, cluster_z: blocks of a cluster that its code demands, 0 if none
    """
    records = [p.functions for p in processes]
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        "function": joined(records, "id"),
        "name": texts_of(processes, [r["name"] for r in records], string_of),
        "module": nullable(joined(records, "module"), layout.NO_ID),
        **plain(records, "registers", "shared", "local", "max_threads"),
        **plain(records, "param_bytes", "param_count"),
        **{
            f"cluster_{axis}": concat([r["cluster"][:, i] for r in records], "u2")
            for i, axis in enumerate("xyz")
        },
    }
    return pd.DataFrame(columns)


def checksums(processes: Sequence[Process]) -> Any:
    """Returns the checksum of each kernel of functions(): 16 hexadecimal digits, missing if its
    code is unknown.

    Reads the images of modules.
    """
    return texts_of(processes, [p.functions["id"] for p in processes], Checksums().get)


def sources(processes: Sequence[Process]) -> Any:
    """Returns where each kernel of functions() begins in its source, as FILE:LINE, missing if its
    code does not say.

    Reads the images of modules.
    """
    return texts_of(processes, [p.functions["id"] for p in processes], Sources().get)


def stacks(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per frame of a call stack.

    Functions that the compiler inlined have rows of their own, and say so.

    Columns:
        stack: number, in order of first use: compare with `events["stack"]`
        depth: 0 is the frame that made the call, 1 its caller, …
        kind: `python` or `native`; a stack may have both
        function, file, line: the place; `line` is missing if unknown
    """
    numbers = [layout.distinct(p.frames["stack"]) for p in processes]
    rows = [
        (process.index, number, depth, kind, *frame)
        for process, some in zip(processes, numbers, strict=True)
        for number in some.tolist()
        for depth, (kind, frame) in enumerate(process.stack_frames(number))
    ]
    columns_of_rows = zip(*rows, strict=True) if rows else ((),) * 7
    whole, number, depth, kinds, function, file, line = columns_of_rows
    columns: dict[str, Any] = {
        "process": np.array(whole, "u4"),
        "stack": np.array(number, "u4"),
        "depth": np.array(depth, "u4"),
        "kind": named(np.array(kinds, "u4"), layout.FRAME_KINDS),
        "function": names_of(function),
        "file": names_of(file),
        "line": nullable(np.array(line, "i8"), 0),
    }
    return pd.DataFrame(columns)


def labels(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per name that the program gave to a part of a region, in order.

    `run.tensors(epoch)` has the same columns except the last two: the names in an epoch.
    `run.processes[0].labels.at(region, offset, epoch=3)` returns the name of one byte, and
    `.named("layers.3.weight", 3)` the place of a tensor.

    Columns:
        region, offset, bytes: the part
        tensor: its name; missing if names were removed
        type: type of its items, such as `f32`; missing if unknown
        start: position of the part in the tensor; not 0 if a tensor lies in several regions
        address: address of the part
        epoch: the first epoch with this name
        seq: when the name was given, in the order of calls
    """
    records = [p.labels.records for p in processes]
    return pd.DataFrame(_label_columns(processes, records) | plain(records, "epoch", "seq"))


def tensors(process: Process, *, epoch: int | None = None, seq: int | None = None) -> pd.DataFrame:
    """Returns the named parts of captured memory in an epoch or after a call, by region and offset.

    The columns are those of labels, without epoch and seq.
    """
    found = [np.empty(0, layout.LABEL)]
    for region, parts in process.labels.all_parts(epoch=epoch, seq=seq):
        some = np.zeros(len(parts), layout.LABEL)
        some["region"], some["size"] = region, parts["bytes"]
        for name in ("offset", "start", "label", "type"):
            some[name] = parts[name]
        found.append(some)
    return pd.DataFrame(_label_columns([process], [np.concatenate(found)]))


def _label_columns(processes: Sequence[Process], records: Sequence[Array]) -> dict[str, Any]:
    bases = [
        p.regions.birth["base"][p.regions.rows(r["region"])]
        for p, r in zip(processes, records, strict=True)
    ]
    return {
        "process": process_column(processes, records),
        **plain(records, "region", "offset"),
        "bytes": joined(records, "size"),
        "tensor": texts_of(processes, [r["label"] for r in records], string_of),
        "type": texts_of(processes, [r["type"] for r in records], string_of),
        **plain(records, "start"),
        "address": concat(bases, "u8") + joined(records, "offset"),
    }


def modules(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per loaded image.

    Columns:
        module: id, in order of loading
        kind: what the image is, see docs/format.md#modulesbin
        image: XXH3-64 of the image; 0 if it was not saved
        size: bytes of the image
        seq: the call that loaded it
        path: the file that it came from
        context: where it was loaded
        globals: number of its variables that became regions
        missing: why the image was not saved, or `nothing`
    """
    records = [p.modules for p in processes]
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        "module": joined(records, "id"),
        "kind": named(joined(records, "kind"), layout.MODULE_KINDS),
        **plain(records, "image", "size", "seq"),
        "path": texts_of(processes, [r["path"] for r in records], string_of),
        **plain(records, "context", "globals"),
        "missing": named(joined(records, "missing"), layout.MISSING),
    }
    return pd.DataFrame(columns)
