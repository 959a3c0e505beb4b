"""The last state of each warp in an instruction trace, and the warps that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ttanalyze.disassembly.decode import parsed
from ttanalyze.traces.native import AnyTrace
from ttanalyze.traces.reader import EVERY, Kernel, Record, cta

COLUMNS = (
    *("kernel", "launch", "cta_x", "cta_y", "cta_z", "warp", "warps", "state", "records"),
    *("opcode_id", "pc", "sass", "line"),
)


ENDS = ("EXIT", "exit", "ret")  # of machine code and PTX


@dataclass
class _Warp:
    """records: how many. every: some of them tell of every instruction. last: the last of those."""

    last: Record
    records: int = 0
    every: bool = False

    def state(self) -> str:
        sass = self.last.sass()
        if not self.every or sass is None:
            return "unknown"
        text = parsed(sass.rstrip("; "))
        if text.opcode not in ENDS:
            return "in progress"
        return "probably completed" if text.predicate else "completed"


@dataclass
class _Launch:
    kernel: Kernel | None
    number: int | None
    warps: dict[tuple[int, int, int, int], _Warp] = field(default_factory=dict)


def warps(trace: AnyTrace) -> Iterator[dict[str, Any]]:
    """Yields a row per warp, and one per range of missing warps.

    Warps are numbered through the launch. `state` is `completed` after EXIT, `probably completed`
    after an EXIT with a predicate, which some lanes may pass, `in progress`, `missing`, or
    `unknown` without records of every instruction.
    """
    launches: dict[tuple[int, int | None], _Launch] = {}
    silent: Kernel | None = None
    for record in trace.whole_records():
        if isinstance(record, Kernel):
            if silent is not None:
                launches[silent.line, None] = _Launch(silent, None)
            silent = record
            continue
        silent = None
        kernel, number = record.kernel, record.members.get("grid_launch_id")
        launch = launches.setdefault(
            (kernel.line if kernel else 0, number), _Launch(kernel, number)
        )
        key = (*cta(record), record.members["warp"])
        warp = launch.warps.setdefault(key, _Warp(record))
        warp.records += 1
        if record.members["type"] in EVERY or not warp.every:
            warp.last = record
            warp.every |= record.members["type"] in EVERY
    if silent is not None:
        launches[silent.line, None] = _Launch(silent, None)
    for launch in launches.values():
        yield from _rows(launch)


def _rows(launch: _Launch) -> Iterator[dict[str, Any]]:
    of_all = {"kernel": launch.kernel and launch.kernel.name, "launch": launch.number}
    for (x, y, z, number), warp in sorted(launch.warps.items(), key=lambda item: item[0][3]):
        last = warp.last
        yield {
            **of_all,
            "cta_x": x,
            "cta_y": y,
            "cta_z": z,
            "warp": number,
            "warps": 1,
            "state": warp.state(),
            "records": warp.records,
            "sass": last.sass(),
            "opcode_id": last.members.get("opcode_id"),
            "pc": last.offset(),
            "line": last.place.number,
        }
    seen = sorted({number for *_, number in launch.warps})
    known = launch.kernel.warps() if launch.kernel else None
    last_number = max(known or 0, seen[-1] + 1 if seen else 0)
    for before, after in zip([-1, *seen], [*seen, last_number], strict=True):
        if after > before + 1:
            count = after - before - 1
            row = dict.fromkeys(COLUMNS)
            yield row | of_all | {"warp": before + 1, "warps": count, "state": "missing"}
