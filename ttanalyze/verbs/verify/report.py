"""The report of `verify`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson


@dataclass
class Difference:
    """One difference between a run and a manifest.

    The kind says which attributes are set:

    - `process`, `region`, `epoch`: the run or the manifest lacks one, or they describe it
      differently.
    - `contents`: the memory of a region differs.
    - `stored`: the memory of a region differs because the data file of the run was changed.

    Attributes:
        kind: "process", "region", "epoch", "contents" or "stored".
        message: The difference in one line.
        process: The number of the process.
        epoch: The first epoch that differs.
        until: The last epoch that differs, None if the comparison stopped before it.
        region: The id of the region.
        expected, actual, recorded: The digests in the manifest, of the stored contents and in the
            run: 16 hexadecimal digits.
        origin: The allocation: kind, label, size (bytes), base (address), call, seq, thread.
        changed_blocks: The first 16 blocks that the epoch changed.
        changed_block_count: The number of blocks that the epoch changed.
        damaged: The first 16 damaged blocks: block, file, offset (bytes).
        first_byte, last_byte: The offsets of the first and the last byte that differ. Only with
            `against` or `tamper`.
        differing_blocks: The first 16 blocks that differ. Only with `against` or `tamper`.
        differing_block_count: The number of blocks that differ.
        differing_bytes: The number of bytes that differ. None if a run has no contents of them.
        window: Bytes around the first difference: offset, expected, actual (hexadecimal).
        tensor: The name of the tensor with the first byte that differs, None if it has no name.
        tensor_type: The type of its items.
        tensor_offset, tensor_element: The position of this byte in the tensor, in bytes and in
            items.
        note: The reason why bytes could not be compared, else None.
    """

    kind: str
    message: str
    process: int
    epoch: int | None = None
    until: int | None = None
    region: int | None = None
    expected: str | None = None
    actual: str | None = None
    recorded: str | None = None
    origin: dict[str, Any] | None = None
    changed_blocks: list[int] = field(default_factory=list)
    changed_block_count: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)
    first_byte: int | None = None
    last_byte: int | None = None
    differing_blocks: list[int] = field(default_factory=list)
    differing_block_count: int = 0
    differing_bytes: int | None = None
    window: dict[str, Any] | None = None
    tensor: str | None = None
    tensor_type: str | None = None
    tensor_offset: int | None = None
    tensor_element: int | None = None
    note: str | None = None


@dataclass
class VerifyReport:
    """The result of `verify`.

    Attributes:
        run: The path of the run.
        manifest: The path of the manifest, or a description of it.
        against: The path of the run of the manifest, None if none was given.
        same: Whether run and manifest agree.
        unknown: The reason why no verdict is possible although nothing differs, else None.
        processes, epochs, regions: The numbers of compared processes, epochs and regions.
        region_epochs: The number of compared states: one region in one epoch each.
        digest_only: The states that were compared by their recorded digest only, since there are no
            contents.
        differing: The states that differ.
        unread: The states that were not compared, since the epoch did not read the region.
        skipped: The epochs that the recorder skipped on either side, to keep to --max-overhead.
        total_differences: The number of differences, including those not listed.
        stopped: Whether the comparison stopped at the first difference.
        blocks_read, bytes_read: The number of blocks and bytes that were read.
        seconds: The duration in seconds.
        differences: The first 100 differences.
    """

    run: str
    manifest: str
    against: str | None
    same: bool
    unknown: str | None
    processes: int
    epochs: int
    regions: int
    region_epochs: int
    digest_only: int
    differing: int
    unread: int
    skipped: int
    total_differences: int
    stopped: bool
    blocks_read: int
    bytes_read: int
    seconds: float
    differences: list[Difference]

    def to_json(self) -> str:
        """Returns the report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
