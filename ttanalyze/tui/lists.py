"""The lists of epochs and of regions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size

from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.tui.background import Background
from ttanalyze.tui.rows import Cells, Rows
from ttanalyze.tui.timeline import EpochRow, RegionRow, Timeline

CHANGED = "●"


def fit(words: str, width: int) -> str:
    """Returns words in exactly this many columns, cut if they are longer."""
    if cell_len(words) <= width:
        return set_cell_size(words, width)
    return set_cell_size(words, width - 1) + "…" if width > 0 else ""


def _mark(changed: bool | int | None) -> str:
    return "?" if changed is None else CHANGED if changed else " "


def _name(name: str, kind: str, address: str, width: int) -> str:
    """Returns the name of a region, with kind and address if there is room."""
    if width < 60:
        return fit(name, width)
    return f"{fit(name, width - 34)} {fit(kind, 16)} {fit(address, 16)}"


def brief(count: int) -> str:
    """Returns bytes in at most five characters: 1536 is "1.5K"."""
    value, unit = float(count), ""
    for unit in ("", "K", "M", "G", "T"):
        if value < 1023.5 or unit == "T":
            break
        value /= 1024
    return f"{value:.1f}{unit}" if unit and value < 99.95 else f"{value:.0f}{unit}"


class Epochs(Rows):
    """The epochs of a process. Those in which the selected region changed are marked."""

    timeline: Timeline
    selected: int | None = None

    def show(self, timeline: Timeline, epoch: int, region: int | None) -> None:
        self.timeline, self.selected = timeline, region
        self.renew(timeline.epochs, epoch)

    def fetch(self) -> Callable[[int, int], list[Any]]:
        timeline, region = self.timeline, self.selected
        return lambda first, last: timeline.epoch_rows(first, last, region)

    def title(self, width: int) -> str:
        return f"  {'epoch':>6} {fit('cut at', width - 21)} {'changed':>7} {'':<4}"

    def cells(self, row: EpochRow, width: int) -> Cells:
        what = row.trigger if not row.label else f"{row.trigger} {row.label}"
        lost = "R" in row.flags or "D" in row.flags
        size = brief(row.changed) if row.changed else "·"
        return [
            (f"{_mark(row.region_changed)} ", "changed"),
            (f"{row.number:>6} ", ""),
            (fit(what, width - 21), "faint" if lost else ""),
            (f" {size:>7} ", "" if row.changed else "faint"),
            (f"{row.flags:<4}", "wrong" if lost else "faint"),
        ]


class Regions(Rows):
    """The regions in an epoch. Those that changed in it are marked."""

    timeline: Timeline
    epoch = 0
    ids: Array = np.empty(0, "u4")
    everything = False
    sort = "id"

    def on_mount(self) -> None:
        self._ids_work = Background(self)

    def show(self, timeline: Timeline, epoch: int, region: int | None) -> None:
        """Shows an epoch. region: the selected one, which is always in the list."""

        def take(ids: Array | Error) -> None:
            if isinstance(ids, Error):
                self.ids, self.wrong = np.empty(0, "u4"), str(ids)
                self.refresh()
                return
            self.timeline, self.epoch, self.ids = timeline, epoch, ids
            found = np.flatnonzero(ids == (-1 if region is None else region))
            self.renew(len(ids), int(found[0]) if len(found) else 0)

        ask = partial(timeline.region_ids, epoch, self.everything, self.sort, region)
        self._ids_work.ask(ask, take)

    def fetch(self) -> Callable[[int, int], list[Any]]:
        timeline, ids, epoch = self.timeline, self.ids, self.epoch
        return lambda first, last: timeline.region_rows(ids[first:last], epoch)

    def title(self, width: int) -> str:
        order = {"id": "regions", "changed": "by change", "size": "by size"}[self.sort]
        name = f"{'all' if self.everything else 'live'} {order}"
        names = _name(name, "kind", "address", width - 25)
        return f"  {'id':>5} {names} {'size':>5} {'changed':>9} "

    def cells(self, row: RegionRow, width: int) -> Cells:
        names = _name(row.name, row.kind, f"{row.base:#x}", width - 25)
        if row.note:
            return [
                (f"  {row.id:>5} {names} {brief(row.size):>5} ", "faint"),
                (fit(row.note, 9).strip().rjust(9), "faint"),
            ]
        share = f"{row.changed}/{row.blocks}" if row.changed else "·"
        if row.changed is not None and len(share) > 9:
            share = f"{row.changed / row.blocks:.2%}"
        return [
            (f"{_mark(row.changed)} ", "changed"),
            (f"{row.id:>5} {names} {brief(row.size):>5} ", ""),
            (f"{share:>9} ", "" if row.changed else "faint"),
        ]
