"""Manifests: the digests of a run's memory, without times, addresses or paths.

`of_process` and `text` return byte for byte what the recorder writes when a process ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

HEAD = {
    "format": "ttanalyze-manifest",
    "version": layout.VERSION,
    "block_size": layout.BLOCK_SIZE,
    "digest": "xxh3-64",
}


def of_process(process: Process, advance: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Returns the part of a manifest that describes one process, from the recorded digests.

    Args:
        process: The process.
        advance: Called with the number of epochs since the last call.
    """
    rank = {} if process.rank is None else {"rank": process.rank.rank}
    return {
        "process": process.index,
        **rank,
        "regions": _listed(regions(process)),
        "epochs": _epochs(process, advance),
    }


class Regions(NamedTuple):
    """The regions in a manifest, by id. died is NO_EPOCH for a live region."""

    id: Array
    kind: Array  # these two are of strings, or None
    label: Array
    size: Array
    born: Array
    died: Array

    def rows(self, ids: Array) -> Regions:
        """Returns the regions with these ids."""
        which = np.searchsorted(self.id, ids)
        return Regions(*(column[which] for column in self))


def regions(process: Process) -> Regions:
    """Returns the captured regions."""
    table = process.regions
    rows = np.flatnonzero(table.flags & layout.CAPTURED)
    labels, which = np.unique(table.label[rows], return_inverse=True)
    texts = np.array([process.strings.get(label) for label in labels.tolist()], object)
    kinds = np.array(layout.REGION_KINDS, object)
    return Regions(
        table.id[rows],
        kinds[table.birth["kind"][rows]],
        texts[which],
        table.size[rows],
        table.born[rows],
        table.died[rows],
    )


def _listed(table: Regions) -> list[dict[str, Any]]:
    died = [None if epoch == layout.NO_EPOCH else epoch for epoch in table.died.tolist()]
    members = ("id", "kind", "size", "label", "born")
    columns = [getattr(table, name).tolist() for name in members]
    return [
        dict(zip((*members, "died"), values, strict=True))
        for values in zip(*columns, died, strict=True)
    ]


def _epochs(process: Process, advance: Callable[[int], None] | None) -> list[dict[str, Any]]:
    out = []
    removed = process.removed
    piece = 4096  # epochs whose digests are looked at together
    for at in range(0, len(process.epochs), piece):
        end = min(at + piece, len(process.epochs))
        digests = process.digests(at, end)
        order = np.lexsort((digests["region"], process.epoch_of("digests", at, end)))
        ids = digests["region"][order].tolist()
        values = _hex(digests["digest"][order])
        last = 0
        for number, epoch in enumerate(process.epochs[at:end], at):
            first, last = last, last + int(epoch["digests_count"])
            flags = epoch_flags(int(epoch["flags"]), bool(removed[number]))
            flags += ["skipped"] * int(epoch["skipped"])
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


def _hex(digests: Array) -> list[str]:
    text = digests.astype(">u8").tobytes().hex()
    return [text[i : i + 16] for i in range(0, len(text), 16)]


def epoch_flags(flags: int, removed: bool) -> list[str]:
    """Returns the names of an epoch's flags. removed: its data file is gone."""
    if removed and not flags & layout.REFUSED:
        flags |= layout.DROPPED
    return [name for name, bit in layout.EPOCH_FLAGS.items() if flags & bit]


def text(manifest: dict[str, Any]) -> str:
    """Returns a manifest as the recorder writes it: one line per region and epoch."""
    head = {key: value for key, value in manifest.items() if key != "processes"}
    processes = ",".join(_process_text(process) for process in manifest["processes"])
    return f'{_json(head)[:-1]},"processes":[{processes}]}}'


def _process_text(process: dict[str, Any]) -> str:
    regions = ",".join("\n" + _json(region) for region in process["regions"])
    epochs = ",".join("\n" + _json(epoch) for epoch in process["epochs"])
    head = {key: process[key] for key in ("process", "rank") if key in process}
    return f'{_json(head)[:-1]},"regions":[{regions}],"epochs":[{epochs}]}}'


def _json(value: Any) -> str:
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return dumped.replace("\x7f", "\\u007f")
