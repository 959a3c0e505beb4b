"""The target of a question: a region, or a part of it as items of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttanalyze.core.tensors import type_of
from ttanalyze.core.values import Type, parse
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.contents import captured_row
from ttanalyze.format.labels import Part
from ttanalyze.format.process import Process
from ttanalyze.format.selection import label_of, named, region_at
from ttanalyze.util.arguments import checked


@dataclass(frozen=True)
class Target:
    """A region, or a part of it.

    Attributes:
        process: The process.
        region: The id of the region.
        start, stop: The bytes [start, stop) of the region.
        type: The type of the items, None for plain bytes.
        tensor: The named part that it is, or is part of, if it was requested by name.
        part: Whether a part was requested, even if it is the whole region.
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
        """Whether the target is the whole region."""
        row = captured_row(self.process, self.region)
        return self.stop - self.start == int(self.process.regions.size[row])

    @property
    def label(self) -> str | None:
        """The label of the region."""
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


@checked
def find_target(
    process: Process,
    region: int | str | None = None,
    offset: int | None = None,
    *,
    address: int | None = None,
    element: int | None = None,
    count: int | None = None,
    type: Type | str | None = None,  # noqa: A002
    epoch: int | None = None,
) -> Target:
    """Finds a region or a tensor, or some of its items.

    Args:
        process: The process.
        region: The id or the label of a region, or the name of a tensor.
        offset: The first byte, an offset in the region or the tensor.
        address: The address of the first byte, in place of `region` and `offset`.
        element: The index of the first item, in place of `offset`.
        count: The number of items. Default: one if `offset`, `element` or `address` is given, else
            all.
        type: The type of the items, or its name such as `f32`. Default: the type of the tensor,
            else plain bytes.
        epoch: The epoch in which a label or an address is looked up, if it was reused.

    Raises:
        Error: There is no such memory, or the arguments contradict each other.

    Example:
        >>> run = tt.open("run1")
        >>> target = tt.blame.find_target(run.processes[0], "weights", element=3, type="f32")
        >>> target.region, target.start, target.stop
        (0, 12, 16)
    """
    if isinstance(type, str):
        type = parse(type)  # noqa: A001
    if offset is not None and element is not None:
        raise Error("--offset and --element exclude each other")
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
    """Returns items of a tensor, which must lie in one of its parts."""
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
    """Returns the requested bytes [start, stop), None for all."""
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
