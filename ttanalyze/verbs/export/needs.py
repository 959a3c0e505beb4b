"""Collects what a recorded launch needs to run again. Uses the run only, no driver."""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import contents, layout, modules
from ttanalyze.format.contents import DataFiles
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.dependency_graph import REGION
from ttanalyze.gpu.rebuild.live_regions import LiveRegions
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.output import text
from ttanalyze.verbs.export.prepare import Prepared
from ttanalyze.verbs.replay import Plan
from ttanalyze.verbs.replay.choose import choose

POINTER = 8  # bytes
CLUSTER, COOPERATIVE = 4, 2  # CU_LAUNCH_ATTRIBUTE_…
MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14  # CU_FUNC_ATTRIBUTE_…
PORTABLE_CLUSTER = 8  # blocks
LIMITS = (0, 1, 2)  # CU_LIMIT_… that say what a kernel can do, not how fast: stack, printf, malloc
READ_ONLY = (0, 1, 2, 3, 4, 5, 6, 7, 10)  # CU_FUNC_ATTRIBUTE_… that can't be set
SETTINGS = layout.names("setting_kind", "TT_SETTING_")
# CU_LAUNCH_ATTRIBUTE_… that name other objects, or nothing.
ELSEWHERE = (0, 7, 12, 13)
SETTING = {name: number for number, name in enumerate(SETTINGS) if name}
MODULE_KINDS = ("image", "ptx", "cubin", "fatbin")  # by tt_module.kind


@dataclass(frozen=True)
class Memory:
    """A region that the launch needs.

    Attributes:
        region: The id of the region.
        name: Its name for people.
        address: The address of the first byte.
        size: The size in bytes.
        variable: The name of the variable in the module, None for an allocation.
        before, after: The tt_block records of the contents before and after the launch, None if no
            epoch has them.
        made: The contents right before the launch, if they differ from those of the epoch before.
        lucky: Whether the driver chose the address, which another process may not get.
    """

    region: int
    name: str
    address: int
    size: int
    variable: str | None
    before: Array | None
    after: Array | None
    made: Array | None
    lucky: bool


@dataclass(frozen=True)
class Needs:
    """What a launch needs to run again.

    Attributes:
        plan: The launch.
        image: The code.
        kind: "ptx", "cubin" or "fatbin".
        memory: The regions.
        pointers: Offsets in the parameters that hold the address of a variable, each with the index
            of its region in `memory`.
        attributes: Attributes of the launch: CUlaunchAttribute id and value.
        settings: Attributes of the function: number and value.
        limits: Limits of the context: number and value.
        jit: Options of the PTX compiler: CUjit_option and value.
        cache: The cache preference of the function.
    """

    plan: Plan
    image: bytes
    kind: str
    memory: list[Memory]
    pointers: list[tuple[int, int]]
    attributes: list[tuple[int, bytes]]
    settings: list[tuple[int, int]]
    limits: list[tuple[int, int]]
    jit: list[tuple[int, int]]
    cache: int

    @property
    def process(self) -> Process:
        return self.plan.process

    @property
    def launch(self) -> Launch:
        return self.plan.launch

    @property
    def size(self) -> int:
        """The size of the memory in bytes."""
        return sum(memory.size for memory in self.memory)


def find(
    process: Process, launch: int | None, kernel: str | None, everything: bool = False
) -> Needs:
    """Returns what a launch that can be exported needs. Memory that it changed is always included.

    Args:
        process: The process.
        launch: The sequence number of the launch. Default: the first that fits.
        kernel: A regular expression for the kernel name, mangled or demangled.
        everything: Whether to include all memory of the context, not only what can be reached from
            the parameters and the variables of the module, through addresses in memory.

    Raises:
        Error: No such launch can be exported, or something that it needs was not recorded.
    """
    return _Reader(choose(process, launch, kernel, _check_alone)).read(everything)


def _check_alone(of: Plan) -> None:
    """Raises Error if the input of a launch is the result of other launches after the epoch."""
    others = sum(isinstance(step.what, Launch) for step in of.prepare)
    if others:
        were = "launch was" if others == 1 else "launches were"
        raise Error(
            f"launch {of.seq} can't be exported: its input is unknown, because {others:,} other "
            f"{were} made between epoch {of.before} and it; record with --replayable"
        )


class _Reader:
    def __init__(self, of: Plan) -> None:
        self._plan = of
        self._process = of.process
        self._alive = LiveRegions(self._process, of.seq)
        self._birth = self._process.regions.birth
        event = self._process.events_between(of.seq - 1, of.seq)[0]
        self._context = int(event["context"])

    def read(self, everything: bool) -> Needs:
        of = self._plan
        module = modules.of_kernel(self._process, of.launch.function)
        image = modules.image_for(self._process, module, f"kernel {of.kernel}")
        number, kind = int(module["id"]), MODULE_KINDS[int(module["kind"])]
        rows = [row for row in self._alive.rows if self._captured(row)]
        before = self._records(of.before, rows)
        after = {} if of.after is None else self._records(of.after, rows)
        made = Prepared(of, before)
        wanted = {row for row in rows if self._is_here(row, number)}
        if not everything:
            changed = {row for row in wanted if made.changed(row, after.get(row))}
            wanted = self._reach(number, changed, made) & wanted
        memory: list[Memory] = []
        at: dict[int, int] = {}
        for row in sorted(wanted, key=lambda row: int(self._birth["base"][row])):
            at[row] = len(memory)
            made_of = made.arrays.get(row)
            memory.append(self._memory(row, before.get(row), after.get(row), made_of))
        return Needs(of, image, kind, memory, self._pointers(at), **self._settings(module))

    def _captured(self, row: int) -> bool:
        same_context = int(self._birth["context"][row]) == self._context
        return same_context and bool(self._process.regions.flags[row] & layout.CAPTURED)

    def _is_here(self, row: int, module: int) -> bool:
        """Returns whether a region is an allocation, or a variable of the launch's own module."""
        if self._birth["kind"][row] != REGION["global"]:
            return bool(self._birth["size"][row])
        return int(self._birth["module"][row]) == module

    def _records(self, epoch: int, rows: list[int]) -> dict[int, Array]:
        """Returns the block records of regions, by row, in an epoch."""
        found, _ = contents.snapshot_all(self._process, epoch)
        ids = self._process.regions.id
        return {row: found[int(ids[row])] for row in rows if int(ids[row]) in found}

    def _memory(
        self, row: int, before: Array | None, after: Array | None, made: Array | None
    ) -> Memory:
        birth = self._birth[row]
        number, label = int(birth["id"]), int(self._process.regions.label[row])
        name = self._process.strings.get(label)
        variable = name if birth["kind"] == REGION["global"] else None
        shown = f"region {number}" + (f" ({text.printable(name)})" if name else "")
        base, size = int(birth["base"]), int(birth["size"])
        lucky = birth["kind"] not in (REGION["arena"], REGION["global"])
        return Memory(number, shown, base, size, variable, before, after, made, bool(lucky))

    def _settings(self, module: Any) -> dict[str, Any]:
        """Returns the settings of the launch and of its module as far as they were recorded, else
        obvious ones.
        """
        param_records, records = self._process.kept, self._process.launches
        attributes, function = _plain(self._plan.launch)
        limits: list[tuple[int, int]] = []
        cache = 0
        at = int(np.searchsorted(records["seq"], self._plan.seq))
        if at < len(records) and records["seq"][at] == self._plan.seq:
            for one in param_records.attributes(records[at]):
                if int(one["id"]) not in ELSEWHERE:
                    attributes[int(one["id"])] = one["value"].tobytes()
            for one in param_records.settings(records[at]):
                what, number, value = int(one["what"]), int(one["number"]), _signed(one["value"])
                if what == SETTING["attribute"] and number not in READ_ONLY:
                    function[number] = value
                elif what == SETTING["limit"] and number in LIMITS:
                    limits.append((number, value))
                elif what == SETTING["cache"] and value:
                    cache = cache or value
        jit = [
            (int(one["number"]), _signed(one["value"]))
            for one in param_records.settings(module)
            if one["what"] == SETTING["jit"]
        ]
        return {
            "attributes": sorted(attributes.items()),
            "settings": sorted(function.items()),
            "limits": limits,
            "jit": jit,
            "cache": cache,
        }

    # ---- what can be reached ----

    def _reach(self, module: int, changed: set[int], made: Prepared) -> set[int]:
        """Returns the rows of regions that the kernel can reach."""
        wanted = {*changed, *self._found(self._plan.launch.params, POINTER // 2)}
        wanted |= {
            row
            for row in self._alive.rows
            if self._birth["kind"][row] == REGION["global"]
            and int(self._birth["module"][row]) == module
        }
        left = list(wanted)
        with DataFiles(self._process) as files:
            while left:
                for piece in made.pieces(left.pop(), files):
                    more = self._found(piece, POINTER) - wanted
                    wanted |= more
                    left += more
        return wanted

    def _found(self, data: bytes | memoryview, step: int) -> set[int]:
        """Returns the rows of regions that 8-byte words at multiples of step point to."""
        bases, ends, rows = self._spans
        out: set[int] = set()
        for start in range(0, POINTER, step):
            count = (len(data) - start) // POINTER
            if count < 1 or not len(rows):
                continue
            words = np.frombuffer(data, "<u8", count, start)
            words = words[(words >= bases[0]) & (words < ends.max())]
            at = np.searchsorted(bases, words, "right") - 1
            out.update(rows[at[words < ends[at]]].tolist())
        return out

    @functools.cached_property
    def _spans(self) -> tuple[Array, Array, Array]:
        """Bases, ends and rows of the regions, by address."""
        rows = np.array([row for row in self._alive.rows if self._birth["size"][row]], "i8")
        bases = self._birth["base"][rows]
        return bases, bases + self._birth["size"][rows], rows

    def _pointers(self, at: dict[int, int]) -> list[tuple[int, int]]:
        """Returns the parameters that point to variables. Raises Error if one points to memory that
        is not exported.
        """
        params, out = self._plan.launch.params, []
        for offset in range(0, len(params) - POINTER + 1, POINTER):
            row = self._alive.find(int.from_bytes(params[offset : offset + POINTER], "little"))
            if row is None:
                continue
            birth = self._birth[row]
            kind, number = layout.REGION_KINDS[int(birth["kind"])], int(birth["id"])
            if row not in at:
                what = {
                    "host": "host memory, whose contents are not recorded",
                    "host-registered": "host memory, whose contents are not recorded",
                    "global": "a variable of another module",
                }.get(kind, f"memory of context {int(birth['context'])}")
                raise Error(
                    f"launch {self._plan.seq} can't be exported: it has a pointer to {what} "
                    f"(region {number})"
                )
            if kind == "global":
                out.append((offset, at[row]))
        return out


def _signed(value: Any) -> int:
    return int(np.uint64(value).astype("i8"))


def _plain(launch: Launch) -> tuple[dict[int, bytes], dict[int, int]]:
    """Returns attributes of a launch and its function that its sizes need."""
    attributes, settings = {}, {}
    if any(launch.cluster):
        attributes[CLUSTER] = struct.pack("<3I", *launch.cluster)
    if launch.cooperative:
        attributes[COOPERATIVE] = struct.pack("<I", 1)
    if launch.shared:
        settings[MAX_DYNAMIC_SHARED] = launch.shared
    if math.prod(launch.cluster) > PORTABLE_CLUSTER:
        settings[NON_PORTABLE_CLUSTER] = 1
    return attributes, settings
