"""Rebuilt: recorded work as a graph that can be launched again on the recorded memory.

Kernels come from the images of the run, memory from its epochs. Regions get their old addresses if
these are free. Otherwise pointers in parameters are translated, and pointers in memory are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import Run, layout
from ttanalyze.format.selection import place_named
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import EndedError
from ttanalyze.gpu.graph import Graph
from ttanalyze.gpu.graph_exec import GraphExec
from ttanalyze.gpu.rebuild.address_map import AddressMap, Finding, State
from ttanalyze.gpu.rebuild.dependency_graph import span
from ttanalyze.gpu.rebuild.replay_context import ReplayContext, WorkBuilder, moved_notes
from ttanalyze.gpu.rebuild.steps import Span, Upload, summary
from ttanalyze.output import text

if TYPE_CHECKING:
    import pandas as pd

ARRAY = "an array (of textures or surfaces), whose contents are not recorded"
OTHERS = {
    "managed": "managed memory, which the host may have changed",
    "ipc": "memory of another process, which may have changed it",
}


@dataclass(frozen=True)
class Check:
    """The result of `Rebuilt.check`.

    Attributes:
        epoch: The epoch that memory was compared with.
        findings: One finding per region that the graph worked on.
    """

    epoch: int
    findings: list[Finding]

    @property
    def same(self) -> bool:
        """Whether all regions have the recorded digests."""
        return all(finding.same for finding in self.findings)

    @property
    def differences(self) -> list[Finding]:
        """The findings of the regions that differ."""
        return [finding for finding in self.findings if not finding.same]

    @property
    def regions(self) -> pd.DataFrame:
        """One row per region: region, label, size (bytes), same, digest, expected, blocks (number
        that differ), first_block, new (allocated between the epochs, so bytes that were never
        written are unknown).
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
    """The work between two epochs of a run as a graph. `Graph.from_run` makes one.

    `restore` sets memory to the first epoch, `launch` repeats the work, and `check` compares memory
    with the last epoch.

    Args:
        graph: The graph.
        maker: The builder of its work.
        first: The memory in the first epoch.

    Attributes:
        span: The recorded work.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> rebuilt = tt.graph.Graph.from_run(tt.open("work"), (0, 2), device=device)
        >>> rebuilt.where(0) != 0  # the address of the region
        True
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
        """The ids of regions that are not at their old addresses. Pointers to them in memory are
        wrong.
        """
        return self._address_map.moved

    @property
    def assumed(self) -> list[Upload]:
        """Copies from the host with uncertain data: a kernel may have changed them before the next
        epoch.
        """
        whats = (step.what for step in self.span.steps)
        return [what for what in whats if isinstance(what, Upload) and what.doubt]

    @property
    def notes(self) -> list[str]:
        """Remarks on how the work was rebuilt, one line each."""
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
        """Sets memory to the first epoch.

        Raises:
            FormatError: The stored contents do not have their digest.
        """
        self._address_map.restore(self._first)

    def launch(self, stream: Any = None) -> None:
        """Repeats the work and returns at once.

        Args:
            stream: A Stream, a CUstream as an int, or a stream of PyTorch, CuPy or Numba. Default:
                a stream of the device.

        Raises:
            DriverError: The driver refuses the launch.
        """
        if self._executable is None:
            self._executable = self.instantiate()
        self._executable.launch(stream)

    def check(self, epoch: int | None = None) -> Check:
        """Waits for the work and compares memory with an epoch.

        Args:
            epoch: The number of the epoch. Default: the last one.

        Raises:
            DriverError: The work failed.
            Error: The contents of the epoch are gone.
        """
        of = self.span.last if epoch is None else epoch
        assert of is not None
        after = State.of_epoch(self.span.process, of, self.span.regions.tolist())
        return Check(of, self._address_map.compare(after, self._first))

    def where(self, region: int | str) -> int:
        """Returns the present address of a region or a tensor.

        Args:
            region: The id or the label of the region, or the name of a tensor, as of the last epoch
                of the work.

        Raises:
            Error: The work does not use this region, or the tensor lies in several regions.
        """
        number, offset, _ = place_named(self.span.process, region, self.span.last)
        row = _row(self.span, number)
        if row < 0 or row not in self.span.regions.tolist():
            raise Error(f"no region {region} between epochs {self.span.first} and {self.span.last}")
        return self._address_map.now(row) + offset

    def close(self) -> None:
        """Waits, and frees memory, addresses and code that no other executable graph uses."""
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
    rank: int | None = None,
) -> Rebuilt:
    """Makes a graph of recorded work. Graph.from_run describes the arguments."""
    of = run.process(process, rank)
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
    """Makes a graph of the steps of a span."""
    graph = Graph.new(builder.replay_context.device)
    made: list[Any] = []
    for step in builder.span.steps:
        made.append(graph.append(builder.work(step), [made[other] for other in step.after]))
    graph._keeps += builder.keeps
    return graph


def check_kinds(found: Span) -> None:
    """Raises Error if a region has contents that are not recorded."""
    for number, kind in _kinds(found):
        if kind == "array":
            raise Error(f"can't be replayed: region {number} is {ARRAY}")


def written_by_others(found: Span) -> list[str]:
    """Returns one line per region that others may have written to, such as the host."""
    return [
        f"region {number} is {OTHERS[kind]}" for number, kind in _kinds(found) if kind in OTHERS
    ]


def _kinds(found: Span) -> Iterator[tuple[int, str]]:
    birth = found.process.regions.birth
    for row in found.regions.tolist():
        yield int(birth["id"][row]), layout.REGION_KINDS[int(birth["kind"][row])]


def _row(found: Span, region: int) -> int:
    return int(found.process.regions.rows(np.array([region]))[0])
