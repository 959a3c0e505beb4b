"""Tables of a run as DataFrames. Every one has a `process` column: N of RUN/pN.

Times are nanoseconds of CLOCK_MONOTONIC, sizes are bytes, addresses are the driver's. A text
that was not recorded is missing; numbers that may be missing are of the nullable Int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.model import layout
from ttanalyze.model.layout import Array
from ttanalyze.model.process import Process


def epochs(processes: Sequence[Process]) -> pd.DataFrame:
    """epoch, trigger, label (kernel or tt_epoch label), full, touched, loose, refused, dropped,
    gap, context, device, seq, time_ns, done_ns, regions (captured, live), changed_regions,
    changed_blocks, bytes_read, bytes_changed, bytes_stored, segment.

    changed_regions, changed_blocks: how many the epoch lists; all of them in a full epoch.
    """
    records = [p.epochs for p in processes]
    removed = [p.epochs["segment"] < p.oldest_segment for p in processes]
    flags = _joined(records, "flags")
    kept = flags & layout.REFUSED == 0
    flags = np.where(_concat(removed, bool) & kept, flags | layout.DROPPED, flags)
    columns: dict[str, Any] = {
        "process": _process_column(processes, records),
        "epoch": _joined(records, "number"),
        "trigger": _named(_joined(records, "trigger"), layout.TRIGGERS),
        "label": _texts(processes, [r["label"] for r in records], _string),
        **{name: flags & bit != 0 for name, bit in layout.EPOCH_FLAGS.items()},
        **_plain(records, "context", "device", "seq", "time_ns", "done_ns", "regions"),
        "changed_regions": _joined(records, "digests_count"),
        "changed_blocks": _joined(records, "blocks_count"),
        **_plain(records, "bytes_read", "bytes_changed", "bytes_stored", "segment"),
    }
    return _frame(columns)


def regions(processes: Sequence[Process]) -> pd.DataFrame:
    """region, kind, label, size, base, captured, unstable, device, context, stream, module,
    call (that made it), seq, time_ns, born, died (epochs [born, died); missing while it lives),
    death_call, death_seq (missing while it lives).
    """
    tables = [p.regions for p in processes]
    records = [t.birth for t in tables]
    flags = _joined(records, "flags")
    died = _concat([t.died for t in tables], "u4")
    alive = died == layout.NO_EPOCH
    columns: dict[str, Any] = {
        "process": _process_column(processes, records),
        "region": _joined(records, "id"),
        "kind": _named(_joined(records, "kind"), layout.REGION_KINDS),
        "label": _texts(processes, [t.label for t in tables], _string),
        **_plain(records, "size", "base"),
        "captured": flags & layout.CAPTURED != 0,
        "unstable": flags & layout.UNSTABLE != 0,
        **_plain(records, "device", "context", "stream"),
        "module": _nullable(_joined(records, "module"), layout.NO_ID),
        "call": _texts(processes, [r["call"] for r in records], Process.call),
        **_plain(records, "seq", "time_ns"),
        "born": _joined(records, "epoch"),
        "died": _nullable(died, layout.NO_EPOCH),
        "death_call": _texts(processes, [t.death_call for t in tables], Process.call),
        "death_seq": _masked(_concat([t.death_seq for t in tables], "u8"), alive),
    }
    return _frame(columns)


def events(processes: Sequence[Process]) -> pd.DataFrame:
    """seq, time_ns, kind, call, kernel (of a launch), thread, result (CUresult), context, stream,
    dst, src, bytes, id (function, region, module or epoch, by kind; may be missing), flags, shared,
    grid_x, grid_y, grid_z, block_x, block_y, block_z, cluster_x, cluster_y, cluster_z.
    """
    records = [p.events for p in processes]
    launch = layout.EVENT_KINDS.index("launch")
    kernels = [np.where(r["kind"] == launch, r["id"], layout.NO_ID) for r in records]
    columns: dict[str, Any] = {
        "process": _process_column(processes, records),
        **_plain(records, "seq", "time_ns"),
        "kind": _named(_joined(records, "kind"), layout.EVENT_KINDS),
        "call": _texts(processes, [r["call"] for r in records], Process.call),
        "kernel": _texts(processes, kernels, _kernel),
        **_plain(records, "thread", "result", "context", "stream", "dst", "src", "bytes"),
        "id": _nullable(_joined(records, "id"), layout.NO_ID),
        **_plain(records, "flags", "shared"),
    }
    for field in ("grid", "block", "cluster"):
        sizes = np.concatenate([np.empty((0, 3), "u4"), *(r[field] for r in records)])
        for i, axis in enumerate("xyz"):
            columns[f"{field}_{axis}"] = sizes[:, i]
    return _frame(columns)


def digests(processes: Sequence[Process]) -> pd.DataFrame:
    """epoch, region, digest (XXH3-64 over the block digests), changed (blocks in this epoch)."""
    records = [p.digests(0, len(p.epochs)) for p in processes]
    numbers = [p.epoch_of("digests", 0, len(p.epochs)) for p in processes]
    columns: dict[str, Any] = {
        "process": _process_column(processes, records),
        "epoch": _concat(numbers, "u4"),
        **_plain(records, "region", "digest", "changed"),
    }
    return _frame(columns)


def functions(processes: Sequence[Process]) -> pd.DataFrame:
    """function, name (mangled), module, registers, shared (static), local (per thread),
    max_threads, param_bytes, param_count.
    """
    records = [p.functions for p in processes]
    columns: dict[str, Any] = {
        "process": _process_column(processes, records),
        "function": _joined(records, "id"),
        "name": _texts(processes, [r["name"] for r in records], _string),
        "module": _nullable(_joined(records, "module"), layout.NO_ID),
        **_plain(records, "registers", "shared", "local", "max_threads"),
        **_plain(records, "param_bytes", "param_count"),
    }
    return _frame(columns)


def modules(processes: Sequence[Process]) -> pd.DataFrame:
    """module, kind, image (its XXH3-64, 0 where it was not saved), size, seq, path (file it came
    from), context, globals (variables of it that became regions).
    """
    records = [p.modules for p in processes]
    columns: dict[str, Any] = {
        "process": _process_column(processes, records),
        "module": _joined(records, "id"),
        "kind": _named(_joined(records, "kind"), layout.MODULE_KINDS),
        **_plain(records, "image", "size", "seq"),
        "path": _texts(processes, [r["path"] for r in records], _string),
        **_plain(records, "context", "globals"),
    }
    return _frame(columns)


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(columns)
    return frame


def _categories(codes: Array, names: list[str]) -> Any:
    return pd.Categorical.from_codes(codes, categories=pd.Index(names, dtype="object"))


def _concat(parts: Sequence[Array], dtype: Any) -> Array:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)


def _joined(records: Sequence[Array], field: str) -> Array:
    return np.concatenate([r[field] for r in records]) if records else np.empty(0, "u4")


def _plain(records: Sequence[Array], *fields: str) -> dict[str, Array]:
    return {field: _joined(records, field) for field in fields}


def _process_column(processes: Sequence[Process], records: Sequence[Array]) -> Array:
    counts = [len(r) for r in records]
    return np.repeat(np.array([p.index for p in processes], "u4"), counts)


def _nullable(values: Array, missing: int) -> Any:
    return _masked(values, values == missing)


def _masked(values: Array, mask: Array) -> Any:
    return pd.arrays.IntegerArray(values.astype("i8"), mask)


def _named(values: Array, names: list[str]) -> Any:
    """A categorical of an enumeration whose values were checked."""
    used = [i for i, name in enumerate(names) if name]
    codes = np.zeros(len(names), "i1")
    codes[used] = np.arange(len(used))
    return _categories(codes[values], [names[i] for i in used])


def _texts(
    processes: Sequence[Process],
    parts: Sequence[Array],
    text_of: Callable[[Process, int], str | None],
) -> Any:
    """A categorical of texts that records of each process give by number."""
    categories: dict[str, int] = {}
    codes = [np.empty(0, "i4")]
    for process, values in zip(processes, parts, strict=True):
        different, which = np.unique(values, return_inverse=True)
        own = np.empty(len(different), "i4")
        for i, value in enumerate(different.tolist()):
            text = text_of(process, value)
            own[i] = -1 if text is None else categories.setdefault(text, len(categories))
        codes.append(own[which])
    return _categories(np.concatenate(codes), list(categories))


def _string(process: Process, offset: int) -> str | None:
    return process.strings.get(offset)


def _kernel(process: Process, function: int) -> str | None:
    """The name of a kernel; a launch may be recorded just before its function is."""
    if function == layout.NO_ID:
        return None
    at = int(np.searchsorted(process.functions["id"], function))
    if at == len(process.functions) or process.functions["id"][at] != function:
        return f"function {function}"
    return process.strings.get(int(process.functions["name"][at]))
