"""Screens over the main screen: the help, and the calls between two epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from ttanalyze.output import text
from ttanalyze.tui.keys import KEYS, MOVING, NAMES
from ttanalyze.tui.lists import fit
from ttanalyze.tui.rows import Cells, Rows
from ttanalyze.tui.timeline import FLAG_LETTERS, LOST, CallRow, Calls, PastValue, Timeline


class Overlay(ModalScreen[int | None]):
    """A screen over the main screen. Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "Close", key_display="esc")
    ]


class Help(Overlay):
    """The help: all keys."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._text(), markup=False)
        yield Footer(compact=True)

    def _text(self) -> str:
        rows = list(MOVING)
        for binding in KEYS:
            keys = " ".join(NAMES.get(key, key) for key in binding.key.split(","))
            rows.append((keys, binding.tooltip))
        flags = ", ".join(f"{letter} {name}" for name, letter in FLAG_LETTERS.items())
        return "\n".join(
            [
                "Keys",
                "",
                text.rows(rows),
                "",
                f"Flags of epochs: {flags}.",
                "● changed in this epoch. Bytes that changed since the epoch before (or the",
                "marked one) are bold and underlined. The line below shows the calls",
                "between the two.",
            ]
        )


class CallRows(Rows):
    """Calls in order."""

    def __init__(self, timeline: Timeline, calls: Calls) -> None:
        super().__init__()
        self.timeline, self.calls = timeline, calls

    def on_mount(self) -> None:
        self.renew(len(self.calls.records))

    def fetch(self) -> Callable[[int, int], list[Any]]:
        return lambda first, last: self.timeline.call_rows(self.calls, first, last)

    def title(self, width: int) -> str:
        region = "" if self.calls.region is None else f"region {self.calls.region}"
        return f" {'seq':>9}  {'stream':>6}  {fit('call', width - 47)} {region}"

    def cells(self, row: CallRow, width: int) -> Cells:
        return [
            (f" {row.seq:>9}  {row.stream:>6}  ", "faint"),
            (f"{fit(row.what, width - 47)} ", ""),
            (row.how, "changed"),
        ]


class CallList(Overlay):
    """The calls between an epoch and the one before."""

    def __init__(self, timeline: Timeline, calls: Calls) -> None:
        super().__init__()
        self._timeline, self._calls = timeline, calls

    def compose(self) -> ComposeResult:
        since, calls = self._calls.since, self._calls
        begin = "the beginning" if since is None else f"epoch {since}"
        more = " and more" if calls.more else ""
        count = text.count(len(calls.records), "call")
        yield Static(
            f" {count}{more} between {begin} and epoch {calls.epoch}", id="over", markup=False
        )
        yield CallRows(self._timeline, calls)
        yield Footer(compact=True)


class PastRows(Rows):
    """The values of an item over time, the oldest first."""

    def __init__(self, past: Sequence[PastValue]) -> None:
        super().__init__()
        self._past = past

    def on_mount(self) -> None:
        self.renew(len(self._past))

    def fetch(self) -> Callable[[int, int], list[Any]]:
        return lambda first, last: list(self._past[first:last])

    def title(self, width: int) -> str:
        return f" {'epoch':>9}  {fit('cut at', (width - 13) // 2)} value from then on"

    def cells(self, row: PastValue, width: int) -> Cells:
        return [
            (f" {row.epoch:>9}  {fit(row.what, (width - 13) // 2)} ", ""),
            (row.value, "wrong" if row.value == LOST else ""),
        ]


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
        now = sum(row.epoch <= self._epoch for row in self._past) - 1
        self.query_one(PastRows).set_cursor(now)

    def action_choose(self) -> None:
        self.dismiss(self._past[self.query_one(PastRows).cursor].epoch)

    def on_rows_chosen(self) -> None:
        self.action_choose()
