"""A run of many ranks, written from Python: digests of tensors after every step, no contents.

It is as `record --contents none` leaves it of data-parallel training, without calls. Each tensor
is a region of one block, and has a name. All change in every step.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from bench import generated
from ttanalyze.format import layout
from ttanalyze.format.digest import digests_of_spans
from ttanalyze.format.files import KINDS
from ttanalyze.format.layout import BLOCK_SIZE, HEADER_SIZE, NO_ID, Array
from ttanalyze.util.parallel import each
from ttanalyze.verbs.record.totals import keep_summaries

PIECE = 500  # steps that are written together
FACTOR = np.uint64(0x9E3779B97F4A7C15)
INSTEAD = ("digests.bin", "blocks.bin")  # the checks of epochs.bin are theirs


@dataclass(frozen=True)
class Job:
    """What is written.

    own: how many of the tensors hold something else on each rank. fault: rank, step and tensor from
    which on a tensor that all share holds something else. kinds: how many ranks have files of their
    own, besides the one with the fault; the files of the others are links to theirs. Default: all.
    """

    ranks: int
    steps: int
    tensors: int
    own: int = 0
    fault: tuple[int, int, int] | None = None
    kinds: int | None = None

    def links_to(self, rank: int) -> int | None:
        """Returns the rank whose files are also those of this rank."""
        if self.kinds is None or rank < self.kinds or (self.fault and self.fault[0] == rank):
            return None
        return rank % self.kinds


def write(run: Path, job: Job) -> None:
    """Writes the run of a job."""
    run.mkdir(parents=True)
    ranks = range(job.ranks)
    files = each(lambda rank: _files(run, job, rank), [r for r in ranks if job.links_to(r) is None])
    infos = each(lambda rank: _rank(run, job, rank, dict(files)), ranks)
    keep_summaries([(run / f"p{rank}", infos[rank]) for rank in ranks])
    head = {"format": "ttanalyze-run", "version": layout.VERSION, "created_ns": 0}
    text = json.dumps({**head, "processes": infos, "exit": {"status": 0, "signal": None}})
    (run / "run.json").write_text(text)


def _files(run: Path, job: Job, rank: int) -> tuple[int, dict[str, Any]]:
    """Writes the record files of a rank. Returns the rank, and what process.json says of them."""
    folder = run / f"p{rank}"
    folder.mkdir()
    for name, (kind, dtype) in KINDS.items():
        (folder / name).write_bytes(generated.header(kind, dtype))
    names = [f"layers.{i}.weight" for i in range(job.tensors)]
    texts = [generated.text(name.encode()) for name in names]
    _append(folder / "strings.bin", b"".join(texts))
    starts = HEADER_SIZE + np.cumsum([0, *(len(text) for text in texts)])[:-1]
    _append(folder / "regions.bin", generated.regions_of(job.tensors, BLOCK_SIZE).tobytes())
    labels = np.zeros(job.tensors, layout.LABEL)
    labels["region"], labels["size"] = np.arange(job.tensors), BLOCK_SIZE
    labels["label"], labels["type"] = starts, NO_ID
    _append(folder / "labels.bin", generated.sealed(labels).tobytes())
    epochs = generated.epochs_of(np.full(job.steps, job.tensors, "u8"), job.tensors, BLOCK_SIZE)
    epochs["segment"], epochs["bytes_stored"] = layout.NO_SEGMENT, 0
    for first in range(0, job.steps, PIECE):
        _steps(folder, job, rank, epochs[first : first + PIECE], first)
    _append(folder / "epochs.bin", generated.sealed(epochs).tobytes())
    return rank, {
        name: {"size": (folder / name).stat().st_size, "check": _check(folder / name)}
        for name in KINDS
    }


def _rank(run: Path, job: Job, rank: int, files: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Writes what is left of a rank. files: those of ranks that have files of their own."""
    folder, other = run / f"p{rank}", job.links_to(rank)
    if other is not None:
        folder.mkdir()
        for name in KINDS:
            os.link(run / f"p{other}" / name, folder / name)
    info = generated.process_info(job.steps) | {"process": rank, "pid": 1000 + rank}
    info["options"] = {"TT_CONTENTS": "none", "TT_EVENTS": "0"}
    node = {"node": f"node{rank // 8}", "job": "1", "launcher": "torchrun", "visible_devices": ""}
    info["rank"] = {"rank": rank, "local_rank": rank % 8, "world_size": job.ranks, **node}
    info["files"] = files[rank if other is None else other]
    (folder / "process.json").write_text(json.dumps(info))
    return info


def _steps(folder: Path, job: Job, rank: int, epochs: Array, first: int) -> None:
    """Writes the digests of some steps, and their checks to the epochs."""
    step, tensor = np.meshgrid(
        np.arange(first, first + len(epochs), dtype="u8"),
        np.arange(job.tensors, dtype="u8"),
        indexing="ij",
    )
    other = np.where(tensor < job.own, rank + 1, 0).astype("u8")
    if job.fault is not None and job.fault[0] == rank:
        other[(step >= job.fault[1]) & (tensor == job.fault[2])] = 1 + rank
    with np.errstate(over="ignore"):
        held = ((step * np.uint64(job.tensors) + tensor + np.uint64(1)) * FACTOR ^ other) * FACTOR
    held = held.reshape(-1)
    blocks = np.zeros(len(held), layout.BLOCK)
    blocks["region"], blocks["digest"] = tensor.reshape(-1), held
    blocks["offset"], blocks["length"] = HEADER_SIZE, BLOCK_SIZE
    blocks["segment"] = layout.NO_SEGMENT
    digests = np.zeros(len(held), layout.DIGEST)
    digests["region"], digests["changed"] = tensor.reshape(-1), 1
    ends = np.arange(1, len(held) + 1) * 8
    digests["digest"] = digests_of_spans(held, ends - 8, ends)
    for name, records in (("digests", digests), ("blocks", blocks)):
        ends = np.arange(1, len(epochs) + 1) * job.tensors * records.itemsize
        begins = ends - job.tensors * records.itemsize
        epochs[f"{name}_check"] = digests_of_spans(records.view("u1"), begins, ends)
        _append(folder / f"{name}.bin", records.tobytes())


def _append(path: Path, body: bytes) -> None:
    with path.open("ab") as file:
        file.write(body)


def _check(path: Path) -> str | None:
    return None if path.name in INSTEAD else f"{xxhash.xxh3_64_intdigest(path.read_bytes()):016x}"
