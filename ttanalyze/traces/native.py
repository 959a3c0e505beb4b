"""Traces of a run as records with CUTracer's members, for all that reads traces.

A launch follows the other, each after a record of its kernel. On the simulator `opcode_id` and `pc`
are the line of the PTX text.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ttanalyze.code import demangle
from ttanalyze.disassembly.decode import parsed
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout, open_run
from ttanalyze.format.instruction_traces import KIND, ROW, TraceRecords
from ttanalyze.format.kernel_checksums import Checksums
from ttanalyze.format.layout import Array
from ttanalyze.format.modules import function as find_function
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.records.members import Place
from ttanalyze.traces.descriptors import transfer
from ttanalyze.traces.instructions import Instructions, instructions_of
from ttanalyze.traces.reader import METADATA, Kernel, Record, Trace

TYPES = {
    "opcode": "opcode_only",
    "registers": "reg_trace",
    "addresses": "mem_addr_trace",
    "values": "mem_value_trace",
    "tma": "tma_trace",
}
TYPE_NAMES = {KIND[name]: told for name, told in TYPES.items()}
SPACES = {"global": 1, "shared": 4, "local": 5}  # 0: another one
BATCH = 4096  # records
HEADS = {"opcode_id": "instruction", "active_mask": "mask", "clock": "clock"}
NOTHING = TraceRecords(
    np.empty(0, layout.TRACE_RECORD), np.empty(0, "i8"), np.empty(0, "u8"), np.empty(0, "i8"), 0
)
LANES = 32


class RecordLines:
    """Takes the place of the lines of a file. A record has the line that an export gives it."""

    text = False

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.at = self.read = 0
        self.notes: dict[str, None] = {}

    def error(self, number: int, reason: str) -> Error:
        return FormatError(self.path, f"record {number}", reason)

    @property
    def note(self) -> str | None:
        """What a user must know after the end. Else None."""
        return "; ".join(self.notes) or None


class Batch(NamedTuple):
    """Records of a launch. first: the number of the first one in the launch. line: its line."""

    kernel: Kernel
    launch: _Launch
    records: TraceRecords
    first: int
    line: int

    def numbers(self, column: str) -> Array | None:
        """Returns a column of whole numbers, None if it is not one that every record has."""
        heads, launch = self.records.heads, self.launch
        count = np.arange(len(heads))
        if column.startswith("cta_"):
            return np.asarray(heads[f"block_{column[-1]}"])
        if column == "warp":
            return launch.warps(heads)
        if column == "pc":
            return heads["instruction"].astype("i8") * launch.scale
        if column in ("opcode_id", "active_mask", "clock"):
            return np.asarray(heads[HEADS[column]])
        if column in ("index", "trace_index"):
            return count + self.first
        if column == "line":
            return count + self.line
        same = {
            "process": self.kernel.process,
            "launch": launch.index,
            "grid_launch_id": launch.index,
            "timestamp": launch.time,
            "context": launch.context,
        }
        return np.full(len(count), same[column]) if column in same else None

    def alike(self) -> tuple[Array, list[Record]]:
        """Returns the number of each record's group, and one record of each group. Records of a
        group have the same kind, instruction and size, and so the same members but for payloads.
        """
        heads = self.records.heads
        keys = heads["instruction"].astype("u8") << np.uint64(32) | heads["tag"]
        _, first, groups = np.unique(keys, return_index=True, return_inverse=True)
        members = self.launch.members(self.records.take(first), 0)
        place = Place(self.launch.lines, self.line)
        return groups, [Record(place, one, self.kernel) for one in members]

    def payload(self, column: str, groups: Array, alike: list[Record]) -> Array:
        """Returns `addrs`, `values`, `regs` or `uregs`: an array for each record that has them.

        groups, alike: those of `alike`.
        """
        out = np.empty(len(self.records), "object")
        have = np.array([column in one.members for one in alike], bool)
        rows = np.flatnonzero(have[groups])
        some = self.records.take(rows)
        if column == "addrs":
            found = some.addresses()
        elif column == "values":
            found = some.values().transpose(0, 2, 1)
        else:
            found = some.registers() if column == "regs" else some.uniform_registers()
        sizes = some.words if column == "values" else None
        counts = [len(one.members.get(column, ())) for one in alike]
        for i, (row, group) in enumerate(zip(rows.tolist(), groups[rows].tolist(), strict=True)):
            out[row] = found[i, : counts[group]] if sizes is None else found[i, :, : sizes[i]]
        return out


class RunTrace:
    """The trace of a run. It is read like a Trace.

    Args:
        run: The run.
        launch: The `seq` of the only wanted launch. Default: all traced launches.

    Raises:
        Error: No such launch was traced.
    """

    def __init__(self, run: Run, launch: int | None = None) -> None:
        self.run = run
        self._wanted = [
            (process, index)
            for process in run.processes
            for index, one in enumerate(process.traced)
            if not one["refused"] and launch in (None, int(one["seq"]))
        ]
        if not self._wanted:
            what = "traced launches" if launch is None else f"traced launch {launch}"
            raise Error(f"{run.path}: no {what}: see query RUN --table traced")
        size = sum(process.instruction_trace.size for process in run.processes)
        self.lines = RecordLines(run.path, size)

    def records(self) -> Iterator[Record | Kernel]:
        """Yields all records. Raises Error for one that is wrong."""
        for batch in self.batches():
            if not batch.first:
                yield batch.kernel
            for begin in range(0, len(batch.records), BATCH):
                some = batch.records.take(np.arange(begin, min(begin + BATCH, len(batch.records))))
                made = batch.launch.members(some, batch.first + begin)
                for number, members in enumerate(made, batch.line + begin):
                    yield Record(Place(self.lines, number), members, batch.kernel)
            self.lines.at = self.lines.read = max(self.lines.at, batch.records.begin)

    def batches(self) -> Iterator[Batch]:
        """Yields the records of each launch, chunk by chunk: of one without records none."""
        line, sums = 0, Checksums()
        for process, index in self._wanted:
            launch = _Launch(self.run, process, index, sums, self.lines)
            line += 1
            kernel = Kernel(Place(self.lines, line), launch.metadata(), process.index)
            line += 1
            count, given = 0, False
            for records in process.trace_records(index, TYPES):
                yield Batch(kernel, launch, records, count, line)
                line, count, given = line + len(records), count + len(records), True
            if not given:
                yield Batch(kernel, launch, NOTHING, 0, line)
            line -= 1

    def whole_records(self) -> Iterator[Record | Kernel]:
        """Yields all records, of launches whose kinds have some.

        Raises:
            Error: No launch has such a kind.
        """
        of_records = sum(1 << number for number in TYPE_NAMES)
        self._wanted = [
            (process, index)
            for process, index in self._wanted
            if int(process.traced[index]["kinds"]) & of_records
        ]
        if not self._wanted:
            what = "counts and heartbeats have no records: see the tables trace-counts and hangs"
            raise Error(f"{self.run.path}: {what}")
        return self.records()


AnyTrace = Trace | RunTrace


def open_trace(path: str | os.PathLike[str]) -> AnyTrace:
    """Returns the trace in a file or a run directory."""
    return RunTrace(open_run(path)) if os.path.isdir(path) else Trace(path)


class _Launch:
    """A traced launch, as its records need it."""

    def __init__(
        self, run: Run, process: Process, index: int, sums: Checksums, lines: RecordLines
    ) -> None:
        self.index, self._process, self.lines = index, process, lines
        self._traced = process.traced[index]
        self._number = int(self._traced["function"])
        self._name = process.kernel(self._number) or f"function {self._number}"
        self._checksum = sums.get(process, self._number)
        seq = int(self._traced["seq"])
        found = process.events_between(seq - 1, seq)
        self._event = found[-1] if len(found) else None
        self.context = 0 if self._event is None else int(self._event["context"])
        self.time = 0 if self._event is None else int(self._event["time_ns"])
        try:
            self._table = _table(run, process, self._number)
        except Error as e:
            self._table = Instructions(self._name, False, {})
            lines.notes[str(e)] = None
        if self._table.note:
            lines.notes[self._table.note] = None
        self.scale = 1 if self._table.ptx else 16

    def metadata(self) -> dict[str, Any]:
        """Returns the record of the kernel."""
        known = find_function(self._process, self._number)
        return {
            "type": METADATA,
            "mangled_name": self._name,
            "unmangled_name": demangle.demangle([self._name])[0],
            "kernel_checksum": self._checksum or "unknown",
            "func_addr": "0x0",
            "nregs": 0 if known is None else int(known["registers"]),
            "shmem_static": 0 if known is None else int(known["shared"]),
            "grid": self._traced["grid"].tolist(),
            "block": self._traced["block"].tolist(),
            "shmem_dynamic": self._shared(),
            "instructions": {
                str(one.number): {
                    "sass": f"{one.text} ;",
                    **({"binary": one.binary} if one.binary else {}),
                    **({} if self._table.ptx else {"regs": _indices(one.recorded)}),
                    **({} if self._table.ptx else {"uregs": _indices(one.uniform)}),
                }
                for one in self._table.by_number.values()
            },
        }

    def _shared(self) -> int:
        """Returns the bytes of dynamic shared memory of a block, 0 if they are unknown."""
        if self._event is None:
            return 0
        node = self._process.traced_nodes[self.index]
        if node == layout.NO_ID:
            return int(self._event["shared"])
        graph, seq = int(self._event["id"]), int(self._event["seq"])
        return int(self._process.graphs.nodes(graph, seq)[node]["shared"])

    def members(self, records: TraceRecords, first: int) -> Iterator[dict[str, Any]]:
        """Yields the members of records. first: the number of the first one in the launch."""
        payloads = {
            KIND[name]: make(self, records.of_kind(name))
            for name, make in PAYLOADS.items()
            if (records.kinds == KIND[name]).any()
        }
        heads = records.heads
        blocks = [heads[f"block_{axis}"].tolist() for axis in "xyz"]
        columns = (heads["instruction"], heads["mask"], heads["clock"], self.warps(heads))
        rows = zip(records.kinds.tolist(), *(c.tolist() for c in columns), *blocks, strict=True)
        for i, (kind, instruction, mask, clock, warp, x, y, z) in enumerate(rows):
            members = {
                "type": TYPE_NAMES[kind],
                "ctx": hex(self.context),
                "trace_index": first + i,
                "timestamp": self.time,
                "grid_launch_id": self.index,
                "cta": [x, y, z],
                "warp": warp,
                "opcode_id": instruction,
                "pc": hex(instruction * self.scale),
                "active_mask": mask,
            }
            if clock:
                members["clock"] = clock
            if kind in payloads:
                members |= next(payloads[kind])
            yield members

    def warps(self, heads: Array) -> Array:
        """Returns the number of each warp in the launch."""
        grid, block = self._traced["grid"].astype("i8"), self._traced["block"].astype("i8")
        x, y, z = (heads[f"block_{axis}"].astype("i8") for axis in "xyz")
        linear = x + grid[0] * (y + grid[1] * z)
        return np.asarray(linear * -(-int(block.prod()) // LANES) + heads["warp"])

    def _registers(self, records: TraceRecords) -> Iterator[dict[str, Any]]:
        general, uniform = records.registers().tolist(), records.uniform_registers().tolist()
        numbers = records.heads["instruction"].tolist()
        for number, size, rows, words in zip(
            numbers, records.sizes.tolist(), general, uniform, strict=True
        ):
            one = self._table.by_number.get(number)
            found: dict[str, Any] = {"regs": rows[: size // ROW]}
            if one and not self._table.ptx and not size and (one.recorded or one.uniform):
                said = f"the registers of {one.mnemonic} are unknown to the code that recorded"
                self.lines.notes[f"{self._name}: {said}, so it has only lanes"] = None
            if one and not self._table.ptx and len(one.recorded) == size // ROW:
                found["regs_indices"] = _indices(one.recorded)
            if size % ROW:
                named = one is not None and (len(one.uniform) + 1) // 2 == size % ROW
                count = len(one.uniform) if one and named else 2 * (size % ROW)
                found["uregs"] = words[:count]
                if one and named:
                    found["uregs_indices"] = _indices(one.uniform)
            yield found

    def _addresses(self, records: TraceRecords) -> Iterator[dict[str, Any]]:
        return ({"addrs": row} for row in records.addresses().tolist())

    def _values(self, records: TraceRecords) -> Iterator[dict[str, Any]]:
        lanes = records.values().transpose(0, 2, 1).tolist()
        rows = zip(
            records.heads["instruction"].tolist(),
            records.words.tolist(),
            records.addresses().tolist(),
            lanes,
            strict=True,
        )
        for number, words, at, values in rows:
            one = self._table.by_number.get(number)
            found: dict[str, Any] = {"mem_space": SPACES.get((one and one.space) or "", 0)}
            if one and one.access:
                found |= {"ipoint": "B" if one.access == "store" else "A"}
                found |= {"is_load": one.access != "store"}
            found["access_size"] = one.size if one and one.size else 4 * words
            yield found | {"addrs": at, "values": [lane[:words] for lane in values]}

    def _tma(self, records: TraceRecords) -> Iterator[dict[str, Any]]:
        known = self._process.instruction_trace.tensor_maps
        copies, maps = records.tma().tolist(), records.tensor_maps()
        numbers = records.heads["instruction"].tolist()
        for number, copy, one in zip(numbers, copies, maps, strict=True):
            descriptor, barrier, coordinates, blocks = copy
            found: dict[str, Any] = {"desc_addr": hex(descriptor), "barrier": hex(barrier)}
            found |= {"coords": coordinates.tolist(), "multicast_cta_mask": blocks}
            if one.any():
                found["desc_raw"] = one.tolist()
            if one.tobytes() in known:
                instruction = self._table.by_number.get(number)
                text = parsed(instruction.text if instruction else "")
                made = known[one.tobytes()]
                found["tma_transfer_info"] = transfer(made, text, found["coords"], blocks)
            yield found


PAYLOADS = {
    "registers": _Launch._registers,
    "addresses": _Launch._addresses,
    "values": _Launch._values,
    "tma": _Launch._tma,
}


def _indices(names: tuple[str, ...]) -> list[int]:
    return [int(name.lstrip("UR")) for name in names]


@functools.lru_cache(256)
def _table(run: Run, process: Process, function: int) -> Instructions:
    return instructions_of(run, process, function)
