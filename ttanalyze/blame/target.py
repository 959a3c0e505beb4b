"""What is asked about: a region, and a part of it as items of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.model import layout
from ttanalyze.model.contents import captured_row
from ttanalyze.model.process import Process
from ttanalyze.selection import label_of, region_at, region_named
from ttanalyze.values import Type


@dataclass(frozen=True)
class Target:
    """Bytes [start, stop) of a region; type: of their items, None for plain bytes."""

    process: Process
    region: int
    start: int
    stop: int
    type: Type | None

    @property
    def whole(self) -> bool:
        """Whether that is all of the region."""
        row = captured_row(self.process, self.region)
        return self.stop - self.start == int(self.process.regions.size[row])

    @property
    def label(self) -> str | None:
        return label_of(self.process, self.region)

    def as_dict(self) -> dict[str, Any]:
        birth = self.process.regions.birth[captured_row(self.process, self.region)]
        return {
            "process": self.process.index,
            "region": self.region,
            "label": self.label,
            "kind": layout.REGION_KINDS[int(birth["kind"])],
            "size": int(birth["size"]),
            "offset": self.start,
            "bytes": self.stop - self.start,
            "dtype": None if self.type is None else self.type.name,
        }


def find_target(
    process: Process,
    region: int | str | None = None,
    offset: int | None = None,
    *,
    address: int | None = None,
    element: int | None = None,
    count: int | None = None,
    type: Type | None = None,  # noqa: A002
    epoch: int | None = None,
) -> Target:
    """Of a region (id or label), `count` items from a byte offset or an element on; the whole
    region where none of these is given. address: of the first byte, instead of all these. epoch:
    when it is meant, where labels or addresses were used again. Raises Error.
    """
    if offset is not None and element is not None:
        raise Error("--offset and --element say the same in two ways: give one")
    if address is not None:
        if region is not None or offset is not None or element is not None:
            raise Error("--address stands for --region and --offset: give one or the other")
        found, offset = region_at(process, address, epoch)
    elif region is None:
        raise Error("which memory? Give --region, or --address")
    else:
        found = region_named(process, str(region), epoch)
    size = int(process.regions.size[captured_row(process, found)])
    itemsize = 1 if type is None else type.itemsize
    if offset is None and element is None and count is None:
        return Target(process, found, 0, size, type)
    start = offset if offset is not None else (element or 0) * itemsize
    stop = start + (1 if count is None else count) * itemsize
    if not 0 <= start < stop <= size:
        what = f"{'byte' if stop - start == 1 else 'bytes'} {start}"
        what += f" to {stop - 1}" if stop - start > 1 else ""
        raise Error(f"no {what} in region {found}: it has {size}")
    return Target(process, found, start, stop, type)
