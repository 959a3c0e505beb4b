"""Compares present memory with expected memory: bytes, items, tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from ttanalyze.core.bytewise import ByteDifference, Contents, compare_bytes
from ttanalyze.core.tensors import Tally, TensorDifference, type_of
from ttanalyze.core.values import Tolerance, Type, ValueDifference
from ttanalyze.core.values.compare import Comparison
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.labels import Part
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.memory import copy_out
from ttanalyze.gpu.rebuild.address_map import Finding, State
from ttanalyze.gpu.rebuild.replay_context import ReplayContext

LISTED_BLOCKS = 16
LISTED_TENSORS = 16
LOOKED_AT = 1 << 12  # blocks of a region whose bytes are compared
Types = Mapping[str | int | None, Type]  # by label, by id, None for all others
Tolerances = Mapping[str | int | None, Tolerance]  # likewise
T = TypeVar("T")


class Memory(Contents):
    """Present device memory as the contents of a region."""

    def __init__(self, process: Process, size: int, device: Device, address: int) -> None:
        records = np.zeros(layout.blocks_of(size), layout.BLOCK)
        records["length"] = BLOCK_SIZE
        if size % BLOCK_SIZE:
            records["length"][-1] = size % BLOCK_SIZE
        super().__init__(process, records, check=False)
        self._device = device
        self._address = address

    def block(self, index: int) -> Array:
        out = np.empty(int(self.records["length"][index : index + 1].sum()), np.uint8)
        if len(out):
            copy_out(self._device, out, self._address + index * BLOCK_SIZE)
        return out


@dataclass
class RegionDifference:
    """How a region differs.

    blocks: the first blocks that differ. bytes: None if no byte differs. values: None without a
    type. tensors: the named parts that differ, and their values by name. tolerated: all differences
    are within the tolerance. new: the region was allocated meanwhile. partial: not all blocks were
    compared.
    """

    region: int
    kind: str
    label: str | None
    size: int
    blocks: list[int]
    block_count: int
    bytes: ByteDifference | None = None
    values: ValueDifference | None = None
    tensors: list[TensorDifference] = field(default_factory=list)
    tensor_count: int = 0
    tensor_values: list[ValueDifference | None] = field(default_factory=list)
    tolerated: bool = False
    new: bool = False
    partial: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_tolerances(texts: Iterable[str]) -> dict[str | int | None, Tolerance]:
    """Parses tolerances such as "1e-6,1e-3" and "weights=,,4": by id or label of a region, and for
    all others.

    Raises Error for any other text.
    """
    out: dict[str | int | None, Tolerance] = {}
    for one in texts:
        region, named, value = one.rpartition("=")
        number = region.isascii() and region.isdecimal()
        key = (int(region) if number else region) if named else None
        if key in out or key == "":
            raise Error(f"--tolerance {one}: expected ABS,REL,ULP or REGION=ABS,REL,ULP, each once")
        out[key] = Tolerance.parse(value)
    return out


def check_regions(process: Process, types: Types, tolerances: Tolerances) -> None:
    """Raises Error if a named region does not exist."""
    regions = process.regions
    ids, labels = set(regions.id.tolist()), layout.distinct(regions.label).tolist()
    known = ids.union(process.strings.get(label) for label in labels)
    for key in (*types, *tolerances):
        if key is not None and key not in known:
            raise Error(f"no region {key}: {contents.LISTED}")


def of_region(given: Mapping[str | int | None, T], process: Process, row: int) -> T | None:
    """Returns the value for a region, by its id or label, or for all others."""
    regions = process.regions
    label = process.strings.get(int(regions.label[row]))
    for key in (int(regions.id[row]), label):
        if key is not None and key in given:
            return given[key]
    return given.get(None)


def differences(
    replay_context: ReplayContext,
    expected: State,
    findings: Iterable[Finding],
    types: Types,
    tolerances: Tolerances,
) -> list[RegionDifference]:
    """Returns the differences between present memory and an epoch, from the findings of a
    comparison.

    Raises FormatError if contents are damaged.
    """
    out = []
    for finding in findings:
        if finding.same:
            continue
        row = int(replay_context.process.regions.rows(np.array([finding.region]))[0])
        records = expected.records[row]
        size = int(replay_context.process.regions.size[row])
        here = Memory(
            replay_context.process, size, replay_context.device, replay_context.addresses.now(row)
        )
        there = Contents(replay_context.process, records)
        blocks = finding.differ.tolist()
        found = look(row, expected.epoch, there, here, blocks, types, tolerances)
        found.new = finding.new
        out.append(found)
    return out


def unknown(process: Process, row: int, blocks: list[int]) -> RegionDifference:
    """Returns a difference of which only the blocks are known."""
    regions = process.regions
    kind = layout.REGION_KINDS[int(regions.birth["kind"][row])]
    label = process.strings.get(int(regions.label[row]))
    number, size = int(regions.id[row]), int(regions.size[row])
    return RegionDifference(number, kind, label, size, blocks[:LISTED_BLOCKS], len(blocks))


def look(
    row: int,
    epoch: int,
    expected: Contents,
    actual: Contents,
    blocks: list[int],
    types: Types,
    tolerances: Tolerances,
) -> RegionDifference:
    """Compares the contents of blocks of a region whose digests differ. Names are those of an
    epoch.

    Raises FormatError if contents are damaged.
    """
    process = expected.process
    out = unknown(process, row, blocks)
    number = out.region
    out.partial = len(blocks) > LOOKED_AT
    blocks = blocks[:LOOKED_AT]
    tally = Tally(process, number, epoch)
    out.bytes = compare_bytes(expected, actual, blocks, tally.add)
    one, tolerance = of_region(types, process, row), of_region(tolerances, process, row)
    if one is not None:
        out.values = _values(one, tolerance, expected, actual, blocks)
        out.tolerated = out.values.same and not out.partial
    found, parts, sides = tally.result(), tally.parts(), (expected, actual, blocks)
    out.tensors, out.tensor_count = found[:LISTED_TENSORS], len(found)
    all_values = [_values_of_part(type_of(part) or one, tolerance, *sides, part) for part in parts]
    out.tensor_values = all_values[:LISTED_TENSORS]
    if one is None and out.bytes is not None and not out.partial:
        counted = sum(difference.differing for difference in found) == out.bytes.count
        pairs = zip(parts, all_values, strict=True)
        within = all(p.tolerance and v is not None and v.same for p, v in pairs)
        out.tolerated = counted and within
    return out


def _values(
    one: Type,
    tolerance: Tolerance | None,
    expected: Contents,
    actual: Contents,
    blocks: Iterable[int],
) -> ValueDifference:
    comparison = Comparison(one, tolerance)
    done = 0
    for block in blocks:
        comparison.skip((block - done) * BLOCK_SIZE)
        comparison.add(actual.block(block), expected.block(block))
        done = block + 1
    comparison.skip(max(0, expected.size - done * BLOCK_SIZE))
    return comparison.result()


def _values_of_part(
    one: Type | None,
    tolerance: Tolerance | None,
    expected: Contents,
    actual: Contents,
    blocks: Iterable[int],
    part: Part,
) -> ValueDifference | None:
    """Compares the values of a tensor, within the tolerance that the program declared for it, else
    within the given one. Returns None without a type, or if its items cross blocks.
    """
    if one is None:
        return None
    if part.tolerance is not None:
        tolerance = Tolerance.parse(part.tolerance)
    if part.offset % one.itemsize or part.start % one.itemsize:
        return None
    comparison = Comparison(one, tolerance)
    done, end = part.offset, part.offset + part.bytes
    for block in blocks:
        at = block * BLOCK_SIZE
        begin, stop = max(at, part.offset), min(at + BLOCK_SIZE, end)
        if begin < stop:
            comparison.skip(begin - done)
            pieces = (side.block(block)[begin - at : stop - at] for side in (actual, expected))
            comparison.add(*pieces)
            done = stop
    comparison.skip(end - done)
    return comparison.result()
