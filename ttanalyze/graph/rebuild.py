"""Recorded work as a graph that can be launched again, on memory as it was recorded.

Kernels come from the images that the run saved, memory from its epochs. Memory is where it was if
the addresses are free; where not, pointers that kernels were given are translated, and those that
lie in memory are not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze import text
from ttanalyze.errors import Error, system_error
from ttanalyze.graph.alive import Alive
from ttanalyze.graph.device import Device
from ttanalyze.graph.graph import Graph, GraphExec
from ttanalyze.graph.memory import Pinned
from ttanalyze.graph.module import Function, Module
from ttanalyze.graph.places import Finding, Places
from ttanalyze.graph.recorded import (
    REGION,
    Fill,
    Launch,
    Move,
    Rows,
    Span,
    Step,
    Upload,
    cut,
    span,
    summary,
)
from ttanalyze.graph.work import Copy, Kernel, Set, Work
from ttanalyze.model import Run, contents, layout
from ttanalyze.model.process import Process

POINTER = 8  # bytes
STAGED = 256  # what copies from the host begin at multiples of
SHOWN = 8  # regions in a note


@dataclass(frozen=True)
class Check:
    """What Rebuilt.check() found: each region of an epoch that the graph worked on."""

    epoch: int
    findings: list[Finding]

    @property
    def same(self) -> bool:
        """Whether all memory has the recorded digests."""
        return all(finding.same for finding in self.findings)

    @property
    def differences(self) -> list[Finding]:
        """The regions that have not."""
        return [finding for finding in self.findings if not finding.same]

    @property
    def regions(self) -> pd.DataFrame:
        """A row per region: region, label, size (bytes), same, digest, expected, blocks (that
        differ), first_block, new (allocated between the epochs: what nobody wrote is not known).
        """
        names = ("region", "label", "size", "same", "digest", "expected", "blocks", "new")
        columns: dict[str, Any] = {n: [getattr(f, n) for f in self.findings] for n in names}
        columns["first_block"] = pd.array([f.first_block for f in self.findings], "Int64")
        frame: pd.DataFrame = pd.DataFrame(columns)
        return frame

    def __str__(self) -> str:
        if self.same:
            return f"epoch {self.epoch}: {text.count(len(self.findings), 'region')} as recorded"
        lines = [f"epoch {self.epoch}: {len(self.differences)} of {len(self.findings)} differ"]
        for finding in self.differences:
            name = f" ({finding.label})" if finding.label else ""
            new = ", allocated meanwhile" if finding.new else ""
            blocks = text.count(finding.blocks, "block")
            lines.append(f"region {finding.region}{name}: {blocks} from {finding.first_block}{new}")
        return "\n".join(lines)


class Rebuilt(Graph):
    """The work between two epochs of a run. restore() puts memory as it was in the first, launch()
    does the work, check() compares memory with the last.

    span: what was recorded; notes: what to know of how it was rebuilt, a line each.
    """

    def __init__(self, graph: Graph, found: Span, places: Places) -> None:
        super().__init__(graph.device, graph.handle, graph.keeps)
        graph._destroy.detach()
        self.span = found
        self._places = places
        self._executable: GraphExec | None = None

    def __repr__(self) -> str:
        bounds = f"{self.span.first} to {self.span.last}"
        return f"<Graph of epochs {bounds}: {summary(self.span.steps)}>"

    @property
    def moved(self) -> list[int]:
        """Ids of the regions that are at other addresses than recorded: pointers to them that lie
        in memory lead nowhere.
        """
        return self._places.moved

    @property
    def assumed(self) -> list[Upload]:
        """Copies from the host of which it is not sure what they copied: they are taken to have
        copied what is there in the next epoch, but a kernel was given a pointer to it before.
        """
        whats = (step.what for step in self.span.steps)
        return [what for what in whats if isinstance(what, Upload) and what.doubt]

    @property
    def notes(self) -> list[str]:
        out = []
        if self.moved:
            some = ", ".join(map(str, self.moved[:SHOWN])) + (" …" * (len(self.moved) > SHOWN))
            out.append(
                f"{'regions' if len(self.moved) > 1 else 'region'} {some}: at other addresses "
                "than recorded, to which pointers that lie in memory do not lead"
            )
        for number in self._places.unknown:
            out.append(f"region {number}: no epoch up to {self.span.first} has it, it is zeros")
        out += [
            f"region {upload.region}: what the host copied there is taken from epoch "
            f"{upload.epoch}, though {upload.doubt}"
            for upload in self.assumed
        ]
        out += [f"{what}: left out" for what in self.span.left_out]
        return out

    def restore(self) -> None:
        """Puts memory as it was in the first epoch. Raises FormatError for damaged contents."""
        self._places.restore()

    def launch(self, stream: Any = None) -> None:
        """Does the work again, in a stream, by default one of the device's own; returns at once."""
        if self._executable is None:
            self._executable = self.instantiate()
        self._executable.launch(stream)

    def check(self, epoch: int | None = None) -> Check:
        """Waits, and compares memory with what it was in an epoch, by default the last. Raises
        DriverError where the work failed, Error where the epoch's contents are lost.
        """
        of = self.span.last if epoch is None else epoch
        return Check(of, self._places.compare(of))

    def where(self, region: int) -> int:
        """The address at which a region is now. Raises Error for one that is not here."""
        row = int(self.span.process.regions.rows(np.array([region]))[0])
        if row < 0 or row not in self.span.regions.tolist():
            raise Error(f"no region {region} between epochs {self.span.first} and {self.span.last}")
        base = int(self.span.process.regions.birth["base"][row])
        return self._places.translate(base, row)

    def close(self) -> None:
        if self._executable is not None:
            self._executable.close()
        super().close()


def rebuild(
    run: Run,
    epochs: tuple[int, int],
    process: int = 0,
    device: Device | None = None,
    order: str = "streams",
) -> Rebuilt:
    """The launches, copies and sets that a process submitted between two epochs, as a graph.

    order: "streams": as streams, events and waits of the host ordered them; "serial": one after the
    other, as they were submitted. What was copied from the host is taken from the next epoch. The
    run has to be recorded with --params. Raises Error for what can't be done again, and why.
    """
    of = run.process(process)
    first, last = epochs
    found = span(of, first, last, order)
    return _Builder(found, device or Device.default()).build()


def _shape(rows: Rows | None) -> tuple[int, int, int, int, int, int]:
    if rows is None:
        return 1, 1, 0, 0, 0, 0
    pitches = rows.dst_pitch, rows.src_pitch
    return rows.rows, rows.slices, *pitches, rows.dst_height, rows.src_height


def _padded(size: int) -> int:
    return -(-size // STAGED) * STAGED


class _Builder:
    def __init__(self, found: Span, device: Device) -> None:
        self._span = found
        self._process: Process = found.process
        self._device = device
        self._places = Places(device, found)
        self._rows = frozenset(found.regions.tolist())
        self._modules: dict[int, Module] = {}
        self._functions: dict[int, Function] = {}
        whats = (step.what for step in found.steps)
        size = sum(_padded(what.reach) for what in whats if isinstance(what, Upload))
        self._staging = Pinned(size, device) if size else None
        self._used = 0
        self._alive = Alive(self._process, cut(self._process, found.first) + 1)

    def build(self) -> Rebuilt:
        for step in self._span.steps:  # before anything is said of where variables are
            if isinstance(step.what, Launch):
                self._function(step.what.function)
        graph = Graph.new(self._device)
        made: list[Any] = []
        for step in self._span.steps:
            self._alive.advance(step.seq)
            made.append(self._add(graph, step, [made[other] for other in step.after]))
        graph._keeps += [self._places, self._staging, *self._modules.values()]
        return Rebuilt(graph, self._span, self._places)

    def _add(self, graph: Graph, step: Step, behind: list[Any]) -> Any:
        works = self._works(step.what)
        node = graph.append(works[0] if works else None, behind)
        for work in works[1:]:
            node = graph.append(work, [node])
        return node

    def _works(self, what: Launch | Move | Upload | Fill | None) -> list[Work]:
        if isinstance(what, Launch):
            return [self._kernel(what)]
        if isinstance(what, Move):
            to, source = self._address(what.dst), self._address(what.src)
            return [Copy(to, source, what.size, rows=_shape(what.rows))]
        if isinstance(what, Upload):
            to, source, rows = self._address(what.dst), self._staged(what), what.rows
            if rows is not None:  # which are staged as they lie at the destination
                rows = replace(rows, src_pitch=rows.dst_pitch, src_height=rows.dst_height)
            return [Copy(to, source, what.size, False, True, rows=_shape(rows))]
        if isinstance(what, Fill):
            to = self._address(what.dst)
            begins = (to + row * what.pitch for row in range(what.rows))
            return [Set(begin, what.size, what.value, what.item) for begin in begins]
        return []

    def _staged(self, upload: Upload) -> int:
        """Where in the host's memory what was copied from there is now."""
        end = upload.offset + upload.reach
        data = contents.read(self._process, upload.epoch, upload.region, upload.offset, end)
        at, self._used = self._used, self._used + _padded(upload.reach)
        assert self._staging is not None
        self._staging.array[at : at + len(data)] = data
        return self._staging.address + at

    def _kernel(self, launch: Launch) -> Kernel:
        function = self._function(launch.function)
        return Kernel(
            function,
            launch.grid,
            launch.block,
            launch.shared,
            self._translated(function, launch.params),
            launch.cluster,
            launch.cooperative,
            (function,),
        )

    def _translated(self, function: Function, params: bytes) -> bytes:
        """Parameters in which pointers lead to where things are now."""
        out = bytearray(params)
        whole = [(0, len(params))]
        for begin, size in whole if function.layout is None else function.layout:
            first = -(-begin // POINTER) * POINTER
            for at in range(first, begin + size - POINTER + 1, POINTER):
                word = int.from_bytes(out[at : at + POINTER], "little")
                out[at : at + POINTER] = self._pointer(function, word).to_bytes(POINTER, "little")
        return bytes(out)

    def _pointer(self, function: Function, word: int) -> int:
        row = self._alive.find(word)
        if row is None:
            return self._places.translate(word, None)
        birth = self._process.regions.birth[row]
        kind, number = layout.REGION_KINDS[int(birth["kind"])], int(birth["id"])
        if kind in ("host", "host-registered"):
            raise Error(
                f"{function.name} can't be done again: it is given a pointer to host memory "
                f"(region {number}), whose contents are not recorded"
            )
        if row not in self._rows:
            other = int(birth["context"])
            raise Error(
                f"{function.name} can't be done again: it is given a pointer to memory of context "
                f"{other} (region {number})"
            )
        return self._address(word)

    def _address(self, address: int) -> int:
        """Where something is now."""
        row = self._alive.find(address)
        if row is not None and self._process.regions.birth["kind"][row] == REGION["global"]:
            self._module(int(self._process.regions.birth["module"][row]), "a variable")
        return self._places.translate(address, row)

    # ---- code ----

    def _function(self, number: int) -> Function:
        if number not in self._functions:
            functions = self._process.functions
            record = functions[int(np.searchsorted(functions["id"], number))]
            name = self._process.kernel(number) or "?"
            module = self._module(int(record["module"]), f"kernel {name}")
            found = module.get(name)
            if found is None:
                raise Error(f"kernel {name} is not in the image that was saved of its module")
            self._functions[number] = found
        return self._functions[number]

    def _module(self, number: int, what: str) -> Module:
        """A module of the run, loaded. what: it is needed for."""
        if number in self._modules:
            return self._modules[number]
        modules = self._process.modules
        at = int(np.searchsorted(modules["id"], number))
        known = at < len(modules) and modules["id"][at] == number
        image = int(modules["image"][at]) if known else 0
        if not image:
            raise Error(f"{what} can't be had again: the image of its module was not saved")
        path = self._process.path / "modules" / f"{image:016x}"
        try:
            data = path.read_bytes()
        except OSError as e:
            raise system_error(path, e) from None
        made = self._modules[number] = Module(data, self._device, f"module {number}")
        self._places.add_module(number, made)
        return made
