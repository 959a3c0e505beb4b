"""The main screen: the selection, and its display."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.widgets import Footer, Static

from ttanalyze.errors import Error
from ttanalyze.format import statuses
from ttanalyze.format.run import Run
from ttanalyze.format.selection import named
from ttanalyze.output import text
from ttanalyze.tui import search
from ttanalyze.tui.background import Background
from ttanalyze.tui.calls import Calls
from ttanalyze.tui.items import HEX, Items
from ttanalyze.tui.lists import Epochs, Regions
from ttanalyze.tui.past import PastRows
from ttanalyze.tui.prompt import Prompt
from ttanalyze.tui.search import Pace
from ttanalyze.tui.style import STYLE, THEME
from ttanalyze.tui.timeline import Timeline
from ttanalyze.tui.view import MemoryView, View

PANEL_FROM = 120  # columns of a terminal that has room for values beside the memory
WIDE_FROM = 160  # columns from which the regions have more room than the epochs
PANEL = 40  # least columns of these
TICK = 0.2  # seconds between two looks at how far a search is


class Selection(App[None]):
    """The selected process, epoch, region and item."""

    TITLE = "ttanalyze"
    CSS = STYLE
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        run: Run,
        process: int = 0,
        epoch: int | None = None,
        region: int | str | None = None,
        offset: int = 0,
        items: str = HEX,
        told: str = "",
    ) -> None:
        """epoch, region: by default the last one, and the first that changed in it. told: the first
        message.

        Raises Error if the process, epoch, region or type does not exist.
        """
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=plain or None)
        self.run_read = run
        self.timeline = Timeline(run.process(process))
        if epoch is not None and not 0 <= epoch < self.timeline.epochs:
            raise Error(f"no epoch {epoch}: {self._have()}")
        self.epoch = self._last_epoch() if epoch is None else epoch
        self.region: int | None = None
        if region is not None:
            found = named(self.timeline.process, str(region), self.epoch)
            if not isinstance(found, int):
                offset = found[0].offset + (offset or 0)
                found = found[0].region
            self.region = found
        self.marked: int | None = None
        self._start = offset, Items.named(items)
        self._offsets: dict[int, int] = {}  # where the cursor was in each region
        self._message = told
        self._calls: Calls | None = None
        self._calls_line = ""
        self._pace: Pace | None = None
        self.view, self.past, self.with_past = View(id="memory"), PastRows(id="past"), True
        self._past_pace = Pace()
        self._past_of: tuple[Timeline, int, int, str] | None = None
        self._found: tuple[int, str] | None = None  # what was searched for
        self.register_theme(THEME)
        self.theme = "ansi-dark" if plain else THEME.name

    def compose(self) -> ComposeResult:
        yield Static(id="top", markup=False)
        with Horizontal(id="lists"):
            yield Epochs(id="epochs")
            yield Regions(id="regions")
        with Horizontal(id="below"):
            yield self.view
            yield self.past
        yield Static(id="position", markup=False)
        with Horizontal(id="last"):
            yield Static(id="calls", markup=False)
            yield Prompt()
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.epochs = self.query_one(Epochs)
        self.regions = self.query_one(Regions)
        self._calls_work, self._search_work = Background(self.view), Background(self.view)
        self._start_work, self._past_work = Background(self.view), Background(self.view)
        offset, items = self._start
        self.view.items = items
        self.set_interval(TICK, self._tick)
        self._begin(offset)
        self.epochs.focus()

    def _have(self) -> str:
        count = self.timeline.epochs
        return f"there are epochs 0 to {count - 1}" if count else "no epochs were recorded"

    def _last_epoch(self) -> int:
        """Returns the last captured epoch."""
        found = self.timeline.baseline(self.timeline.epochs)
        return max(0, self.timeline.epochs - 1) if found is None else found

    def _begin(self, offset: int = 0) -> None:
        """Selects a region if none is selected, and shows it."""
        timeline, epoch = self.timeline, self.epoch

        def take(ids: Any) -> None:
            if self.region is None and not isinstance(ids, Error) and len(ids):
                self.region = int(ids[0])
            if self.region is not None:
                self._offsets[self.region] = offset
            self.go_to()

        self._start_work.ask(lambda: timeline.region_ids(epoch, False, "changed", None), take)

    # ---- what is shown ----

    def go_to(
        self, epoch: int | None = None, region: int | None = None, offset: int | None = None
    ) -> None:
        """Selects another epoch, region or offset."""
        if self.view.memory is not None:
            self._offsets[self.view.memory.region] = self.view.cursor
        self.epoch = self.epoch if epoch is None else epoch
        self.region = self.region if region is None else region
        self.epochs.show(self.timeline, self.epoch, self.region)
        self.regions.show(self.timeline, self.epoch, self.region)
        self._show_memory(offset)
        self._ask_calls()
        self._say_where()

    def _show_memory(self, offset: int | None) -> None:
        if not self.timeline.epochs:
            self.view.show(None, " memory", f"{self._have()}: no memory to show")
            return
        if self.region is None:
            self.view.show(None, " memory", f"no region is alive in epoch {self.epoch}")
            return
        try:
            size, heading = self.timeline.size(self.region), self._heading(self.region)
        except Error as e:
            self.view.show(None, " memory", str(e))
            return
        same = self.view.memory is not None and self.view.memory.region == self.region
        memory = MemoryView(self.timeline, self.epoch, self._baseline(), self.region, size)
        self.view.show(memory, heading)
        if offset is None and not same:
            offset = self._offsets.get(self.region, 0)
        self.arrange()
        if offset is not None:
            self.view.set_cursor(offset)
        self.show_past()

    def on_resize(self) -> None:
        self.arrange()

    def arrange(self) -> None:
        """Gives the room that the memory does not need to the values of the item over time."""
        self.query_one("#lists").set_class(self.size.width >= WIDE_FROM, "wide")
        self.past.display = self.with_past and self.size.width >= PANEL_FROM
        most = self.size.width - PANEL
        self.view.styles.width = self.view.needed_width(most) if self.past.display else "1fr"
        self.show_past()

    def show_past(self) -> None:
        """Shows the values of the item under the cursor beside the memory."""
        timeline, region, items, start = (
            self.timeline,
            self.region,
            self.view.items,
            self.view.cursor,
        )
        if not self.past.display or region is None or self.view.memory is None:
            return
        wanted = timeline, region, start, items.name
        if self._past_of == wanted:
            self.past.mark(self.epoch)
            return
        self._past_of, pace = wanted, Pace()
        self._past_pace.stop()
        self._past_pace = pace

        def work() -> Any:
            try:
                return timeline.past(region, start, items, pace.report)
            except search.StoppedError:
                return []  # another item was chosen meanwhile

        def take(found: Any) -> None:
            self.past.show([] if isinstance(found, Error) else found, self.epoch)
            self.past.wrong = str(found) if isinstance(found, Error) else ""

        self._past_work.ask(work, take)

    def _baseline(self) -> int | None:
        if self.marked is not None:
            return self.marked
        return self.timeline.baseline(self.epoch)

    def _heading(self, region: int) -> str:
        """Returns the facts about a region. Raises Error if they cannot be read."""
        timeline = self.timeline
        regions, row = timeline.process.regions, timeline.row(region)
        name, kind = timeline.region_name(row), timeline.region_kind(row)
        words = [f" region {region}", kind if name == kind else f"{name}, {kind}"]
        if timeline.process.unread.left_out(region, self.epoch):
            words.append("uncertain: as last read")
        words += [text.size(int(regions.size[row])), f"as {self.view.items.name}"]
        baseline = self._baseline()
        words += [] if baseline is None else [f"against epoch {baseline}"]
        words.append(f"at {int(regions.birth['base'][row]):#x}")
        return "  ".join(words)

    def _ask_calls(self) -> None:
        self._calls, self._calls_line = None, "no calls"
        if not self.timeline.epochs:
            return
        self._calls_line = "reading calls"
        timeline, epoch, region = self.timeline, self.epoch, self.region

        def work() -> tuple[Calls, str]:
            calls = timeline.calls.between(epoch, region)
            return calls, timeline.calls.line(calls)

        def take(found: Any) -> None:
            if isinstance(found, Error):
                self._calls_line = str(found)
            else:
                self._calls, self._calls_line = found
            self._say_where()

        self._calls_work.ask(work, take)

    def _say_where(self) -> None:
        """Updates the lines above and below."""
        run, timeline = self.run_read, self.timeline
        words = [f" {run.path.resolve().name}"]
        if len(run.processes) > 1:
            words.append(f"{timeline.process.name}, one of {len(run.processes)}")
        if timeline.epochs:
            words.append(f"epoch {self.epoch} of {timeline.epochs - 1}")
            with contextlib.suppress(Error):  # the list of epochs says what is wrong
                words.append(timeline.epoch_label(self.epoch))
        if self.marked is not None:
            words.append(f"compared with epoch {self.marked}")
        if timeline.process.status not in statuses.WITH_THE_PROCESS:
            words.append(f"({timeline.process.status})")
        self.query_one("#top", Static).update(text.printable("  ".join(words)), layout=False)
        self.query_one("#position", Static).update(self._position(), layout=False)
        line = self.query_one("#calls", Static)
        line.set_class(bool(self._message), "told")
        line.update(f" {self._message or self._calls_line}", layout=False)

    def _position(self) -> str:
        view = self.view
        if view.memory is None or not view.memory.size:
            return ""
        size, cursor, each = view.memory.size, view.cursor, view.items.itemsize
        words = [f" {cursor:#x}", f"byte {cursor:,}"]
        tensor = view.memory.timeline.tensor(view.memory.region, view.window.parts, cursor)
        if tensor:
            words.append(tensor)
        elif each > 1:
            words.append(f"element {cursor // each:,} of {size // each:,}")
        item = None if view.wrong else view.item()
        if item is not None:
            now, was, several = item
            words.append(f"{now} (was {was})" if was else now)
            words.append(f"│ {several}" if view.items.type is None else "")
        if view.window.note and not view.wrong:
            words.append(f"│ {view.window.note}")
        return "  ".join(words)

    def tell(self, message: str) -> None:
        """Shows a message in the last line until a key is pressed."""
        self._message = text.printable(message)
        self._say_where()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, (events.Key, events.MouseDown)) and self._message and not self._pace:
            self.tell("")
        await super().on_event(event)

    # ---- searches ----

    def _search(
        self, work: Callable[[Pace], Any], taken: Callable[[Any], None], nothing: str
    ) -> None:
        """Runs a search in a thread. nothing: the message if it finds nothing."""
        if self._pace is not None:
            self._pace.stop()
        self._pace = pace = Pace()

        def run() -> Any:
            try:
                return work(pace)
            except search.StoppedError:
                return pace

        def take(found: Any) -> None:
            self._pace = None
            if found is pace:
                self.tell("stopped")
            elif isinstance(found, Error):
                self.tell(str(found))
            elif found is None:
                self.tell(nothing)
            else:
                taken(found)
                self.tell("")

        self._search_work.ask(run, take)

    def _tick(self) -> None:
        """Shows the progress of a long search."""
        if self._pace is not None and not self._pace.stopped:
            self.tell(f"searching, {self._pace.share:.0%}; escape stops it")

    def action_stop(self) -> None:
        if self._pace is not None:
            self._pace.stop()

    def on_unmount(self) -> None:
        self.action_stop()
        self._past_pace.stop()
