"""The report of `replicas`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import orjson

from ttanalyze.verbs.diff.report import Divergence


@dataclass
class Replica:
    """Memory that was equal on all ranks, and then was not.

    Attributes:
        epoch: The first epoch that differs, by the first rank's count.
        step: The NVTX range around this epoch, such as "train/step 7". None if there is none.
        groups: The ranks that hold the same, the largest group first.
        odd: The ranks that differ from most others. Empty if no group has most ranks.
        names: The names of tensors in this memory.
        blocks: The blocks of the region that differ, each of 64 KiB.
        contents: How many different contents this memory had on all ranks alike before.
        ranks: The two ranks that `divergence` compares, A and B.
        divergence: The details, as of `diff`: region, bytes, values, tensor and possible writers.
    """

    epoch: int
    step: str | None
    groups: list[list[int]]
    odd: list[int]
    names: list[str]
    blocks: list[int]
    contents: int
    ranks: tuple[int, int]
    divergence: Divergence


@dataclass
class ReplicasReport:
    """The result of `replicas`.

    Attributes:
        run: The run.
        same: Whether no memory that was equal on all ranks differed later.
        ranks: The ranks that were compared; process numbers if no launcher gave ranks.
        ranked: Whether these are ranks.
        missing: The ranks of the job that were not recorded.
        epochs: The number of epochs that all ranks have in common.
        bytes: The size of memory that all ranks have, in bytes.
        equal_bytes: The size of memory that was equal on all ranks in at least one common epoch
            with contents other than a constant, in bytes.
        found: The memory that differs, in the first epoch where any does; in all with `every`.
        count: How many places differ, over all epochs.
        notes: Further remarks, one line each.
        seconds: The duration in seconds.
    """

    run: str
    same: bool = True
    ranks: list[int] = field(default_factory=list)
    ranked: bool = True
    missing: list[int] = field(default_factory=list)
    epochs: int = 0
    bytes: int = 0
    equal_bytes: int = 0
    found: list[Replica] = field(default_factory=list)
    count: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> str:
        """Returns the attributes as a JSON object in one line."""
        return orjson.dumps(asdict(self)).decode()
