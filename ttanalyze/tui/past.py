"""The values of one item over time: a list with bars, beside the memory or over it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from ttanalyze.tui.lists import beside, fit
from ttanalyze.tui.rows import Cells, Rows
from ttanalyze.tui.screens import Overlay
from ttanalyze.tui.timeline import LOST, PastValue

EIGHTHS = " ▏▎▍▌▋▊▉█"
MOST_VALUE = 30  # columns
WIDE = 64  # columns from which each row says where its epoch was cut


def bar(share: float, width: int) -> str:
    """Returns a bar for a share from 0 to 1. The smallest share has a thin one."""
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


class PastRows(Rows):
    """The values of an item over time, the oldest first. The bars go from the least value to the
    largest.
    """

    def __init__(self, past: Sequence[PastValue] = (), **options: Any) -> None:
        super().__init__(**options)
        self._take(past)

    def on_mount(self) -> None:
        self.renew(len(self.past))

    def show(self, past: Sequence[PastValue], epoch: int) -> None:
        self._take(past)
        self.renew(len(past), self._now(epoch))

    def mark(self, epoch: int) -> None:
        """Moves the cursor to the value in an epoch."""
        self.set_cursor(self._now(epoch))

    def _now(self, epoch: int) -> int:
        return sum(value.epoch <= epoch for value in self.past) - 1

    def _take(self, past: Sequence[PastValue]) -> None:
        self.past = past
        numbers = [v.number for v in past if v.number is not None and math.isfinite(v.number)]
        self._least, self._largest = min(numbers, default=0.0), max(numbers, default=0.0)
        self._digits = min(MOST_VALUE, max((len(value.value) for value in past), default=0))
        self._digits = max(len("value"), self._digits)
        self._what = max((len(value.what) for value in past), default=0)

    def fetch(self) -> Callable[[int, int], list[Any]]:
        past = self.past
        return lambda first, last: list(past[first:last])

    def _columns(self, width: int) -> tuple[int, int]:
        """Returns the columns of where the epoch was cut, and of the bar, 0 for no room."""
        rest = width - 11 - self._digits
        scale = self._largest > self._least
        where = min(max(self._what, len("cut at")), rest // 2) if width >= WIDE else 0
        return where, max(0, rest - where - 4) if scale else 0

    def title(self, width: int) -> str:
        where, room = self._columns(width)
        scale = f"{self._least:.4g} to {self._largest:.4g}" if room else ""
        words = f"{'epoch':>8}{beside('cut at', where)}  {fit('value', self._digits)}"
        return f" {words}  {scale}"

    def cells(self, row: PastValue, width: int) -> Cells:
        where, room = self._columns(width)
        wrong = row.value == LOST or (row.number is not None and not math.isfinite(row.number))
        cells = [
            (f" {row.epoch:>8}{beside(row.what, where)}  ", ""),
            (f"{fit(row.value, self._digits)}  ", "wrong" if wrong else ""),
        ]
        if room and row.number is not None and math.isfinite(row.number):
            share = row.number / 2 - self._least / 2  # halves: the difference may be infinite
            cells.append((bar(share / (self._largest / 2 - self._least / 2), room), "caller"))
        return cells


class ValueHistory(Overlay):
    """The values of the item under the cursor over time. Enter returns the epoch of a row."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Go to this epoch")]

    def __init__(self, title: str, past: Sequence[PastValue], epoch: int) -> None:
        super().__init__()
        self._title, self._past, self._epoch = title, past, epoch

    def compose(self) -> ComposeResult:
        yield Static(f" {self._title}", id="over", markup=False)
        yield PastRows(self._past)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.query_one(PastRows).mark(self._epoch)

    def action_choose(self) -> None:
        self.dismiss(self._past[self.query_one(PastRows).cursor].epoch)

    def on_rows_chosen(self) -> None:
        self.action_choose()
