"""The report of `diff`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from ttanalyze.core.bytewise import ByteDifference
from ttanalyze.core.tensors import TensorDifference
from ttanalyze.core.values import ValueDifference


@dataclass
class Suspect:
    """A call that may have written to a region that differs.

    Attributes:
        kind: The kind of the event: "launch", "copy" and so on.
        call: The name of the driver call.
        kernel: The mangled name of the kernel.
        seq_a, seq_b: The sequence number of the call in each run, None if the run has no such call.
        alone: Whether only one run has the call.
        stream: The id of the stream.
        grid, block, cluster: The blocks of the launch, the threads of a block, and the blocks of a
            cluster, in x, y and z.
        shared: The dynamic shared memory in bytes.
        bytes: The number of bytes that a copy or fill writes.
        how: How sure the write is, one of writers.HOW.
        parameters: "same" or "different" if both runs recorded the parameters of the launch, else
            None. Pointers to corresponding regions count as the same.
        parameter_offset: The offset of the first byte of the parameters that differs.
        parameters_a, parameters_b: The parameters, hexadecimal.
        stack: The call stack in run A, else in run B: function, file and line, the innermost frame
            first.
        range: The NVTX range, such as "train/step 3/forward".
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
    parameters: str | None = None
    parameter_offset: int | None = None
    parameters_a: str | None = None
    parameters_b: str | None = None
    stack: list[tuple[str, str, int]] | None = None
    range: str | None = None


@dataclass
class Divergence:
    """A region that differs over some epochs.

    Attributes ending in _a and _b belong to run A and run B. They are None if unknown. The tensor
    attributes need names that the program gave.

    Attributes:
        region_a, region_b: The id of the region.
        kind: The kind of the region.
        label: The label of the region.
        size: The size of the region in bytes.
        epoch_a, epoch_b: The first epoch that differs.
        until_a, until_b: The last compared epoch that differs, None if it differs up to the end.
        equal_a, equal_b: The last compared epoch before, in which the region was equal. None if
            there is none.
        trigger: The trigger of the first epoch that differs.
        epoch_label: The label of this epoch.
        digest_a, digest_b: The digests, 16 hexadecimal digits.
        after: The last launch before this epoch: kernel (mangled), ordinal (1 for the first launch
            of this kernel), seq.
        origin_a, origin_b: The allocation: kind, label, size (bytes), base (address), call, seq,
            thread.
        blocks: The first blocks that differ.
        block_count: The number of blocks that differ.
        block_total: The number of blocks of the region.
        bytes: How the bytes differ, if contents of both runs were compared.
        values: How the items differ, if their type is given.
        examples: Index and values of the first items that differ, as text.
        tensor: The name of the tensor with the first byte that differs.
        tensor_type: The type of its items.
        tensor_offset, tensor_element: The position of this byte in the tensor, in bytes and in
            items.
        tensors: The first tensors that differ.
        tensor_count: The number of tensors that differ.
        tensor_values, tensor_examples: As `values` and `examples`, for this tensor with its own
            type.
        partial: Whether only a part of the contents was compared.
        suspects: The likeliest writers.
        suspect_count: The number of possible writers.
        leftover: Whether the region never was equal and no call wrote to it: it holds old contents
            of its memory.
        notes: Further remarks, one line each.
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
    origin_a: dict[str, Any] | None = None
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
    suspects: list[Suspect] = field(default_factory=list)
    suspect_count: int = 0
    leftover: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class Stretch:
    """Consecutive launches that differ.

    Attributes:
        kind: "alone" (launches without a counterpart) or "changed" (the same kernels with other
            shapes).
        before_a, before_b: The number of launches of the context before, None if unknown.
        seq_a, seq_b: The sequence number of the first launch.
        count_a, count_b: The number of launches.
        kernels_a, kernels_b: The most frequent kernels (mangled) and their counts.
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
    """How the calls of two processes correspond.

    Attributes:
        a, b: The number of launches.
        same: Launches that correspond and are equal.
        changed: Launches of the same kernel with another grid, block, cluster or shared memory.
        others_a, others_b: Copies, fills and similar calls without a counterpart.
        others: Such calls that correspond.
        others_changed: Those of another size.
        exact: Whether no more calls could correspond.
        stretches: The first stretches of launches that differ.
        stretch_count: The number of these stretches.
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
    stretches: list[Stretch] = field(default_factory=list)
    stretch_count: int = 0

    @property
    def calls(self) -> bool:
        """Whether either process has calls."""
        return bool(self.a or self.b or self.others_a or self.others_b or self.others)

    @property
    def alone_a(self) -> int:
        return self.a - self.same - self.changed

    @property
    def alone_b(self) -> int:
        return self.b - self.same - self.changed


@dataclass
class RegionAlone:
    """A region without a counterpart, or with one of another size.

    Attributes:
        side: "a", "b" or "both" (another size).
        region_a, region_b: The id of the region.
        kind: The kind of the region.
        label: The label of the region.
        size_a, size_b: The size in bytes.
    """

    side: str
    region_a: int | None
    region_b: int | None
    kind: str
    label: str | None
    size_a: int | None
    size_b: int | None


@dataclass
class Spread:
    """The first epoch in which a region differs.

    Attributes:
        region_a, region_b: The id of the region.
        label: The label of the region.
        size: The size in bytes.
        epoch_a, epoch_b: The first epoch that differs.
        stretches: The number of separate stretches of epochs that differ.
    """

    region_a: int
    region_b: int
    label: str | None
    size: int
    epoch_a: int
    epoch_b: int
    stretches: int


@dataclass
class ProcessDiff:
    """The comparison of two processes.

    Attributes ending in _a and _b belong to run A and run B.

    Attributes:
        process_a, process_b: The numbers of the processes.
        epochs_a, epochs_b: The number of epochs.
        left_out_a, left_out_b: The number of epochs that were refused, skipped or lost.
        skipped_a, skipped_b: The number of them that were skipped to keep to --max-overhead.
        common: The number of compared points: pairs of epochs that correspond.
        epochs_alone_a, epochs_alone_b: The number of epochs without a counterpart.
        epochs_lack: Whether missing epochs count as a difference. They do not if the same work was
            cut into epochs at other points.
        regions: The number of pairs of regions.
        region_epochs: The number of compared states: one region in one epoch each.
        differing: The states that differ.
        tolerated: The states that are equal within the tolerance.
        unknown: The states that only one run recorded.
        unread: The states that were not compared, since an epoch did not read the region.
        launches: How the calls correspond, None if a run has no calls.
        regions_alone: The first regions without an equal counterpart.
        regions_alone_count: The number of these regions.
        regions_alone_a, regions_alone_b: The number of these regions that only one run has.
        divergences: The divergences by epoch.
        divergence_count: The number of divergences.
        stopped: Whether the comparison stopped at the first divergence.
        spread: The first regions that differ, in the order of their first difference.
        regions_differing: The number of regions that differ.
        notes: Further remarks, one line each.
    """

    process_a: int
    process_b: int
    epochs_a: int = 0
    epochs_b: int = 0
    left_out_a: int = 0
    left_out_b: int = 0
    skipped_a: int = 0
    skipped_b: int = 0
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
    regions_alone: list[RegionAlone] = field(default_factory=list)
    regions_alone_count: int = 0
    regions_alone_a: int = 0
    regions_alone_b: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    divergence_count: int = 0
    stopped: bool = False
    spread: list[Spread] = field(default_factory=list)
    regions_differing: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def launches_differ(self) -> bool:
        """Whether launches differ."""
        found = self.launches
        return found is not None and bool(found.changed or found.alone_a or found.alone_b)

    @property
    def others_differ(self) -> bool:
        """Whether copies, fills or similar calls differ."""
        found = self.launches
        return found is not None and bool(found.others_changed or found.others_a or found.others_b)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (
            self.divergence_count
            or self.regions_alone_count
            or self.launches_differ
            or self.others_differ
            or self.epochs_lack
        )

    def only_lacks(self, side: str) -> bool:
        """Returns whether a side has nothing that the other lacks, as if it had ended early.

        Args:
            side: "a" or "b".
        """
        found = self.launches or Launches()
        only = self.regions_alone_b if side == "a" else self.regions_alone_a
        more = (found.alone_a, found.others_a) if side == "a" else (found.alone_b, found.others_b)
        other = (self.divergence_count, self.regions_alone_count - only)
        return not any((*other, *more, found.changed, found.others_changed))


@dataclass
class DiffReport:
    """The result of `diff`.

    Attributes:
        a, b: The paths of the two sides.
        same: Whether nothing differs: memory, regions, calls and processes.
        memory_same: Whether the compared memory is equal.
        unknown: The reason why no verdict is possible although nothing else differs: a recording
            failed. Else None.
        tolerance: The tolerance as text.
        processes: The pairs of processes.
        alone_a, alone_b: The numbers of processes without a counterpart.
        seconds: The duration in seconds.
    """

    a: str
    b: str
    same: bool
    memory_same: bool
    unknown: str | None
    tolerance: str | None
    processes: list[ProcessDiff]
    alone_a: list[int]
    alone_b: list[int]
    seconds: float

    @property
    def first(self) -> tuple[ProcessDiff, Divergence] | None:
        """The first divergence in memory with its process, None if there is none. A leftover comes
        only if there is nothing else.
        """
        found = [(process, d) for process in self.processes for d in process.divergences]
        return min(found, key=lambda pair: pair[1].leftover, default=None)

    def to_json(self) -> str:
        """Returns the report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
