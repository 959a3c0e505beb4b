"""The table `collectives`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.format.collectives import (
    OPERATIONS,
    REDUCTIONS,
    TYPE,
    WITH_PEER,
    WITH_REDUCTION,
    WITH_ROOT,
    plain_name,
)
from ttanalyze.format.columns import (
    concat,
    joined,
    masked,
    named,
    names_of,
    nullable,
    plain,
    process_column,
    texts_of,
)
from ttanalyze.format.layout import NO_ID, Array
from ttanalyze.format.process import Process


def collectives(processes: Sequence[Process]) -> pd.DataFrame:
    """One row per call of NCCL that communicates, or kernel of NCCL without one, in order of calls.

    Columns:
        number: position among the collectives of its communicator, from 0: the same on all ranks;
            of sends and receives, among those with its peer
        operation: such as `AllReduce`
        communicator: its id, the same on all ranks; missing if NCCL does not say it
        bytes: size of the message; missing if NCCL does not say it
        reduction: `sum` `prod` `max` `min` `avg`, or `other`; missing if there is none
        root, peer: a rank of the communicator; missing if there is none
        type: type of the items, of the kernel's name, such as `f32`; missing if unknown
        kernel: mangled name of the kernel; missing if the call has not launched one
        context, stream, thread: of the launch; without one, of the call
        seq, end_seq: the call begins and ends; missing without NVTX, and if it did not end
        launch: the launch of the kernel, which may do the work of several calls
        time_ns: when the call began
        gpu_begin, gpu_end, gpu_time: times of the kernel, with `--timeline cupti`
    """
    records = [p.collectives for p in processes]
    both = list(zip(processes, records, strict=True))
    spans = [p.activities.spans(r["launch"]) for p, r in both]
    begins, ends = (concat([span[i] for span in spans], "i8") for i in (0, 1))
    timed = concat(
        [span[2] & (r["launch"] != 0) for span, (_, r) in zip(spans, both, strict=True)], bool
    )
    kinds, values = joined(records, "operation"), joined(records, "value").astype("i8")
    columns: dict[str, Any] = {
        "process": process_column(processes, records),
        **plain(records, "number"),
        "operation": named(kinds, list(OPERATIONS)),
        "communicator": texts_of(processes, [r["communicator"] for r in records], _communicator),
        "bytes": masked(joined(records, "bytes"), joined(records, "bytes") == 0),
        "reduction": _reductions(kinds, values),
        "root": masked(values, ~_are(kinds, WITH_ROOT) | (values < 0)),
        "peer": masked(values, ~_are(kinds, WITH_PEER) | (values < 0)),
        "type": texts_of(processes, [r["function"] for r in records], _type),
        "kernel": texts_of(processes, [r["function"] for r in records], Process.kernel),
        "context": nullable(joined(records, "context"), NO_ID),
        "stream": nullable(joined(records, "stream"), 0),
        **plain(records, "thread"),
        "seq": nullable(joined(records, "seq"), 0),
        "end_seq": nullable(joined(records, "end_seq"), 0),
        "launch": nullable(joined(records, "launch"), 0),
        **plain(records, "time_ns"),
        "gpu_begin": masked(begins, ~timed),
        "gpu_end": masked(ends, ~timed),
        "gpu_time": masked(ends - begins, ~timed),
    }
    return pd.DataFrame(columns)


def _are(kinds: Array, names: Sequence[str]) -> Array:
    return np.isin(kinds, [OPERATIONS.index(name) for name in names])


def _reductions(kinds: Array, values: Array) -> Any:
    used = _are(kinds, WITH_REDUCTION) & (values >= 0)
    names = [*REDUCTIONS, "other"]
    texts = [
        names[min(v, 5)] if u else None for v, u in zip(values.tolist(), used.tolist(), strict=True)
    ]
    made = pd.Categorical(texts, categories=[n for n in names if n in texts])
    return made if len(texts) else names_of([])


def _communicator(process: Process, number: int) -> str | None:
    return f"{number:#x}" if number else None


def _type(process: Process, function: int) -> str | None:
    """Returns the type in the name of a kernel such as ncclDevKernel_AllReduce_Sum_f32_RING_LL."""
    found = TYPE.search(plain_name(process.kernel(function)))
    return found[1] if found else None
