"""A list of any length that makes only the rows on the screen."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.tui.background import Background

Cells = list[tuple[str, str]]  # texts and what they are: "" or the end of a component class
KEPT = 4096  # rows


def wrapped(words: str, width: int, line: int) -> str:
    """Returns one line of words that are wrapped to a width, "" behind the last one."""
    lines = textwrap.wrap(words, max(8, width - 4))
    return f"  {lines[line]}" if line < len(lines) else ""


class Listing(ScrollView, can_focus=True):
    """A title and lines, whose contents are read in a thread.

    Subclasses define `title`, `line` and `_fetch`, which requests what is on the screen.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"rows--{part}"
        for part in (
            "title",
            "focused",
            "cursor",
            "away",
            "changed",
            "faint",
            "wrong",
            "caller",
            "maybe",
        )
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]
    DEFAULT_CSS = "Listing { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.wrong = ""  # why there is nothing to see
        self._work = Background(self)

    def title(self, width: int) -> str:
        raise NotImplementedError

    def line(self, index: int, width: int) -> Strip | None:
        """Returns a line by index, None behind the last one."""
        raise NotImplementedError

    def _fetch(self, again: bool = False) -> None:
        raise NotImplementedError

    @property
    def page(self) -> int:
        """The number of lines on the screen."""
        return max(1, self.size.height - 1)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._fetch()

    def _set_length(self, lines: int) -> None:
        if self.virtual_size != Size(0, lines + 1):
            self.virtual_size = Size(0, lines + 1)

    def _scroll_to_line(self, line: int) -> None:
        if line != self.scroll_offset.y:
            self.scroll_to(y=line, animate=False, force=True)

    def _style(self, part: str) -> Style:
        return self.get_component_rich_style(f"rows--{part}")

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_content_region.width, self.rich_style  # not the scrollbar
        if y == 0:
            style = self._style("title") + (self._style("focused") if self.has_focus else Style())
            return Strip([Segment(self.title(width), style)]).adjust_cell_length(width, style)
        if self.wrong:
            words = wrapped(text.printable(self.wrong), width, y - 1)
            style = base + self._style("wrong")
            return Strip([Segment(words, style)]).adjust_cell_length(width, base)
        return self.line(self.scroll_offset.y + y - 1, width) or Strip.blank(width, base)


class Rows(Listing):
    """Rows with a cursor.

    Subclasses define `fetch`, which returns rows and runs in a thread, `cells`, which formats a
    row, and `title`, the line above.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("home", "move(-1000000000000)", show=False),
        Binding("end", "move(1000000000000)", show=False),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)

    class Moved(Message):
        """The user moved the cursor."""

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows
            self.row = rows.cursor

        @property
        def control(self) -> Rows:
            return self.rows

    class Chosen(Moved):
        """The user double-clicked a row."""

    class Shown(Message):
        """The row under the cursor was drawn. row: None if it was not read yet."""

        def __init__(self, row: Any) -> None:
            super().__init__()
            self.row = row

    class Failed(Message):
        """The details of rows cannot be read."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.count = 0
        self._known: dict[int, Any] = {}
        self._details_work = Background(self)
        self._failure = ""

        self.needed = [0, 0]  # columns of the longest texts of `needs`

    # ---- for subclasses ----

    def fetch(self) -> Callable[[int, int], list[Any]]:
        """Returns a function that reads rows first to last - 1. It runs in a thread."""
        raise NotImplementedError

    def cells(self, row: Any, width: int) -> Cells:
        raise NotImplementedError

    def needs(self, row: Any) -> tuple[str, ...]:
        """Returns the two texts of a row that share what the other columns leave."""
        return ()

    def details(self, rows: list[Any]) -> Callable[[], None] | None:
        """Returns a function that reads what takes longer than the rows, such as callers. It runs
        in a thread. Then the rows are drawn again.
        """
        return None

    # ---- what is shown ----

    def renew(self, count: int, cursor: int | None = None) -> None:
        """Sets the number of rows, and drops those that were read."""
        self.count, self.wrong = count, ""
        self._set_length(count)
        self.set_cursor(self.cursor if cursor is None else cursor)
        self._fetch(again=True)

    def set_cursor(self, row: int) -> None:
        """Moves the cursor without a message."""
        self.cursor = max(0, min(row, self.count - 1))

    def watch_cursor(self) -> None:
        self._show_cursor()
        self.post_message(self.Shown(self._known.get(self.cursor)))
        self.refresh()

    def on_resize(self) -> None:
        self._show_cursor()
        self._fetch()

    def _show_cursor(self) -> None:
        row, top = self.cursor, self.scroll_offset.y
        self._scroll_to_line(min(max(top, row - self.page + 1), row))

    def _fetch(self, again: bool = False) -> None:
        """Requests the rows on the screen and around it, if any is missing."""
        top = self.scroll_offset.y
        visible = range(top, min(self.count, top + self.page))
        if not again and (self.wrong or all(i in self._known for i in visible)):
            return
        first, last = max(0, top - self.page), min(self.count, top + 2 * self.page)
        fetch = self.fetch()

        def take(rows: list[Any] | Error) -> None:
            self.wrong = str(rows) if isinstance(rows, Error) else ""
            if again or len(self._known) > KEPT:
                self._known.clear()
            if not isinstance(rows, Error):
                self._known.update(zip(range(first, last), rows, strict=True))
                self._measure()
                self._fetch_details(rows)
                self.post_message(self.Shown(self._known.get(self.cursor)))
            self.refresh()
            self._fetch()

        if first < last:
            self._work.ask(lambda: fetch(first, last), take)
        else:
            self.refresh()

    def _measure(self) -> None:
        """Updates `needed` for all rows that were read, so that columns do not jump in a scroll."""
        texts = zip(*map(self.needs, self._known.values()), strict=True)
        widths = [max(map(cell_len, column)) for column in texts]
        self.needed = widths or self.needed

    def _fetch_details(self, rows: list[Any]) -> None:
        def take(failure: Error | None) -> None:
            if failure is not None and str(failure) != self._failure:
                self._failure = str(failure)
                self.post_message(self.Failed(self._failure))
            self._measure()
            self.refresh()

        read = self.details(rows)
        if read is not None:
            self._details_work.ask(read, take)

    def line(self, index: int, width: int) -> Strip | None:
        if index >= self.count:
            return None
        if index not in self._known:
            return self._strip([("  …", "faint")], width)
        cells = self.cells(self._known[index], width)
        if index != self.cursor:
            return self._strip(cells, width)
        return self._strip(cells, width, self._style("cursor" if self.has_focus else "away"))

    def _strip(self, cells: Cells, width: int, above: Style | None = None) -> Strip:
        base = self.rich_style
        segments = []
        for words, what in cells:
            style = base + self._style(what) if what else base
            segments.append(Segment(words, style + above if above else style))
        return Strip(segments).adjust_cell_length(width, base + above if above else base)

    # ---- keys and mouse ----

    def action_move(self, by: int) -> None:
        self._move(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._move(self.cursor + by * self.page)

    def _move(self, row: int) -> None:
        before = self.cursor
        self.set_cursor(row)
        if self.cursor != before:
            self.post_message(self.Moved(self))

    def on_click(self, event: events.Click) -> None:
        row = self.scroll_offset.y + event.y - 1
        if event.y > 0 and row < self.count:
            self._move(row)
            if event.chain == 2:
                self.post_message(self.Chosen(self))
