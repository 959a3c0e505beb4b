"""The changes of memory over the epochs, with the possible writers of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ttanalyze.core.values import Type
from ttanalyze.format import layout
from ttanalyze.format.history import MOST_BYTES, Version, blocks_history, byte_history, changes
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.blame.suspects import Suspects, calls_recorded, suspects
from ttanalyze.verbs.blame.target import Target, find_target

SHOWN = 50


@dataclass(frozen=True)
class Change:
    """A change of a region, or of a part of it.

    Attributes:
        epoch: The first epoch with the new contents.
        last: The last epoch without contents since, equal to `epoch` if the contents are known.
        since: The last epoch before the change, None for the first contents of the region.
        before: The bytes before, None if unknown. Only for a part.
        after: The bytes afterwards, None if the contents of epochs `epoch` to `last` are gone. Only
            for a part.
        blocks: The number of changed blocks. Only for a whole region or a large tensor.
        suspects: The calls that may have written.
    """

    epoch: int
    last: int
    since: int | None
    before: bytes | None
    after: bytes | None
    blocks: int | None
    suspects: Suspects


@dataclass(frozen=True)
class Blame:
    """The changes of a target.

    Attributes:
        target: The target.
        first, last: The first and the last epoch that were searched.
        changes: The latest changes, with suspects.
        count: The number of all changes.
        events: Whether the run has calls.
    """

    target: Target
    first: int
    last: int
    changes: list[Change]
    count: int
    events: bool

    @property
    def unread(self) -> int:
        """The number of these epochs that did not read the region. A change shows in the next one
        that did.
        """
        return self.target.process.unread.count(self.first, self.last, self.target.region)

    def as_dict(self) -> dict[str, Any]:
        """Returns an object for JSON. Values are lists of items of the type, or hexadecimal
        bytes.
        """
        epochs = self.target.process.epochs
        return {
            **self.target.as_dict(),
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "unread": self.unread,
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


class _Entry(NamedTuple):
    """A change before suspects are found.

    begun: the first epoch in which it may have happened, None for the first contents of the region.
    """

    epoch: int
    last: int
    begun: int | None
    before: bytes | None
    after: bytes | None
    blocks: int | None


def blame(
    what: Run | Process | Target,
    epochs: tuple[int, int] | None = None,
    most: int = SHOWN,
    progress: Progress = None,
    *,
    region: int | str | None = None,
    offset: int | None = None,
    address: int | None = None,
    element: int | None = None,
    count: int | None = None,
    type: Type | str | None = None,  # noqa: A002
) -> Blame:
    """Finds the changes of a region, a tensor or some of its items.

    For a whole region, or a tensor of more than 1 MiB, only digests are read, not contents.

    Args:
        what: A run (its first process), a process, or a target from `find_target`.
        epochs: The first and the last epoch. Default: all.
        most: The maximal number of listed changes, 0 for all. The latest are listed.
        progress: Called with the finished and the total number of contents, then of changes.
        region, offset, address, element, count, type: As in `find_target`, for a run or a process.

    Raises:
        Error: There is no such memory, or the part is too large.
        FormatError: A file does not follow the format.

    Example:
        >>> found = tt.blame(tt.open("run1"), region="weights", element=3, type="f32")
        >>> found.changes[-1].epoch, found.as_dict()["changes"][-1]["after"]
        (1, [1.5])
    """
    if isinstance(what, Target):
        target = what
    else:
        of = what.process(0) if isinstance(what, Run) else what
        place = {"address": address, "element": element, "count": count}
        found_in = None if epochs is None else min(epochs[1], len(of.epochs) - 1)
        target = find_target(of, region, offset, **place, type=type, epoch=found_in)
    process = target.process
    end = len(process.epochs) - 1
    first, last = (0, end) if epochs is None else (epochs[0], min(epochs[1], end))
    if not target.part:
        entries = _of_region(target, last)
    elif target.tensor is not None and target.stop - target.start > MOST_BYTES:
        entries = _of_tensor(target, last)
    else:
        entries = _of_part(target, last, progress)
    entries = [entry for entry in entries if entry.last >= first]
    shown = []
    for entry in entries[-most:] if most else entries:
        shown.append(_change(target, entry))
        tell(progress, len(shown), min(most or len(entries), len(entries)))
    return Blame(target, first, last, shown, len(entries), calls_recorded(process))


def _of_region(target: Target, last: int) -> list[_Entry]:
    rows = changes(target.process, target.region, last)
    pairs = zip(rows["epoch"].tolist(), rows["changed"].tolist(), strict=True)
    return [
        _Entry(epoch, epoch, epoch if i else None, None, None, blocks)
        for i, (epoch, blocks) in enumerate(pairs)
    ]


def _of_tensor(target: Target, last: int) -> list[_Entry]:
    """Returns the changes of a tensor by block. Of its first and last block only its own bytes
    count.
    """
    process, region, start, stop = target.process, target.region, target.start, target.stop
    first, end = -(-start // BLOCK_SIZE), stop // BLOCK_SIZE
    inner = blocks_history(process, region, first, end, last)
    blocks = Counter(inner["epoch"].tolist())
    for begin, until in ((start, first * BLOCK_SIZE), (end * BLOCK_SIZE, stop)):
        if begin < until:
            blocks.update(v.first for v in byte_history(process, region, begin, until, last))
    numbers = sorted(blocks.items())
    return [
        _Entry(epoch, epoch, epoch if i else None, None, None, count)
        for i, (epoch, count) in enumerate(numbers)
    ]


def _of_part(target: Target, last: int, progress: Progress) -> list[_Entry]:
    place = target.region, target.start, target.stop
    out: list[_Entry] = []
    known: Version | None = None  # the last contents that are
    begun: int | None = None
    for version in byte_history(target.process, *place, last, progress):
        # What is found behind epochs whose contents are gone may have happened in any of them.
        begun = begun if begun is not None or known is None else version.first
        before = None if known is None else known.data
        out.append(_Entry(version.first, version.last, begun, before, version.data, None))
        if version.data is not None:
            known, begun = version, None
    return out


def _change(target: Target, entry: _Entry) -> Change:
    since = None
    if entry.begun is not None:
        since = target.process.coverage.before(entry.begun, target.region)
    part = target.start, target.stop
    found = suspects(target.process, target.region, part, since, entry.last)
    return Change(entry.epoch, entry.last, since, entry.before, entry.after, entry.blocks, found)


def described(process: Process, epoch: Any) -> dict[str, Any]:
    """Returns trigger, epoch_label and flags of a tt_epoch."""
    flags = int(epoch["flags"])
    return {
        "trigger": layout.TRIGGERS[int(epoch["trigger"])],
        "epoch_label": process.strings.get(int(epoch["label"])),
        "flags": [name for name, bit in layout.EPOCH_FLAGS.items() if flags & bit],
    }
