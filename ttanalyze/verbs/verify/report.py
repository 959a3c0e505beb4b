"""What `verify` found, as a report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson


@dataclass
class Difference:
    """One thing that differs. kind says which members are filled in.

    process, region, epoch: something is missing, extra or not the same; message says what.
    contents: a region's memory differs in epochs `epoch` to `until`, which is missing where
    the comparison was stopped before it was known.
    stored: the same, and the run's own data file is not what was recorded.
    """

    kind: str
    message: str
    process: int
    epoch: int | None = None
    until: int | None = None
    region: int | None = None
    expected: str | None = None  # digests, 16 hexadecimal digits
    actual: str | None = None
    recorded: str | None = None
    origin: dict[str, Any] | None = None  # kind, label, size, base, call, seq, thread
    changed_blocks: list[int] = field(default_factory=list)  # in this epoch, the first 16
    changed_block_count: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)  # block, file, offset
    first_byte: int | None = None  # offset in the region of the first byte that differs
    last_byte: int | None = None
    differing_bytes: int | None = None
    window: dict[str, Any] | None = None  # offset, expected, actual (hexadecimal)
    tensor: str | None = None  # what the first byte is part of, where the program named it
    tensor_type: str | None = None
    tensor_offset: int | None = None  # and where in it, in bytes and in items of its type
    tensor_element: int | None = None
    note: str | None = None  # why bytes could not be compared


@dataclass
class VerifyReport:
    """What verify found. same: whether run and manifest agree. unknown: why that can't be said
    though nothing differs; else None.
    """

    run: str
    manifest: str
    against: str | None
    same: bool
    unknown: str | None
    processes: int
    epochs: int  # compared; refused ones, and dropped ones without digests, hold nothing to compare
    regions: int
    region_epochs: int  # compared
    digest_only: int  # of these, states that could only be compared by their recorded digest
    differing: int  # region-epochs that differ
    unread: int  # region-epochs that were not compared: the epoch did not read the region
    total_differences: int
    stopped: bool  # at the first difference
    blocks_read: int
    bytes_read: int
    seconds: float
    differences: list[Difference]

    def to_json(self) -> str:
        """The report as a JSON object."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2).decode()
