"""The lists of epochs and of regions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size

from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.tui.background import Background
from ttanalyze.tui.rows import Cells, Rows
from ttanalyze.tui.timeline import EpochRow, RegionRow, Timeline

CHANGED = "●"
CALLER_ROOM = 36  # columns of a name and a caller, together
KIND_ROOM = max(map(len, layout.REGION_KINDS))
NAME_ROOM = 14  # least columns of a name beside a caller


def fit(words: str, width: int) -> str:
    """Returns words in exactly this many columns, cut if they are longer."""
    if cell_len(words) <= width:
        return set_cell_size(words, width)
    return set_cell_size(words, width - 1) + "…" if width > 0 else ""


def _mark(changed: bool | int | None) -> str:
    return "?" if changed is None else CHANGED if changed else " "


def split(room: int, name: int, caller: int) -> tuple[int, int]:
    """Returns the columns of a name and of the caller beside it, 0 if there is no room for it.

    name, caller: the columns of the longest ones. What the name does not need is the caller's.
    """
    if room < CALLER_ROOM:
        return room, 0
    name = min(max(name, NAME_ROOM), max(room // 2, room - 1 - caller))
    return name, room - 1 - name


def beside(words: str, width: int) -> str:
    return f" {fit(words, width)}" if width else ""


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

    def details(self, rows: list[Any]) -> Callable[[], None] | None:
        return partial(self.timeline.calls.read_callers, [row.seq for row in rows])

    def needs(self, row: EpochRow) -> tuple[str, ...]:
        return self._what(row), self.timeline.calls.known_callers.get(row.seq, "")

    @staticmethod
    def _what(row: EpochRow) -> str:
        return row.trigger if not row.label else f"{row.trigger} {row.label}"

    def _room(self, width: int) -> tuple[int, int]:
        return split(width - 22, *self.needed) if self.needed[1] else (width - 22, 0)

    def title(self, width: int) -> str:
        room, rest = self._room(width)
        words = f"{fit('cut at', room)} {'changed':>7} {'':<4}"
        return f"  {'epoch':>6} {words}{beside('called from', rest)}"

    def cells(self, row: EpochRow, width: int) -> Cells:
        lost = "R" in row.flags or "D" in row.flags
        size = brief(row.changed) if row.changed else "·"
        room, rest = self._room(width)
        caller = self.timeline.calls.known_callers.get(row.seq, "")
        return [
            (f"{_mark(row.region_changed)} ", "changed"),
            (f"{row.number:>6} ", ""),
            (fit(self._what(row), room), "faint" if lost else ""),
            (f" {size:>7} ", "" if row.changed else "faint"),
            (f"{row.flags:<4}", "wrong" if lost else "faint"),
            (beside(caller, rest), "caller"),
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

    def details(self, rows: list[Any]) -> Callable[[], None] | None:
        return partial(self.timeline.calls.read_sites, [row.seq for row in rows])

    def needs(self, row: RegionRow) -> tuple[str, ...]:
        name = "" if row.name == row.kind else row.name
        return name, self.timeline.calls.known_sites.get(row.seq, "")

    def _columns(self, width: int) -> tuple[int, int, int, int]:
        """Returns the columns of name, kind, address and site, 0 for those without room."""
        room, sites = width - 24, self.needed[1] > 0
        kind, address = (KIND_ROOM, 16) if room >= (84 if sites else 60) else (0, 0)
        rest = room - (kind and kind + address + 2)
        name, place = split(rest, *self.needed) if sites else (rest, 0)
        return name, kind, address, place

    def title(self, width: int) -> str:
        order = {"id": "regions", "changed": "by change", "size": "by size"}[self.sort]
        name, *others = self._columns(width)
        words = fit(f"{'all' if self.everything else 'live'} {order}", name)
        rest = "".join(map(beside, ("kind", "address", "allocated at"), others))
        return f"  {'id':>5} {words} {'size':>5} {'changed':>9}{rest}"

    def cells(self, row: RegionRow, width: int) -> Cells:
        name, kind, address, place = self._columns(width)
        site = self.timeline.calls.known_sites.get(row.seq, "")
        words = row.name
        if row.name == row.kind:  # it has no label
            words = "" if kind else row.name if place else site or row.name
        names = fit(words, name)
        rest = beside(row.kind, kind) + beside(f"{row.base:#x}", address)
        if row.note:
            note = fit(row.note, 9).strip().rjust(9)
            words = f"  {row.id:>5} {names} {brief(row.size):>5} {note}"
            return [(f"{words}{rest}{beside(site, place)}", "faint")]
        share = f"{row.changed}/{row.blocks}" if row.changed else "·"
        if row.changed is not None and len(share) > 9:
            share = f"{row.changed / row.blocks:.2%}"
        return [
            (f"{_mark(row.changed)} ", "changed"),
            (f"{row.id:>5} {names} {brief(row.size):>5} ", ""),
            (f"{share:>9}", "" if row.changed else "faint"),
            (rest, ""),
            (beside(site, place), "caller"),
        ]
