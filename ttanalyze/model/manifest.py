"""Manifests: what a run's memory was, without times, addresses or paths.

`of_process` and `text` give what the recorder itself writes when a process ends, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ttanalyze.model import layout
from ttanalyze.model.process import Process

HEAD = {
    "format": "ttanalyze-manifest",
    "version": layout.VERSION,
    "block_size": layout.BLOCK_SIZE,
    "digest": "xxh3-64",
}


def of_process(process: Process, advance: Callable[[int], None] | None = None) -> dict[str, Any]:
    """One process's part of a manifest, from the recorded digests.

    advance: called with a number of epochs whenever so many are done.
    """
    return {
        "process": process.index,
        "regions": regions(process),
        "epochs": _epochs(process, advance),
    }


def regions(process: Process) -> list[dict[str, Any]]:
    """The captured regions, by id, as a manifest lists them."""
    table = process.regions
    out = []
    for row in np.flatnonzero(table.flags & layout.CAPTURED).tolist():
        died = int(table.died[row])
        out.append(
            {
                "id": int(table.id[row]),
                "kind": layout.REGION_KINDS[int(table.birth["kind"][row])],
                "size": int(table.size[row]),
                "label": process.strings.get(int(table.label[row])),
                "born": int(table.born[row]),
                "died": None if died == layout.NO_EPOCH else died,
            }
        )
    return out


def _epochs(process: Process, advance: Callable[[int], None] | None) -> list[dict[str, Any]]:
    out = []
    oldest = process.oldest_segment
    piece = 4096  # epochs whose digests are looked at together
    for at in range(0, len(process.epochs), piece):
        end = min(at + piece, len(process.epochs))
        digests = process.digests(at, end)
        order = np.lexsort((digests["region"], process.epoch_of("digests", at, end)))
        ids = digests["region"][order].tolist()
        values = _hex(digests["digest"][order])
        last = 0
        for epoch in process.epochs[at:end]:
            first, last = last, last + int(epoch["digests_count"])
            flags = epoch_flags(int(epoch["flags"]), int(epoch["segment"]) < oldest)
            pairs = zip(map(str, ids[first:last]), values[first:last], strict=True)
            out.append(
                {
                    "epoch": int(epoch["number"]),
                    "trigger": layout.TRIGGERS[int(epoch["trigger"])],
                    "label": process.strings.get(int(epoch["label"])),
                    "flags": flags,
                    "digests": dict(pairs),
                }
            )
        if advance:
            advance(end - at)
    return out


def _hex(digests: layout.Array) -> list[str]:
    text = digests.astype(">u8").tobytes().hex()
    return [text[i : i + 16] for i in range(0, len(text), 16)]


def epoch_flags(flags: int, removed: bool) -> list[str]:
    """Names of an epoch's flags; removed: its data file is gone."""
    if removed and not flags & layout.REFUSED:
        flags |= layout.DROPPED
    return [name for name, bit in layout.EPOCH_FLAGS.items() if flags & bit]


def text(manifest: dict[str, Any]) -> str:
    """A manifest as the recorder writes it: one line per region and epoch."""
    head = {key: value for key, value in manifest.items() if key != "processes"}
    processes = ",".join(_process_text(process) for process in manifest["processes"])
    return f'{_json(head)[:-1]},"processes":[{processes}]}}'


def _process_text(process: dict[str, Any]) -> str:
    regions = ",".join("\n" + _json(region) for region in process["regions"])
    epochs = ",".join("\n" + _json(epoch) for epoch in process["epochs"])
    return f'{{"process":{process["process"]},"regions":[{regions}],"epochs":[{epochs}]}}'


def _json(value: Any) -> str:
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return dumped.replace("\x7f", "\\u007f")
