"""Finds regions and tensors by id, label, name or address."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text


def region_named(process: Process, name: str, epoch: int | None = None) -> int:
    """Returns the captured region with an id or a label; if there are several, the one that lives
    in an epoch.

    Raises Error if there is none, or more than one.
    """
    if _has_id(process, name):
        return int(name)
    what, where = "region", contents.LISTED
    if len(process.labels):
        what = "region or tensor"
        where = "`ttanalyze query --table regions` and `--table labels` list them"
    missing = f"no {what} {name!r} in process {process.index}: {where}"
    return _only(process, _rows_labelled(process, name), epoch, missing, "--region")


def named(process: Process, name: str, epoch: int | None = None) -> int | list[Part]:
    """Returns the region that region_named finds, or the parts of the tensor with this name, in
    order.

    The tensor is looked up in an epoch, or at its last appearance. Raises Error if there is
    neither, or if only parts of the tensor are left.
    """
    if _has_id(process, name) or len(_rows_labelled(process, name)):
        return region_named(process, name, epoch)
    parts = process.labels.named(name, epoch)
    if not parts:
        return region_named(process, name, epoch)
    parts.sort(key=lambda part: part.start)
    ends = [part.start + part.bytes for part in parts]
    if [part.start for part in parts] != [0, *ends[:-1]]:
        places = ", ".join(f"region {p.region} from byte {p.offset}" for p in parts[:8])
        places += " …" if len(parts) > 8 else ""
        raise Error(f"{name!r} is not in one place ({places}): use --region and --offset")
    return parts


def place_named(
    process: Process, name: int | str, epoch: int | None = None
) -> tuple[int, int, int | None]:
    """Returns where a region or a tensor lies: the region, the offset in it and the size in bytes,
    None for the whole region.

    name: the id or the label of a region, or the name of a tensor. Raises Error as named, and if
    the tensor lies in several regions.
    """
    if not isinstance(name, str):
        return int(name), 0, None
    found = named(process, name, epoch)
    if isinstance(found, int):
        return found, 0, None
    if len(found) > 1:
        which = ", ".join(str(part.region) for part in found)
        raise Error(f"{name!r} lies in several regions ({which}): name one of them")
    return found[0].region, found[0].offset, found[0].bytes


def all_named(process: Process, name: str) -> Array:
    """Returns the ids of all regions with an id or a label, or where a tensor of this name lay."""
    if _has_id(process, name):
        return np.array([int(name)], "u4")
    labelled = process.regions.id[_rows_labelled(process, name)]
    return np.union1d(labelled, process.labels.regions_of(name)).astype("u4")


def _has_id(process: Process, name: str) -> bool:
    if not (name.isdecimal() and name.isascii()):
        return False
    return bool(process.regions.rows(np.array([min(int(name), layout.NO_ID)]))[0] >= 0)


def _rows_labelled(process: Process, name: str) -> Array:
    """Returns the rows of regions with a label."""
    regions = process.regions
    labels = {offset: process.strings.get(offset) for offset in np.unique(regions.label).tolist()}
    wanted = [offset for offset, label in labels.items() if label == name]
    return np.flatnonzero(np.isin(regions.label, wanted))


def region_at(process: Process, address: int, epoch: int | None = None) -> tuple[int, int]:
    """Returns the captured region that contains an address, and the offset in it. Raises Error as
    region_named.
    """
    regions = process.regions
    base = regions.birth["base"]
    there = np.uint64(min(address, (1 << 64) - 1))
    rows = np.flatnonzero((base <= there) & (there - base < regions.size))
    missing = f"no captured region at {address:#x} in process {process.index}: {contents.LISTED}"
    region = _only(process, rows, epoch, missing, "--region and --offset")
    return region, address - int(base[regions.rows(np.array([region]))[0]])


def _only(process: Process, rows: Array, epoch: int | None, missing: str, instead: str) -> int:
    regions = process.regions
    rows = rows[regions.flags[rows] & layout.CAPTURED != 0]
    if epoch is not None and len(rows) > 1:
        rows = rows[(regions.born[rows] <= epoch) & (epoch < regions.died[rows])]
    if not len(rows):
        raise Error(missing)
    if len(rows) > 1:
        some = ", ".join(map(str, regions.id[rows[:8]].tolist()))
        some += " …" if len(rows) > 8 else ""
        raise Error(f"that is {text.count(len(rows), 'region')} ({some}): use {instead}")
    return int(regions.id[rows[0]])


def label_of(process: Process, region: int) -> str | None:
    """Returns the label of a region as the file has it."""
    row = int(process.regions.rows(np.array([region]))[0])
    return process.strings.get(int(process.regions.label[row]))


def by_region(
    process: Process,
    given: Iterable[str],
    option: str,
    epoch: int | None = None,
    tensors: Iterable[str] = (),
) -> tuple[str | None, dict[int | str, str]]:
    """Splits values given as VALUE or REGION=VALUE into the one for all regions and those for some.

    tensors: names that may be used in place of a region. Raises Error, naming the option, for a
    value given twice or for no region.
    """
    for_all: str | None = None
    for_some: dict[int | str, str] = {}
    for item in given:
        name, equals, value = item.rpartition("=")
        if not equals:
            if for_all is not None:
                raise Error(f"{option} {item}: {for_all} is given for all regions already")
            for_all = value
            continue
        region = name if name in tensors else region_named(process, name, epoch)
        if region in for_some:
            raise Error(f"{option} {item}: {for_some[region]} is given for this region already")
        for_some[region] = value
    return for_all, for_some
