"""Shows the memory of one region in one epoch, as bytes or numbers, with changes marked.

It reads only what is on the screen and its surroundings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from ttanalyze.errors import Error
from ttanalyze.format.labels import PARTS
from ttanalyze.format.layout import Array
from ttanalyze.tui.items import HEX, Items, as_several
from ttanalyze.tui.lists import fit
from ttanalyze.tui.rows import Listing
from ttanalyze.tui.timeline import Timeline, Window

EMPTY = Window(0, np.empty(0, np.uint8), None, np.empty(0, bool), "", np.empty(0, PARTS))


@dataclass(frozen=True)
class MemoryView:
    """The shown memory: a region (size in bytes) in an epoch, compared with another epoch."""

    timeline: Timeline
    epoch: int
    baseline: int | None
    region: int
    size: int


class View(Listing):
    """Rows of items. cursor: the offset of the item under the cursor."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--offset", "rows--odd"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", show=False),
        Binding("right", "move(1)", show=False),
        Binding("up", "rows(-1)", show=False),
        Binding("down", "rows(1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(1)", show=False),
    ]

    class Moved(Message):
        """The cursor moved, or the item under it was read."""

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.memory: MemoryView | None = None
        self.items = Items.named(HEX)
        self.cursor = 0
        self.heading = ""
        self.window = EMPTY
        self._tried = 0, 0  # what was on the screen when it went wrong

    # ---- what is shown ----

    def show(self, memory: MemoryView | None, heading: str, wrong: str = "") -> None:
        """Shows another place. The cursor stays as near as possible."""
        before, self.memory = self.memory, memory
        self.heading, self.wrong = heading, wrong
        if memory is None or before is None or memory.region != before.region:
            self.window = EMPTY
        self._lay_out()
        self._fetch(again=True)

    def set_items(self, items: Items) -> None:
        self.items = items
        self._lay_out()
        self._fetch()
        self.post_message(self.Moved())

    def set_cursor(self, offset: int) -> None:
        """Moves the cursor to the item that contains an offset."""
        last = max(0, self._total - 1)
        offset = max(0, min(offset, last))
        self.cursor = offset - offset % self.items.itemsize
        self._show_cursor()
        self._fetch()
        self.refresh()
        self.post_message(self.Moved())

    @property
    def _total(self) -> int:
        return self.memory.size if self.memory else 0

    @property
    def row_bytes(self) -> int:
        return self._per_row(self.size.width) * self.items.itemsize

    def _per_row(self, width: int) -> int:
        return self.items.per_row(width - len(self._offset(0)) - 2)

    def needed_width(self, most: int) -> int:
        """Returns the columns of the longest rows that fit into `most`, or of the heading."""
        rows = len(self._offset(0)) + 3 + self.items.row_width(self._per_row(most))
        return max(rows, min(most, len(self.heading) + 2))

    def title(self, width: int) -> str:
        return fit(self.heading, width)

    def _offset(self, offset: int) -> str:
        digits = max(8, len(f"{max(0, self._total - 1):x}"))
        return f"{offset:0{digits}x}"

    def _lay_out(self) -> None:
        """Computes the rows from width and type. The cursor stays on the screen."""
        self._set_length(-(-self._total // self.row_bytes))
        self.cursor = max(0, min(self.cursor, self._total - 1))
        self.cursor -= self.cursor % self.items.itemsize
        self._show_cursor()
        self.refresh()

    def _show_cursor(self) -> None:
        row, top = self.cursor // self.row_bytes, self.scroll_offset.y
        wanted = min(max(top, row - self.page + 1), row)
        if row > top + 2 * self.page or row < top - self.page:  # a jump
            wanted = max(0, row - self.page // 3)
        self._scroll_to_line(wanted)

    def on_resize(self) -> None:
        self._lay_out()
        self._fetch()

    def _fetch(self, again: bool = False) -> None:
        """Requests the bytes on the screen and around it, if any are missing."""
        memory, page = self.memory, self.page * self.row_bytes
        start = self.scroll_offset.y * self.row_bytes
        stop = min(start + page, self._total)
        visible = start, stop
        known = self.window.start <= start and stop <= self.window.stop
        if memory is None or (not again and (known or (self.wrong and visible == self._tried))):
            self.refresh()
            return

        def work() -> Window:
            timeline, epoch, baseline = memory.timeline, memory.epoch, memory.baseline
            around = max(0, start - page), min(stop + page, memory.size)
            try:
                return timeline.window(epoch, baseline, memory.region, *around)
            except Error:  # maybe only of what is around
                return timeline.window(epoch, baseline, memory.region, *visible)

        def take(window: Window | Error) -> None:
            self.wrong = str(window) if isinstance(window, Error) else ""
            self.window = EMPTY if isinstance(window, Error) else window
            self._tried = visible
            self.refresh()
            self._fetch()
            self.post_message(self.Moved())

        self._work.ask(work, take)

    # ---- the item under the cursor ----

    def item(self) -> tuple[str, str, str] | None:
        """Returns the item under the cursor, its value in the baseline ("" if unchanged), and its
        value as other types. None if it was not read.
        """
        at, size, window = self.cursor - self.window.start, self.items.itemsize, self.window
        raw = window.raw[at : at + 16] if at >= 0 else window.raw[:0]
        if len(raw) < size:
            return None
        was = ""
        if window.before is not None and window.changed[at : at + size].any():
            was = self.items.texts(window.before[at : at + size])[0]
        return self.items.texts(raw[:size])[0], was, as_several(raw)

    # ---- lines ----

    def line(self, index: int, width: int) -> Strip | None:
        offset = index * self.row_bytes
        if offset >= self._total:
            return None
        return Strip(self._row(offset)).adjust_cell_length(width, self.rich_style)

    def _row(self, offset: int) -> list[Segment]:
        base, items = self.rich_style, self.items
        out = [Segment(f"{self._offset(offset)} ", base + self._style("offset"))]
        window, length = self.window, min(self.row_bytes, self._total - offset)
        if not window.start <= offset or offset + length > window.stop:
            return [*out, Segment(" …", base + self._style("faint"))]
        at = offset - window.start
        raw = window.raw[at : at + length]
        styles = self._styles(offset, raw)
        for i, words in enumerate(items.texts(raw)):
            gap = "  " if items.type is None and i % 8 == 0 and i else " "
            gap += " " * (items.width - len(words))
            out += [Segment(gap, base), Segment(words, styles[i])]
        rest = raw[len(raw) // items.itemsize * items.itemsize :]
        if len(rest):  # less than an item
            out.append(Segment(f" {bytes(rest).hex(' ')}", base + self._style("faint")))
        if items.type is None:
            per_row = self.row_bytes
            gaps = 3 * (per_row - len(raw)) + (per_row - 1) // 8 - (len(raw) - 1) // 8 + 2
            out.append(Segment(" " * gaps, base))
            for byte, style in zip(raw.tolist(), styles, strict=True):
                out.append(Segment(chr(byte) if 32 <= byte < 127 else "·", style))
        return out

    def _styles(self, offset: int, raw: Array) -> list[Style]:
        """Returns the style of each item of a row."""
        base, items, window = self.rich_style, self.items, self.window
        count = len(raw) // items.itemsize
        whole = raw[: count * items.itemsize].reshape(count, items.itemsize)
        zero = np.asarray(~whole.any(axis=1))
        odd = items.odd(raw)
        at = offset - window.start
        marks = window.changed[at : at + count * items.itemsize]
        changed = np.asarray(marks.reshape(count, items.itemsize).any(axis=1))
        out = []
        for i in range(count):
            style = base
            if zero[i] and not changed[i]:
                style += self._style("faint")
            if changed[i]:
                style += self._style("changed")
            if odd[i]:
                style += self._style("odd")
            if offset + i * items.itemsize == self.cursor:
                style += self._style("cursor" if self.has_focus else "away")
            out.append(style)
        return out

    # ---- keys and mouse ----

    def action_move(self, by: int) -> None:
        self.set_cursor(self.cursor + by * self.items.itemsize)

    def action_rows(self, by: int) -> None:
        moved = self.cursor + by * self.row_bytes
        if 0 <= moved < self._total:
            self.set_cursor(moved)

    def action_page(self, by: int) -> None:
        self.set_cursor(self.cursor + by * self.page * self.row_bytes)

    def action_edge(self, which: int) -> None:
        self.set_cursor(which * (self._total - 1))

    def on_click(self, event: events.Click) -> None:
        row = self.scroll_offset.y + event.y - 1
        index = self._column(event.x - len(self._offset(0)) - 2)
        offset = row * self.row_bytes + index * self.items.itemsize
        if event.y > 0 and 0 <= index < self.row_bytes // self.items.itemsize:
            self.set_cursor(offset)

    def _column(self, x: int) -> int:
        """Returns the index of the item at a column, -1 if there is none."""
        if self.items.type is not None:
            return x // (self.items.width + 1)
        group, within = divmod(x, 25)
        digits = 25 * (self.row_bytes // 8)  # columns of them, where a row has whole groups
        letters = 3 * self.row_bytes + (self.row_bytes - 1) // 8 + 1
        if x >= letters:
            return x - letters
        return 8 * group + within // 3 if x < digits and within < 24 else -1
