"""What is asked about: a region, and a part of it as items of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttanalyze.core.selection import label_of, named, region_at
from ttanalyze.core.tensors import type_of
from ttanalyze.core.values import Type
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.contents import captured_row
from ttanalyze.format.labels import Part
from ttanalyze.format.process import Process


@dataclass(frozen=True)
class Target:
    """Bytes [start, stop) of a region; type: of their items, None for plain bytes. tensor: what
    they are or are part of, where that was asked for by its name. part: whether a place in the
    region was asked for, be it all of it.
    """

    process: Process
    region: int
    start: int
    stop: int
    type: Type | None
    tensor: Part | None = None
    part: bool = False

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
            "tensor": None if self.tensor is None else self.tensor.name,
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
    """Of a region (id or label) or a tensor (its name), `count` items from a byte offset or an
    element on; all of it where none of these is given. type: of a tensor, the one that the program
    gave unless another is asked for. address: of the first byte, instead of all these. epoch:
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
        what = named(process, str(region), epoch)
        if not isinstance(what, int):
            return _in_tensor(process, what, offset, element, count, type)
        found = what
    size = int(process.regions.size[captured_row(process, found)])
    place = _byte_range(offset, element, count, type)
    if place is None:
        return Target(process, found, 0, size, type)
    _check_place(place, size, f"region {found}")
    return Target(process, found, *place, type, part=True)


def _in_tensor(
    process: Process,
    parts: list[Part],
    offset: int | None,
    element: int | None,
    count: int | None,
    type: Type | None,  # noqa: A002
) -> Target:
    """As find_target, of a tensor that lies in one region or, of several, wholly in one part."""
    type = type or type_of(parts[0])  # noqa: A001
    size = parts[-1].start + parts[-1].bytes
    place = _byte_range(offset, element, count, type)
    if place is None:
        place = 0, size
    _check_place(place, size, parts[0].name)
    for part in parts:
        start, stop = (part.offset + byte - part.start for byte in place)
        if part.offset <= start and stop <= part.offset + part.bytes:
            captured_row(process, part.region)
            return Target(process, part.region, start, stop, type, part, part=True)
    which = ", ".join(str(part.region) for part in parts)
    raise Error(f"{parts[0].name!r} lies in several regions ({which}): use --offset and --count")


def _byte_range(
    offset: int | None,
    element: int | None,
    count: int | None,
    type: Type | None,  # noqa: A002
) -> tuple[int, int] | None:
    """The bytes [start, stop) that were asked for; None for all."""
    if offset is None and element is None and count is None:
        return None
    itemsize = 1 if type is None else type.itemsize
    start = offset if offset is not None else (element or 0) * itemsize
    return start, start + (1 if count is None else count) * itemsize


def _check_place(place: tuple[int, int], size: int, of: str) -> None:
    start, stop = place
    if not 0 <= start < stop <= size:
        what = f"{'byte' if stop - start == 1 else 'bytes'} {start}"
        what += f" to {stop - 1}" if stop - start > 1 else ""
        raise Error(f"no {what} in {of}: it has {size}")
