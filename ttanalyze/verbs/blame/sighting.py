"""The results of `watch`: where a condition first holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ttanalyze.core.tensors import TensorByte
from ttanalyze.core.values import Type
from ttanalyze.format.process import Process
from ttanalyze.verbs.blame.changes import described
from ttanalyze.verbs.blame.suspects import Suspects


@dataclass
class Hit:
    """A region with items that fulfil the condition.

    Attributes:
        region: The id of the region.
        label: The label of the region.
        items: The number of these items, None if unknown.
        first: The indices of the first of them, counted from the beginning of the target.
        data: The bytes of these.
        suspects: The calls that may have written.
        tensor: The position of the first one in its tensor, None if it has no name.
    """

    region: int
    label: str | None
    items: int | None
    first: list[int]
    data: bytes
    suspects: Suspects = field(default_factory=lambda: Suspects([], 0, 0))
    tensor: TensorByte | None = None


@dataclass(frozen=True)
class Sighting:
    """The first epoch in which a condition holds.

    Attributes:
        epoch: The epoch.
        since: The epoch before, in which it did not hold, None if there is none.
        hits: The first regions with items that fulfil the condition.
        hit_count: The number of these regions.
        unseen: The number of changed blocks whose contents are gone.
    """

    epoch: int
    since: int | None
    hits: list[Hit]
    hit_count: int
    unseen: int

    def as_dict(self, process: Process, kind: Type) -> dict[str, Any]:
        """Returns an object for JSON.

        Args:
            process: The process.
            kind: The type of the values.
        """
        out = asdict(self) | described(process, process.epochs[self.epoch])
        for hit, found in zip(out["hits"], self.hits, strict=True):
            hit["values"] = kind.listed(hit.pop("data"))
            hit.pop("tensor")
            hit |= {"tensor": None} if found.tensor is None else found.tensor.as_dict()
        return out


class Watched(NamedTuple):
    """The result of `watch`.

    Attributes:
        sighting: Where the condition first holds, None if it never does.
        unseen: The number of blocks whose contents are gone.
        unlike: The ids of regions that were skipped because their memory does not look like the
            type.
        early: The ids of regions that were skipped because the items fulfilled the condition from
            the beginning.
    """

    sighting: Sighting | None
    unseen: int
    unlike: list[int]
    early: list[int]
