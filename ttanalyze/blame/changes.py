"""The history of memory: what it was, from when on, and which calls may have done it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ttanalyze.blame.suspects import Suspects, calls_recorded, epoch_before, suspects
from ttanalyze.blame.target import Target
from ttanalyze.model import layout
from ttanalyze.model.history import Version, byte_history, changes
from ttanalyze.model.process import Process

SHOWN = 50


@dataclass(frozen=True)
class Change:
    """A region or a part of it from an epoch on.

    after: the bytes of a part; None where the contents of epochs epoch to last are gone. before:
    its bytes before, None where these are not known or there are none. blocks: of a whole region,
    how many changed. since: the last epoch in which all was as before; None where these are the
    region's first contents.
    """

    epoch: int
    last: int
    since: int | None
    before: bytes | None
    after: bytes | None
    blocks: int | None = None
    suspects: Suspects = field(default_factory=lambda: Suspects([], 0, 0))


@dataclass(frozen=True)
class Blame:
    """The changes of a target in epochs first to last, the latest of `count`. events: whether calls
    were recorded.
    """

    target: Target
    first: int
    last: int
    changes: list[Change]
    count: int
    events: bool

    def as_dict(self) -> dict[str, Any]:
        """All of it, by name; values as lists of items of the type, or as hexadecimal bytes."""
        epochs = self.target.process.epochs
        return {
            **self.target.as_dict(),
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "events": self.events,
            "changes": [
                {
                    "epoch": change.epoch,
                    "last": change.last,
                    "since": change.since,
                    **described(self.target.process, epochs[change.epoch]),
                    "before": self._values(change.before),
                    "after": self._values(change.after),
                    "blocks": change.blocks,
                    "suspects": asdict(change.suspects),
                }
                for change in self.changes
            ],
        }

    def _values(self, data: bytes | None) -> Any:
        if data is None or self.target.type is None:
            return None if data is None else data.hex()
        return self.target.type.listed(data)


def blame(target: Target, epochs: tuple[int, int] | None = None, most: int = SHOWN) -> Blame:
    """The changes of a target in epochs (first and last), the latest `most` of them with suspects;
    0: all. Of a whole region only which epochs changed it is looked at, not its contents.

    Raises Error where the part is too large, FormatError where files are damaged.
    """
    process = target.process
    end = len(process.epochs) - 1
    first, last = (0, end) if epochs is None else (epochs[0], min(epochs[1], end))
    found = _of_region(target, last) if target.whole else _of_part(target, last)
    found = [change for change in found if change.last >= first]
    shown = [_with_suspects(target, change) for change in (found[-most:] if most else found)]
    return Blame(target, first, last, shown, len(found), calls_recorded(process))


def _of_region(target: Target, last: int) -> list[Change]:
    rows = changes(target.process, target.region, last)
    pairs = zip(rows["epoch"].tolist(), rows["changed"].tolist(), strict=True)
    return [
        Change(epoch, epoch, epoch_before(target.process, epoch) if i else None, None, None, blocks)
        for i, (epoch, blocks) in enumerate(pairs)
    ]


def _of_part(target: Target, last: int) -> list[Change]:
    versions = byte_history(target.process, target.region, target.start, target.stop, last)
    return [_change(target.process, versions, i) for i in range(len(versions))]


def _change(process: Process, versions: list[Version], i: int) -> Change:
    """What is found at the end of a stretch without contents may have happened all along it."""
    version = versions[i]
    begun, known = version.first, versions[i - 1] if i else None
    if known is not None and known.data is None:
        begun, known = known.first, versions[i - 2] if i > 1 else None
    since = epoch_before(process, begun) if known is not None else None
    return Change(version.first, version.last, since, known.data if known else None, version.data)


def _with_suspects(target: Target, change: Change) -> Change:
    part = target.start, target.stop
    found = suspects(target.process, target.region, part, change.since, change.last)
    return replace(change, suspects=found)


def described(process: Process, epoch: Any) -> dict[str, Any]:
    """trigger, epoch_label and flags of a tt_epoch."""
    flags = int(epoch["flags"])
    return {
        "trigger": layout.TRIGGERS[int(epoch["trigger"])],
        "epoch_label": process.strings.get(int(epoch["label"])),
        "flags": [name for name, bit in layout.EPOCH_FLAGS.items() if flags & bit],
    }
