"""Zones: patterns that the recorder keeps around allocations, and in place of freed ones.

A zone is a region of kind "zone" whose bytes follow from their addresses. Where an epoch has other
bytes than the epoch before, something was written out of bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttanalyze.core.fill import fill_bytes
from ttanalyze.errors import Error
from ttanalyze.format import contents, event_kinds, layout
from ttanalyze.format.digest import digests_of_pattern
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.regions import Regions
from ttanalyze.util.arguments import checked

__all__ = ["ChangedZone", "changed_zones"]

ZONE = layout.enum("region_kind")["TT_REGION_ZONE"]
ARENA = layout.enum("region_kind")["TT_REGION_ARENA"]
ALLOC = event_kinds.KIND["alloc"]
SEED = 0x656E6F7A  # as interpose/include/fill_pattern.h has it
END, START, FREED = "past the end", "before the start", "after free"


@dataclass(frozen=True)
class ChangedZone:
    """A change of the bytes of a zone.

    Attributes:
        region: The id of the zone's region.
        side: Where the write lies, as seen from the allocation: "past the end", "before the start"
            or "after free".
        allocation: The id of the region that the zone belongs to; None if it is unknown.
        epoch: The first epoch that has the new bytes.
        before: The last epoch that has the bytes before; None if there is none.
        first, last: The offsets of the first and the last changed byte in the zone; None if an
            epoch has no contents.
        count: The number of changed bytes, or None.
        sample: Up to 16 of the new bytes, from the first changed one on.
        tail: Whether the zone is the rest of the last 256 bytes of an allocation of the driver. The
            recorder does not fill it, and compares it with its first bytes.
    """

    region: int
    side: str
    allocation: int | None
    epoch: int
    before: int | None
    first: int | None = None
    last: int | None = None
    count: int | None = None
    sample: bytes = b""
    tail: bool = False


def pattern(address: int, size: int) -> Array:
    """Returns the bytes that zones have at [address, address + size), as uint8."""
    return fill_bytes(f"pattern:{SEED}", address, size)


@checked
def changed_zones(process: Process, most: int | None = None) -> list[ChangedZone]:
    """Finds the writes to zones. A zone begins with its pattern; from each change on, it is
    compared with its new bytes.

    Args:
        process: The process.
        most: The number of changes after which only the first one of each zone is listed. Default:
            all are.

    Returns:
        The changes by epoch, and then by zone.

    Raises:
        FormatError: A file does not follow the format.

    Example:
        >>> tt.zones.changed_zones(tt.open("work").process(0))  # it has none: --zones makes them
        []
    """
    out: list[ChangedZone] = []
    rows = set()
    for row, epoch, fresh in sorted(changes(process), key=lambda change: change[1]):
        if row in rows and most is not None and len(out) >= most:
            continue
        rows.add(row)
        before = process.coverage.before(epoch, int(process.regions.id[row]))
        before = before if before is not None and before >= process.regions.born[row] else None
        out.append(_changed(process, row, epoch, before, fresh))
    return sorted(out, key=lambda zone: (zone.epoch, zone.region))


def exist(process: Process) -> bool:
    """Returns whether there are zones."""
    return bool((process.regions.birth["kind"] == ZONE).any())


def changes(process: Process) -> Iterator[tuple[int, int, bool]]:
    """Yields the rows of zones in the table of regions with each epoch that shows new bytes, and
    whether the zone had its pattern before. Reads digests alone.
    """
    regions = process.regions
    rows = np.flatnonzero(regions.birth["kind"] == ZONE)
    if not len(rows):
        return
    digests = process.digests(0, len(process.epochs))
    epochs = process.epoch_of("digests", 0, len(process.epochs))
    ours = np.isin(digests["region"], regions.id[rows])
    digests, epochs = digests[ours], epochs[ours]
    order = np.lexsort((epochs, digests["region"]))
    digests, epochs = digests[order], epochs[order]
    of = regions.rows(digests["region"])
    begins = np.flatnonzero(np.append(True, of[1:] != of[:-1]))[: len(of)]
    expected = np.repeat(_expected(regions, of[begins]), np.diff(np.append(begins, len(of))))
    before = np.roll(digests["digest"], 1)
    before[begins] = expected[begins]
    changed = digests["digest"] != before
    changed[begins] &= regions.birth["flags"][of[begins]] & layout.UNSTABLE == 0
    for at in np.flatnonzero(changed).tolist():
        yield int(of[at]), int(epochs[at]), bool(before[at] == expected[at])


def _expected(regions: Regions, rows: Array) -> Array:
    """The digests of zones that nobody wrote to. Freed memory is allocated again in the same place,
    so zones have the same digest.
    """
    places = np.stack([regions.birth["base"][rows], regions.size[rows].astype("u8")], axis=1)
    different, which = np.unique(places, axis=0, return_inverse=True)
    return digests_of_pattern(SEED, different[:, 0], different[:, 1])[which.reshape(-1)]


def _is_tail(birth: Any) -> bool:
    return bool(birth["flags"] & layout.UNSTABLE)


def tails(process: Process) -> int:
    """Returns the number of allocations without zones of which the rest of the last 256 bytes is
    watched.
    """
    zones = process.regions.birth[process.regions.birth["kind"] == ZONE]
    return int(np.count_nonzero(zones["flags"] & layout.UNSTABLE))


def _changed(
    process: Process, row: int, epoch: int, before: int | None, fresh: bool
) -> ChangedZone:
    birth = process.regions.birth[row]
    base, size, region = int(birth["base"]), int(birth["size"]), int(birth["id"])
    allocation, side = _owner(process, row, epoch)
    zone = ChangedZone(region, side, allocation, epoch, before, tail=_is_tail(birth))
    try:
        found = contents.read(process, epoch, region)
        if fresh or before is None:
            known = pattern(base, size)
        else:
            known = contents.read(process, before, region)
    except Error:
        return zone  # its digest alone
    other = np.flatnonzero(found != known)
    if not len(other):
        return zone
    first, last = int(other[0]), int(other[-1])
    sample = found[first : first + 16].tobytes()
    return replace(zone, first=first, last=last, count=len(other), sample=sample)


def _owner(process: Process, row: int, epoch: int) -> tuple[int | None, str]:
    """The allocation that a zone belongs to, and on which side of it the zone lies. Of several,
    one after the other in the same place, the last one before the epoch.
    """
    regions = process.regions
    birth = regions.birth[row]
    base, size = int(birth["base"]), int(birth["size"])
    owners = np.flatnonzero(regions.birth["kind"] != ZONE)
    bases, sizes = regions.birth["base"][owners], regions.size[owners]
    there = regions.birth["seq"][owners] >= birth["seq"]
    there &= regions.born[owners] <= epoch
    freed = regions.died[owners] != layout.NO_EPOCH
    for match, side in (
        (there & (bases + sizes == base), END),
        (there & (bases == base + size), START),
        (freed & (regions.id[owners] < birth["id"]) & (bases == base) & (sizes == size), FREED),
    ):
        found = owners[match]
        if len(found):
            return int(regions.id[found[-1]]), side
    return None, FREED


def neighbour(process: Process, zone: ChangedZone) -> int | None:
    """Returns the id of the next allocation on the other side of a zone; None if there is none."""
    regions = process.regions
    birth = regions.birth[int(regions.rows(np.array([zone.region]))[0])]
    alive = (regions.born <= zone.epoch) & (regions.died > zone.epoch)
    rows = np.flatnonzero(alive & (regions.birth["kind"] == ARENA))
    bases = regions.birth["base"][rows]
    behind = bases > birth["base"] if zone.side == END else bases < birth["base"]
    rows, bases = rows[behind], bases[behind]
    if not len(rows):
        return None
    at = int(bases.argmin() if zone.side == END else bases.argmax())
    found = int(regions.id[rows[at]])
    return None if found == zone.allocation else found


def coverage(process: Process) -> tuple[int, int, int, int]:
    """Returns the number of allocations with zones, of all allocations, and the bytes of both.

    Only allocations of device memory count.
    """
    regions = process.regions
    zones = regions.birth[regions.birth["kind"] == ZONE]
    ends = regions.birth["base"] + regions.size
    return shares(process, (regions.birth["kind"] == ARENA) & np.isin(ends, zones["base"]))


def allocations(process: Process) -> Array:
    """Returns the rows of the arena's allocations in the table of regions, in their order. With
    `--regions zones`, several may be the same region.
    """
    columns = process.event_columns("kind", "id", "seq")
    rows = np.flatnonzero(columns["kind"] == ALLOC)
    rows = rows[np.argsort(columns["seq"][rows], kind="stable")]
    known = process.regions.rows(columns["id"][rows])
    known = known[known >= 0]
    return known[process.regions.birth["kind"][known] == ARENA]


def shares(process: Process, served: Array) -> tuple[int, int, int, int]:
    """Returns the number of these allocations, of all allocations, and the bytes of both.

    Only allocations of device memory count.
    """
    regions = process.regions
    if process.info.get("options", {}).get("TT_REGIONS") == "zones":
        times = np.maximum(np.bincount(allocations(process), minlength=len(regions)), 1)
    else:
        times = np.ones(len(regions), "i8")
    kinds = np.array([kind or "" for kind in layout.REGION_KINDS])[regions.birth["kind"]]
    counted = np.isin(kinds, ["device", "managed", "async", "vmm", "ipc", "arena"])
    return (
        int(times[served].sum()),
        int(times[counted].sum()),
        int((regions.size * times)[served].sum()),
        int((regions.size * times)[counted].sum()),
    )
