"""Recorded work as a graph that can be launched again, on memory as it was recorded.

Kernels come from the images that the run saved, memory from its epochs. Memory is where it was if
the addresses are free; where not, pointers that kernels were given are translated, and those that
lie in memory are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import Run, layout
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import EndedError
from ttanalyze.gpu.graph import Graph, GraphExec
from ttanalyze.gpu.rebuild.address_map import AddressMap, Finding, State
from ttanalyze.gpu.rebuild.dependency_graph import span
from ttanalyze.gpu.rebuild.replay_context import ReplayContext, WorkBuilder, moved_notes
from ttanalyze.gpu.rebuild.steps import Span, Upload, summary
from ttanalyze.output import text

if TYPE_CHECKING:
    import pandas as pd

ARRAY = "an array (of textures or surfaces), whose contents are not recorded"
OTHERS = {
    "managed": "managed memory, to which the host may have written meanwhile",
    "ipc": "memory of another process, which may have written to it meanwhile",
}


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
        import pandas as pd

        names = ("region", "label", "size", "same", "digest", "expected", "blocks", "new")
        columns: dict[str, Any] = {n: [getattr(f, n) for f in self.findings] for n in names}
        columns["first_block"] = pd.array([f.first_block for f in self.findings], "Int64")
        return pd.DataFrame(columns)

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

    def __init__(self, graph: Graph, maker: WorkBuilder, first: State) -> None:
        super().__init__(graph.device, graph.handle, graph.keeps)
        graph._destroy.detach()
        self.span: Span = maker.span
        self._memory: AddressMap | None = maker.replay_context.addresses
        self._first = first
        self._executable: GraphExec | None = None

    def __repr__(self) -> str:
        bounds = f"{self.span.first} to {self.span.last}"
        return f"<Graph of epochs {bounds}: {summary(self.span.steps)}>"

    @property
    def _address_map(self) -> AddressMap:
        if self._memory is None:
            raise EndedError("the graph was closed")
        return self._memory

    @property
    def moved(self) -> list[int]:
        """Ids of the regions that are at other addresses than recorded: pointers to them that lie
        in memory lead nowhere.
        """
        return self._address_map.moved

    @property
    def assumed(self) -> list[Upload]:
        """Copies from the host of which it is not sure what they copied: they are taken to have
        copied what is there in the next epoch, but a kernel was given a pointer to it before.
        """
        whats = (step.what for step in self.span.steps)
        return [what for what in whats if isinstance(what, Upload) and what.doubt]

    @property
    def notes(self) -> list[str]:
        out = moved_notes(self._address_map, self.moved)
        for number in self._first.unknown:
            if not self.span.born_within(_row(self.span, number)):
                out.append(f"region {number}: no epoch up to {self.span.first} has it: zeroed")
        out += [
            f"region {upload.region}: a copy from the host is taken from epoch "
            f"{upload.epoch}, though {upload.doubt}"
            for upload in self.assumed
        ]
        out += [f"{what}: left out" for what in self.span.left_out]
        return out + written_by_others(self.span)

    def restore(self) -> None:
        """Puts memory as it was in the first epoch. Raises FormatError for damaged contents."""
        self._address_map.restore(self._first)

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
        assert of is not None
        after = State.of_epoch(self.span.process, of, self.span.regions.tolist())
        return Check(of, self._address_map.compare(after, self._first))

    def where(self, region: int) -> int:
        """The address at which a region is now. Raises Error for one that is not here."""
        row = _row(self.span, region)
        if row < 0 or row not in self.span.regions.tolist():
            raise Error(f"no region {region} between epochs {self.span.first} and {self.span.last}")
        return self._address_map.now(row)

    def close(self) -> None:
        """Waits, and gives back the memory, its addresses and the code, unless an executable graph
        that instantiate() made still uses them.
        """
        if self._executable is not None:
            with contextlib.suppress(Error):  # the work failed, or a stream is captured
                self.device.synchronize()
            self._executable.close()
            self._executable = None
        super().close()
        self._memory = None


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
    check_kinds(found)
    on = device or Device.default()
    rows = found.regions.tolist()
    state = State.of_epoch(of, first, rows)
    builder = WorkBuilder(ReplayContext(of, on, rows), found)
    return Rebuilt(build(builder), builder, state)


Graph._rebuild = rebuild  # Graph.from_run(), which can't import what is built on Graph


def build(builder: WorkBuilder) -> Graph:
    """The steps of a span as a graph."""
    graph = Graph.new(builder.replay_context.device)
    made: list[Any] = []
    for step in builder.span.steps:
        made.append(graph.append(builder.work(step), [made[other] for other in step.after]))
    graph._keeps += builder.keeps
    return graph


def check_kinds(found: Span) -> None:
    """Raises Error for regions whose contents are not recorded."""
    for number, kind in _kinds(found):
        if kind == "array":
            raise Error(f"can't be replayed: region {number} is {ARRAY}")


def written_by_others(found: Span) -> list[str]:
    """The regions that others than the span's steps may have written to, a line each."""
    return [
        f"region {number} is {OTHERS[kind]}" for number, kind in _kinds(found) if kind in OTHERS
    ]


def _kinds(found: Span) -> Iterator[tuple[int, str]]:
    birth = found.process.regions.birth
    for row in found.regions.tolist():
        yield int(birth["id"][row]), layout.REGION_KINDS[int(birth["kind"][row])]


def _row(found: Span, region: int) -> int:
    return int(found.process.regions.rows(np.array([region]))[0])
