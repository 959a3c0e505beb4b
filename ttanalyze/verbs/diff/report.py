"""What diff found, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from ttanalyze.core.bytewise import ByteDifference
from ttanalyze.core.tensors import TensorDifference
from ttanalyze.core.values import ValueDifference


@dataclass
class Suspect:
    """A call that may have written to the region that differs, on one side or, where calls
    correspond, on both.

    kind: as of an event. kernel: mangled. seq_a, seq_b: None where a side has no such call; alone:
    whether it is known that it has none. how: one of writers.HOW. parameters: whether those of
    the launch are the same, where both sides recorded them, pointers into corresponding regions
    counting as the same; else None. parameter_offset: of the first byte that differs. stack, range:
    of A's call, or of B's where A has none.
    """

    kind: str
    call: str | None
    kernel: str | None
    seq_a: int | None
    seq_b: int | None
    alone: bool
    stream: int
    grid: list[int] | None
    block: list[int] | None
    cluster: list[int] | None
    shared: int | None
    bytes: int | None
    how: str
    parameters: str | None = None  # "same" or "different"
    parameter_offset: int | None = None
    parameters_a: str | None = None  # hexadecimal
    parameters_b: str | None = None
    stack: list[tuple[str, str, int]] | None = None  # function, file, line; the innermost first
    range: str | None = None  # of NVTX, as train/step 3/forward


@dataclass
class Divergence:
    """A region that is not the same over a stretch of epochs. Members with _a and _b: of either
    side; None where not known.

    epoch: the first that differs. until: the last one compared that does, None where it differs
    up to the end. equal: the last one before in which it was compared and the same; None where
    it never was. after: the last launch before the epoch: kernel (mangled), ordinal (the how
    manieth of that kernel, from 1), seq. blocks: the first that differ; block_count of block_total
    do. bytes, values: where contents of both sides were looked at, a part of them if partial.
    examples: index and values, as text, of the first items that differ.
    tensor: what the first byte that differs is part of, tensor_type: what its items are, and where
    in it that byte lies, in bytes and in items; tensors: all that differ, the first of
    tensor_count; where the program named parts of its memory. tensor_values, tensor_examples: as
    values and examples, of that tensor as far as it lies in the region, where its type is known
    and no other was asked for.
    leftover: whether it was never the same, and no call is known that could have written to it:
    it holds what was there before it was allocated.
    """

    region_a: int
    region_b: int
    kind: str
    label: str | None
    size: int
    epoch_a: int
    epoch_b: int
    until_a: int | None
    until_b: int | None
    equal_a: int | None
    equal_b: int | None
    trigger: str
    epoch_label: str | None
    digest_a: str
    digest_b: str
    after: dict[str, Any] | None = None
    origin_a: dict[str, Any] | None = None  # as bytewise.origin gives it
    origin_b: dict[str, Any] | None = None
    blocks: list[int] = field(default_factory=list)
    block_count: int = 0
    block_total: int = 0
    bytes: ByteDifference | None = None
    values: ValueDifference | None = None
    examples: list[tuple[int, str, str]] = field(default_factory=list)
    tensor: str | None = None
    tensor_type: str | None = None
    tensor_offset: int | None = None
    tensor_element: int | None = None
    tensors: list[TensorDifference] = field(default_factory=list)
    tensor_count: int = 0
    tensor_values: ValueDifference | None = None
    tensor_examples: list[tuple[int, str, str]] = field(default_factory=list)
    partial: bool = False
    suspects: list[Suspect] = field(default_factory=list)  # the likeliest
    suspect_count: int = 0
    leftover: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class Stretch:
    """Launches that follow each other and differ. kind: "alone" (they have no counterpart) or
    "changed" (the same kernels in other shapes).

    Of either side: launches of the context before it (None where it is not known what that
    corresponds to), seq of its first, how many, and by kernel (mangled) the most frequent.
    """

    kind: str
    before_a: int | None
    before_b: int | None
    seq_a: int | None
    seq_b: int | None
    count_a: int
    count_b: int
    kernels_a: dict[str, int]
    kernels_b: dict[str, int]


@dataclass
class Launches:
    """How the launches of two processes correspond. a, b: how many there are; same: in all that
    identifies them; changed: of the same kernel with another grid, block, cluster or shared
    memory; the rest is alone. others_a, others_b: copies, fills and the like without a
    counterpart; others_changed: of another size. exact: whether no more could correspond.
    """

    a: int = 0
    b: int = 0
    same: int = 0
    changed: int = 0
    others_a: int = 0
    others_b: int = 0
    others: int = 0
    others_changed: int = 0
    exact: bool = True
    stretches: list[Stretch] = field(default_factory=list)  # the first
    stretch_count: int = 0

    @property
    def calls(self) -> bool:
        """Whether there are any."""
        return bool(self.a or self.b or self.others_a or self.others_b or self.others)

    @property
    def alone_a(self) -> int:
        return self.a - self.same - self.changed

    @property
    def alone_b(self) -> int:
        return self.b - self.same - self.changed


@dataclass
class RegionAlone:
    """A region without a counterpart, or one whose counterpart has another size."""

    side: str  # "a", "b", "both"
    region_a: int | None
    region_b: int | None
    kind: str
    label: str | None
    size_a: int | None
    size_b: int | None


@dataclass
class Spread:
    """Where a region differs for the first time, of all regions that do."""

    region_a: int
    region_b: int
    label: str | None
    size: int
    epoch_a: int
    epoch_b: int
    stretches: int


@dataclass
class ProcessDiff:
    """Two processes compared. process_a, process_b: their numbers.

    epochs_a, epochs_b: how many there are; left_out_a, left_out_b: of these, refused or lost;
    common: points compared; epochs_alone_a, epochs_alone_b: without a counterpart, though they may
    only have been cut at other points; epochs_lack: whether that is not so, as no calls are known
    to tell the points, or as a side that did not end in order lacks the other's last epochs.
    regions: pairs. region_epochs: states compared; differing: of these;
    tolerated: the same within the tolerance; unknown: of which only one side says something;
    unread: states that were not compared, as an epoch of a side did not read the region.
    launches: None where a side's calls are not known. divergences: by epoch; divergence_count:
    of all. stopped: at the first one. spread: regions in the order in which they part, the first.
    notes: what else one should know.
    """

    process_a: int
    process_b: int
    epochs_a: int = 0
    epochs_b: int = 0
    left_out_a: int = 0
    left_out_b: int = 0
    common: int = 0
    epochs_alone_a: int = 0
    epochs_alone_b: int = 0
    epochs_lack: bool = False
    regions: int = 0
    region_epochs: int = 0
    differing: int = 0
    tolerated: int = 0
    unknown: int = 0
    unread: int = 0
    launches: Launches | None = None
    regions_alone: list[RegionAlone] = field(default_factory=list)  # the first
    regions_alone_count: int = 0
    regions_alone_a: int = 0  # of all these
    regions_alone_b: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    divergence_count: int = 0
    stopped: bool = False
    spread: list[Spread] = field(default_factory=list)
    regions_differing: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def launches_differ(self) -> bool:
        found = self.launches
        return found is not None and bool(found.changed or found.alone_a or found.alone_b)

    @property
    def others_differ(self) -> bool:
        """Copies, fills and the like do."""
        found = self.launches
        return found is not None and bool(found.others_changed or found.others_a or found.others_b)

    @property
    def same(self) -> bool:
        return not (
            self.divergence_count
            or self.regions_alone_count
            or self.launches_differ
            or self.others_differ
            or self.epochs_lack
        )

    def only_lacks(self, side: str) -> bool:
        """Whether a side ("a" or "b") has nothing that the other has not, as if it had ended
        early.
        """
        found = self.launches or Launches()
        only = self.regions_alone_b if side == "a" else self.regions_alone_a
        more = (found.alone_a, found.others_a) if side == "a" else (found.alone_b, found.others_b)
        other = (self.divergence_count, self.regions_alone_count - only)
        return not any((*other, *more, found.changed, found.others_changed))


@dataclass
class DiffReport:
    """What diff found. a, b: what was compared. same: whether nothing differs, neither memory nor
    regions nor calls nor processes. memory_same: whether memory is, wherever it was compared.
    unknown: why neither can be said, though nothing differs but what a recording that failed lacks;
    else None.
    """

    a: str
    b: str
    same: bool
    memory_same: bool
    unknown: str | None
    tolerance: str | None
    processes: list[ProcessDiff]
    alone_a: list[int]  # processes without a counterpart
    alone_b: list[int]
    seconds: float

    @property
    def first(self) -> tuple[ProcessDiff, Divergence] | None:
        """Where memory first parts, in the first process in which it does; in what is but leftover
        only where there is nothing else.
        """
        found = [(process, d) for process in self.processes for d in process.divergences]
        return min(found, key=lambda pair: pair[1].leftover, default=None)

    def to_json(self) -> str:
        """The report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
