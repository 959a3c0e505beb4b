"""Screens over the main screen: the help, and the calls between two epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from ttanalyze.output import text
from ttanalyze.tui.calls import CallReader, CallRow, Calls
from ttanalyze.tui.keys import KEYS, MOVING, NAMES
from ttanalyze.tui.lists import beside, fit, split
from ttanalyze.tui.rows import Cells, Rows
from ttanalyze.tui.timeline import FLAG_LETTERS

# Words and a style for each of core.writers.HOW, the surest first.
SURE = (
    ("● writes there", "changed"),
    ("◉ given a pointer", "changed"),
    ("○ may write there", "maybe"),
    ("· given no pointer", "faint"),
)
HOW_ROOM, TIME_ROOM = 18, 9  # columns
CALL_ROOM = 48  # columns of a call and its caller, from which both are shown


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

    def __init__(self, reader: CallReader, calls: Calls) -> None:
        super().__init__()
        self.reader, self.calls = reader, calls

    def on_mount(self) -> None:
        self.renew(len(self.calls.records))

    def fetch(self) -> Callable[[int, int], list[Any]]:
        return lambda first, last: self.reader.rows(self.calls, first, last)

    def title(self, width: int) -> str:
        region = "" if self.calls.region is None else f"region {self.calls.region}"
        room, time, caller = self._room(width)
        words = f"{fit('call', room)}{beside('GPU time'.rjust(time), time)}"
        rest = f"{fit(region, HOW_ROOM)}{beside('called from', caller)}"
        return f" {'seq':>9}  {'stream':>6}  {words}  {rest}"

    def needs(self, row: CallRow) -> tuple[str, ...]:
        return row.what, row.caller

    def _room(self, width: int) -> tuple[int, int, int]:
        """Returns the columns of the call, its time, and its caller."""
        time = TIME_ROOM if self.reader.have_times else 0
        rest = width - 22 - HOW_ROOM - (time and time + 1)
        callers = self.reader.have_stacks and rest >= CALL_ROOM
        room, caller = split(rest, *self.needed) if callers else (rest, 0)
        return room, time, caller

    def cells(self, row: CallRow, width: int) -> Cells:
        room, time, caller = self._room(width)
        how, style = ("", "") if row.how is None else SURE[row.how]
        return [
            (f" {row.seq:>9}  {row.stream:>6}  ", "faint"),
            (f"{fit(row.what, room)}", "" if style != "faint" else "faint"),
            (beside(row.took.rjust(time), time), "faint"),
            (f"  {fit(how, HOW_ROOM)}", style),
            (beside(row.caller, caller), "caller"),
        ]


class CallList(Overlay):
    """The calls between an epoch and the one before."""

    def __init__(self, reader: CallReader, calls: Calls) -> None:
        super().__init__()
        self._reader, self._calls = reader, calls

    def compose(self) -> ComposeResult:
        since, calls = self._calls.since, self._calls
        begin = "the beginning" if since is None else f"epoch {since}"
        more = " and more" if calls.more else ""
        count = text.count(len(calls.records), "call")
        yield Static(
            f" {count}{more} between {begin} and epoch {calls.epoch}", id="over", markup=False
        )
        yield CallRows(self._reader, calls)
        yield Static(id="whole", markup=False)
        yield Footer(compact=True)

    def on_rows_shown(self, event: Rows.Shown) -> None:
        """Shows all of the selected call, of which the row may be cut."""
        row: CallRow | None = event.row
        words = []
        if row is not None:
            words.append(f"{row.what}, {row.took} on the GPU" if row.took else row.what)
            words += [f"from {row.stack}"] if row.stack else []
        self.query_one("#whole", Static).update("\n".join(f" {line}" for line in words))
