"""Process: the files of one recorded process, opened and checked when they are used.

Invariant: each array that a method returns has passed every check that docs/format.md asks of a
reader.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.errors import Error, MissingFileError, system_errors
from ttanalyze.format import callstacks, collectives, layout, replayable, statuses
from ttanalyze.format.activities import Activities
from ttanalyze.format.annotations import Annotations
from ttanalyze.format.captures import Captures
from ttanalyze.format.data import DataReader
from ttanalyze.format.epoch_coverage import EpochCoverage
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.events import Events
from ttanalyze.format.files import (
    DATA_KIND,
    Folder,
    RecordFile,
    begun,
    check_values,
    read_checked,
    require,
)
from ttanalyze.format.graphs import Graphs
from ttanalyze.format.instruction_traces import InstructionTrace, TraceRecords
from ttanalyze.format.labels import Labels
from ttanalyze.format.layout import Array
from ttanalyze.format.node_timestamps import NodeTimes
from ttanalyze.format.params import Params
from ttanalyze.format.process_info import endings
from ttanalyze.format.spans import Spans, data_name
from ttanalyze.format.strings import Strings
from ttanalyze.format.unread import Unread, find_unread
from ttanalyze.util.cluster import where
from ttanalyze.util.remote import location, names_in, place

CONTROL = KIND["control"]
REOPENED = 64  # processes of which a worker keeps the files open


class Process(Events, Spans):
    """The folder pN of a run.

    index: N. info: its process.json, {} if it does not exist. epochs: the committed tt_epoch
    records by number.
    """

    epochs: Array
    strings: Strings

    def __init__(self, folder: Path, index: int) -> None:
        """Reads nothing: the first use of what files say does."""
        self.path = folder
        self.index = index
        self._opened = False
        self._opening = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        """Opens the process at the first use of a member that `open` sets."""
        if "_opening" in self.__dict__ and not name.startswith("__"):
            with self._opening:
                if not self._opened:
                    self.open()
                if name in self.__dict__:
                    return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path alone: whoever gets it opens the files there."""
        return reopened, (location(self.path), self.index)

    def open(self) -> None:
        """Reads process.json, the headers and epochs.bin."""
        with self._opening:
            self._opened = True  # so that a member that is missing now is an error
            try:
                self._read()
            except BaseException:
                self._opened = False
                raise

    def _read(self) -> None:
        super().__init__(self.path)
        # Before the files that epochs refer to: in a run that goes on, those may only be ahead.
        self._folder = Folder(self.path, endings(self.info))
        self._epochs_file = self._folder.open("epochs.bin")
        file = self._epochs_file
        self.epochs = read_checked(file) if file else np.empty(0, layout.EPOCH)
        self._files = {
            name: self._folder.open(name)
            for name in (
                *("events.bin", "params.bin", "labels.bin"),
                *("regions.bin", "digests.bin", "blocks.bin"),
            )
        }
        for name in (
            *("frames.bin", "functions.bin", "modules.bin", "timeline.bin"),
            *("graphs.bin", "graphdata.bin", "launches.bin"),
            *("traced.bin", "trace.bin"),
        ):
            self._folder.open(name)
        self.strings = Strings(self._folder)
        self._params = Params(self.path, self._files["params.bin"])
        self.segments = self._find_segments()
        if file is not None:
            self._check_epochs(file, self.epochs)
        self._digests_good = np.zeros(len(self.epochs), bool)
        self._blocks_good = np.zeros(len(self.epochs), bool)

    @property
    def name(self) -> str:
        """What people call the process: "rank 3", or "process 0" if it has no rank."""
        return f"process {self.index}" if self.rank is None else f"rank {self.rank.rank}"

    # ---- what is read on opening ----

    def _find_segments(self) -> dict[int, RecordFile]:
        """Returns the data files by number, without unused ones."""
        found = {}
        needed = set(layout.distinct(self.epochs["segment"]).tolist())
        with system_errors(self.path):
            entries = names_in(self.path)
        for name in entries:
            match = re.fullmatch(r"data-(\d{5,10})\.bin", name)
            if match:
                index = int(match[1])
                path = self.path / name
                if index not in needed and not begun(path, path):
                    continue
                with contextlib.suppress(MissingFileError):  # --retain removes them meanwhile
                    found[index] = RecordFile(path, *DATA_KIND, index)
        return dict(sorted(found.items()))

    def _check_epochs(self, file: RecordFile, epochs: Array) -> None:
        in_order = epochs["number"] == np.arange(len(epochs), dtype="u4")
        require(file, in_order, "number", "epoch numbers are consecutive from 0")
        check_values(file, epochs, "trigger", list(layout.enum("trigger").values()))
        unknown = ~np.uint32(sum(layout.EPOCH_FLAGS.values()))
        require(file, epochs["flags"] & unknown == 0, "flags", "unknown flags")
        for kind in ("digests", "blocks"):
            self._check_spans(file, epochs, kind)

    @functools.cached_property
    def labels(self) -> Labels:
        """The names of parts of regions."""
        return Labels(self._files["labels.bin"], self.regions, self.strings)

    # ---- the rest ----

    def data(self, segment: int) -> DataReader:
        """Opens a data file; the caller closes it. Raises Error if it was removed."""
        if segment == layout.NO_SEGMENT:
            raise Error(f"{self.path}: contents were not stored: {self.why_digests}")
        path = self.path / data_name(segment)
        try:
            if segment in self.segments:
                return DataReader(path, self.segments[segment].encoding)
        except MissingFileError:
            del self.segments[segment]
        raise Error(f"{path}: removed, its contents are gone")

    @property
    def oldest_segment(self) -> int:
        """The number of the first data file that still exists, beyond all epochs if there is
        none.
        """
        return min(self.segments, default=1 << 32)

    @property
    def digests_alone(self) -> Array:
        """Which epochs have block digests but no contents, by an option."""
        return np.asarray(self.epochs["segment"] == layout.NO_SEGMENT)

    @property
    def removed(self) -> Array:
        """Which epochs have lost their data file."""
        return (self.epochs["segment"] < self.oldest_segment) & ~self.digests_alone

    @functools.cached_property
    def annotations(self) -> Annotations:
        """The NVTX annotations. Reads all of events.bin once, unless the process counted none."""
        counted = self.info.get("counters", {}).get("annotations")
        nothing = counted == 0 and self.status != "running"
        return Annotations(() if nothing else self.event_pieces(), self.strings)

    @functools.cached_property
    def collectives(self) -> Array:
        """The calls of NCCL that communicate, as records of `collectives.COLLECTIVE`."""
        return collectives.read(self)

    @functools.cached_property
    def controls(self) -> tuple[Array, Array]:
        """The seqs at which tt_control changed settings, ascending, and the string of the settings
        from then on.

        Reads all of events.bin once.
        """
        found = [records[records["kind"] == CONTROL] for records in self.event_pieces()]
        records = np.sort(np.concatenate([np.empty(0, layout.EVENT), *found]), order="seq")
        return records["seq"], records["id"]

    @functools.cached_property
    def activities(self) -> Activities:
        """The activities of the GPU and the waits of the host."""
        return Activities(self._folder)

    @functools.cached_property
    def coverage(self) -> EpochCoverage:
        """The calls and the memory that each epoch has seen."""
        return EpochCoverage(self)

    @functools.cached_property
    def unread(self) -> Unread:
        """The regions that each epoch left out."""
        of = self.regions
        count = len(self.epochs)
        return find_unread(
            self.epochs["flags"],
            self.epochs["context"],
            (of.id, of.born, of.died, of.birth["context"]),
            lambda: (self.digests(0, count)["region"], self.epoch_of("digests", 0, count)),
        )

    @functools.cached_property
    def captures(self) -> Captures:
        """The times of captures, and the calls that waited for them."""
        return Captures(self)

    @functools.cached_property
    def graphs(self) -> Graphs:
        """The executable graphs."""
        return Graphs(self._folder)

    @functools.cached_property
    def node_times(self) -> NodeTimes:
        """The times of graph nodes."""
        return NodeTimes(self)

    @functools.cached_property
    def functions(self) -> Array:
        """tt_function records by id."""
        file = self._folder.open("functions.bin")
        if file is None:
            return np.empty(0, layout.FUNCTION)
        records = read_checked(file)
        order = np.argsort(records["id"], kind="stable")
        twice = records["id"][order][1:] == records["id"][order][:-1]
        if twice.any():
            again = int(order[1:][twice].min())
            raise file.error(again, "id", f"a second record with id {int(records['id'][again])}")
        return records[order]

    @functools.cached_property
    def modules(self) -> Array:
        """tt_module records by id."""
        file = self._folder.open("modules.bin")
        if file is None:
            return np.empty(0, layout.MODULE)
        return replayable.last_of_each(file, read_checked(file))

    @functools.cached_property
    def launches(self) -> Array:
        """tt_launch records by seq: the replayable launches."""
        return replayable.read(self._folder)

    @functools.cached_property
    def instruction_trace(self) -> InstructionTrace:
        """The launches whose instructions were to be traced, and the records of these."""
        return InstructionTrace(self._folder, self.status == statuses.COMPLETE)

    @property
    def traced(self) -> Array:
        """tt_traced records: the launches whose instructions were to be traced."""
        return self.instruction_trace.launches

    @property
    def traced_nodes(self) -> Array:
        """The node of a graph that each record of `traced` is of, layout.NO_ID for none."""
        return np.where(self.traced["refused"] == 0, self.traced["text"], np.uint32(layout.NO_ID))

    @functools.cached_property
    def traced_clusters(self) -> Array:
        """The blocks of a cluster in x, y and z for each record of `traced`, 0 without one."""
        out = np.zeros((len(self.traced), 3), "u4")
        if not len(out):
            return out
        events = self.event_columns("seq", "cluster", "id")
        demanded = dict(zip(self.functions["id"].tolist(), self.functions["cluster"], strict=True))
        places = np.searchsorted(events["seq"], self.traced["seq"])
        for index, (at, node) in enumerate(zip(places, self.traced_nodes, strict=True)):
            seq = int(self.traced["seq"][index])
            if at == len(events["seq"]) or events["seq"][at] != seq:
                continue
            out[index] = events["cluster"][at]
            if node != layout.NO_ID:
                out[index] = self.graphs.nodes(int(events["id"][at]), seq)[node]["cluster"]
            if not out[index].any() and (function := self.traced["function"][index]) in demanded:
                out[index] = demanded[function]
        return out

    def trace_records(
        self,
        launch: int | None = None,
        kinds: Collection[str] = (),
        instructions: Collection[int] | None = None,
    ) -> Iterator[TraceRecords]:
        """Yields records of instructions, a part of the trace at a time, in its order.

        Args:
            launch: The index of the launch in `traced`. Default: all launches.
            kinds: Kinds of records, such as `addresses`. Default: all kinds.
            instructions: The numbers of instructions. Default: all instructions.

        Raises:
            FormatError: A file does not follow the format.
        """
        yield from self.instruction_trace.records(launch, kinds, instructions)

    @functools.cached_property
    def kept(self) -> replayable.ParamRecords:
        """The settings of replayable launches and of loaded modules."""
        return replayable.ParamRecords(self._params)

    @functools.cached_property
    def frames(self) -> Array:
        """tt_frame records of complete stacks, by stack and depth."""
        return callstacks.read(self._folder)

    def stack(self, number: int) -> list[callstacks.Frame]:
        """Returns function, file and line of each frame of a call stack, the innermost first.

        It is [] if the stack does not exist. Inlined functions have frames of their own, which say
        so. The function of a native frame may be an offset in its object file, with that file and
        line 0.
        """
        return [frame for _, frame in self.stack_frames(number)]

    def stack_frames(self, number: int) -> list[tuple[int, callstacks.Frame]]:
        """Returns the frames of `stack`, each with its kind."""
        first, last = np.searchsorted(self.frames["stack"], [number, number + 1])
        return [
            (int(record["kind"]), frame)
            for record in self.frames[first:last]
            for frame in self._frames_of(record)
        ]

    def _frames_of(self, record: Any) -> list[callstacks.Frame]:
        if record["kind"] == callstacks.NATIVE:
            return self._native[int(record["file"]), int(record["address"])]
        function, file = (self.strings.get(int(record[name])) for name in ("function", "file"))
        return [(function or "?", file or "?", int(record["line"]))]

    @functools.cached_property
    def _native(self) -> dict[tuple[int, int], list[callstacks.Frame]]:
        return callstacks.native(self.path, self.frames, self.strings)

    def call(self, index: int) -> str | None:
        """Returns the name of a driver call by its index in records, None if there was no call."""
        calls: list[str] = self.info.get("calls", [])
        if index < len(calls):
            return calls[index]
        return None if index in (layout.NO_CALL, layout.NO_ID) else f"call {index}"

    def kernel(self, function: int) -> str | None:
        """Returns the mangled name of a kernel by the id of its function, None for NO_ID.

        In a running process the record of the function may follow that of its launch.
        """
        if function == layout.NO_ID:
            return None
        at = int(np.searchsorted(self.functions["id"], function))
        if at == len(self.functions) or self.functions["id"][at] != function:
            return f"function {function}"
        return self.strings.get(int(self.functions["name"][at]))

    def params(self, event: Any) -> bytes:
        """Returns the parameters of a launch (a tt_event) as bytes, b"" if they were not recorded.

        Raises FormatError if params.bin does not have them.
        """
        what = f"the parameters of launch {int(event['seq'])}"
        return self._params.piece(int(event["params"]), int(event["params_size"]), what)

    def check_files(self) -> None:
        """Raises FormatError if a record file is not as the process said at its end. Reads all of
        each.
        """
        self._folder.check()

    @property
    def torn(self) -> bool:
        """Whether files end in records that no epoch committed: the process was killed or
        still runs.
        """
        if self._epochs_file is not None and self._epochs_file.torn:
            return True
        for kind in ("digests", "blocks"):
            file = self._files[f"{kind}.bin"]
            _, committed = self.span_bounds(kind, 0, len(self.epochs))
            if file is not None and (file.torn or file.count > committed):
                return True
        return False


def reopened(path: str, index: int) -> Process:
    """Returns a process that another one pickled. Raises Error if its folder is not seen here."""
    folder = place(path)
    if not folder.is_dir():
        todo = "give the workers the run at the same path, or at a URL"
        raise Error(f"{path}: not there on {where() or 'this machine'}; {todo}")
    ends = (folder / name for name in ("process.json", "epochs.bin"))
    return _reopened(path, index, tuple(_stamp(file) for file in ends))


def _stamp(file: Path) -> tuple[int, int]:
    with contextlib.suppress(FileNotFoundError):
        found = file.stat()
        return found.st_size, found.st_mtime_ns
    return 0, 0


@functools.lru_cache(maxsize=REOPENED)
def _reopened(path: str, index: int, _: object) -> Process:
    return Process(place(path), index)
