"""The application of the terminal browser: the action of every key."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from textual.binding import BindingType

from ttanalyze.errors import Error
from ttanalyze.format import open_run
from ttanalyze.format.run import Run
from ttanalyze.format.selection import named, region_at
from ttanalyze.output import text
from ttanalyze.tui import search
from ttanalyze.tui.items import NAMES, Items
from ttanalyze.tui.keys import KEYS
from ttanalyze.tui.past import ValueHistory
from ttanalyze.tui.prompt import Prompt, Question
from ttanalyze.tui.rows import Rows
from ttanalyze.tui.screens import CallList, Help
from ttanalyze.tui.selection import PANEL_FROM, Selection
from ttanalyze.tui.timeline import SORTS, PastValue, Timeline


class Browser(Selection):
    """The main screen with its keys."""

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS]

    # ---- moving in the parts ----

    def on_rows_moved(self, event: Rows.Moved) -> None:
        if event.rows is self.epochs:
            self.go_to(epoch=event.row)
        elif event.rows is self.regions and event.row < len(self.regions.ids):
            self.go_to(region=int(self.regions.ids[event.row]))
        elif event.rows is self.past and event.row < len(self.past.past):
            self.go_to(epoch=self.past.past[event.row].epoch)

    def on_rows_chosen(self) -> None:
        self.view.focus()

    def on_rows_failed(self, event: Rows.Failed) -> None:
        self.tell(event.reason)

    def action_memory(self) -> None:
        self.view.focus()

    def on_view_moved(self) -> None:
        self.show_past()
        self._say_where()

    # ---- time ----

    def action_step(self, by: int) -> None:
        wanted = self.epoch + by
        if 0 <= wanted < self.timeline.epochs:
            self.go_to(epoch=wanted)
        elif self.timeline.epochs:
            self.tell(f"epoch {self.epoch} is the {'last' if by > 0 else 'first'} one")

    def action_region_change(self, step: int) -> None:
        timeline, region, epoch = self.timeline, self.region, self.epoch
        if region is None:
            return
        way = "after" if step > 0 else "before"
        self._search(
            lambda pace: search.region_change(timeline, region, epoch, step, pace),
            self._to_epoch,
            f"region {region} does not change {way} epoch {epoch}",
        )

    def action_item_change(self, step: int) -> None:
        timeline, region, epoch = self.timeline, self.region, self.epoch
        if region is None or self.view.memory is None:
            return
        start = self.view.cursor
        stop = min(start + self.view.items.itemsize, self.view.memory.size)
        way = "after" if step > 0 else "before"
        self._search(
            lambda pace: search.item_change(timeline, region, start, stop, epoch, step, pace),
            self._to_epoch,
            f"the item at {start:#x} does not change {way} epoch {epoch}",
        )

    def action_past(self) -> None:
        timeline, region, items, start = (
            self.timeline,
            self.region,
            self.view.items,
            self.view.cursor,
        )
        if region is None or self.view.memory is None:
            return

        def taken(past: list[PastValue]) -> None:
            title = f"region {region}, {items.name} at {start:#x}: {text.count(len(past), 'value')}"
            self.push_screen(ValueHistory(title, past, self.epoch), chosen)

        def chosen(epoch: int | None) -> None:
            if epoch is not None:
                self.go_to(epoch=epoch)

        self._search(lambda pace: timeline.past(region, start, items, pace.report), taken, "")

    def action_values(self) -> None:
        if self.size.width < PANEL_FROM:
            self.tell(f"values beside the memory need {PANEL_FROM} columns: h shows them")
            return
        self.with_past = not self.with_past
        self.arrange()

    def _to_epoch(self, epoch: int) -> None:
        self.go_to(epoch=epoch)

    def action_mark(self) -> None:
        self.marked = self.epoch if self.marked is None else None
        self.go_to()

    # ---- values ----

    def action_type(self, step: int) -> None:
        self._set_items(self.view.items.next(step))

    def _set_items(self, items: Items) -> None:
        self.view.set_items(items)
        if self.view.memory is not None:
            self.view.heading = self._heading(self.view.memory.region)
        self.arrange()
        self._say_where()

    def action_choose_type(self) -> None:
        def taken(words: str) -> None:
            try:
                self._set_items(Items.named(words))
            except Error as e:
                self.tell(str(e))

        self.query_one(Prompt).ask([Question("type", " ".join(NAMES), taken)])

    def action_not_finite(self, step: int) -> None:
        of = self._floating()
        if of is not None and of.type is not None:
            what = "NaN or infinity"
            self._find_in_region(search.not_finite(of.type), 1, step, what)

    def action_new_not_finite(self) -> None:
        of, timeline, region, epoch = self._floating(), self.timeline, self.region, self.epoch
        if of is None or of.type is None or region is None:
            return
        match = search.not_finite(of.type)
        self._search(
            lambda pace: search.first_match(timeline, region, epoch, 1, match, pace),
            lambda found: self.go_to(found[0], region, found[1]),
            f"no new NaN or infinity appears in region {region} after epoch {epoch}",
        )

    def _floating(self) -> Items | None:
        items = self.view.items
        if items.type is None or items.type.kind not in ("float", "complex"):
            self.tell("show the memory as floating point numbers first: t, or d and f32")
            return None
        return items

    # ---- going and finding ----

    def action_go(self) -> None:
        hint = "e12: epoch  r3: region  #100: element  4096, +64: offset  @0x7f00: address"
        self.query_one(Prompt).ask([Question("go to", hint, self._go)])

    def _go(self, words: str) -> None:
        try:
            epoch, region, offset = self._parse(words)
        except Error as e:
            self.tell(str(e))
            return
        self.go_to(epoch, region, offset)
        if offset is not None:
            self.view.focus()

    def _parse(self, words: str) -> tuple[int | None, int | None, int | None]:
        """Parses places such as "e12 r3 0x1000". Raises Error if one does not exist."""
        epoch, region, offset = None, None, None
        process = self.timeline.process
        for word in words.split():
            kind = word[0] if word[0] in "er@#+-" else ""
            rest = word.removeprefix(kind)
            if kind == "r":
                found = named(process, rest, self.epoch if epoch is None else epoch)
                if isinstance(found, int):
                    region = found
                else:
                    region, offset = found[0].region, found[0].offset
                continue
            try:
                number = int(rest, 0)
            except ValueError:
                expected = "e12, r3, #100, 4096, 0x1000, +64 or @0x7f0000000000"
                raise Error(f"{word}: expected {expected}") from None
            if kind == "e":
                epoch = number
                if not 0 <= number < self.timeline.epochs:
                    raise Error(f"no epoch {number}: {self._have()}")
            elif kind == "@":
                now = self.epoch if epoch is None else epoch
                region, offset = region_at(process, number, now)
            elif kind == "#":
                offset = number * self.view.items.itemsize
            else:
                relative = {"+": self.view.cursor + number, "-": self.view.cursor - number}
                offset = relative.get(kind, number)
        wanted = self.region if region is None else region
        if offset is not None:
            size = self.timeline.size(wanted) if wanted is not None else 0
            if not 0 <= offset < size:
                raise Error(f"no byte {offset} in region {wanted}: it has {size:,}")
        return epoch, region, offset

    def action_find(self) -> None:
        kind, words = self._found or (1 if self.view.items.type else 0, "")
        items = self.view.items
        as_value = items.name if items.type else "f32"
        questions = [
            Question("find bytes", 'de ad be ef, or "text"', partial(self._find, 0)),
            Question(f"find {as_value} value", "a number", partial(self._find, 1)),
            Question("find region", "a part of its label or kind", partial(self._find, 2)),
            Question(
                "find epoch", "a part of its kernel, label or trigger", partial(self._find, 3)
            ),
        ]
        self.query_one(Prompt).ask(questions, kind, words)

    def _find(self, kind: int, words: str) -> None:
        self._found = kind, words
        self.action_find_again(1)

    def action_find_again(self, step: int) -> None:
        if self._found is None:
            self.tell("no search yet: / starts one")
            return
        kind, words = self._found
        timeline, epoch, region = self.timeline, self.epoch, self.region
        try:
            if kind == 0:
                pattern = search.parse_bytes(words)
                self._find_in_region(search.same_bytes(pattern), len(pattern), step, words)
            elif kind == 1:
                of = self.view.items.type or Items.named("f32").type
                assert of is not None
                match = search.same_value(of, search.parse_value(of, words))
                self._find_in_region(match, 1, step, f"{of.name} {words}")
        except Error as e:
            self.tell(str(e))
        way = "behind" if step > 0 else "before"
        if kind == 2:
            self._search(
                lambda p: search.region_named(
                    timeline, words, -1 if region is None else region, step, p
                ),
                lambda found: self.go_to(region=found),
                f"no region {way} region {region} is called {words}",
            )
        elif kind == 3:
            self._search(
                lambda p: search.epoch_named(timeline, words, epoch, step, p),
                self._to_epoch,
                f"no epoch {way} epoch {epoch} is called {words}",
            )

    def _find_in_region(self, match: search.Matcher, length: int, step: int, what: str) -> None:
        timeline, epoch, region = self.timeline, self.epoch, self.region
        if region is None or self.view.memory is None:
            return
        start = self.view.cursor + (1 if step > 0 else 0)
        way = "behind" if step > 0 else "before"

        def taken(offset: int) -> None:
            self.go_to(epoch, region, offset)
            self.view.focus()

        self._search(
            lambda pace: search.in_region(
                timeline, epoch, region, start, step, match, length, pace
            ),
            taken,
            f"no {what} {way} {self.view.cursor:#x} in region {region} in epoch {epoch}",
        )

    # ---- the rest ----

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_calls(self) -> None:
        if self._calls is None:
            self.tell(self._calls_line)
        elif not len(self._calls.records):
            self.tell("no calls between this epoch and the one before")
        else:
            self.push_screen(CallList(self.timeline.calls, self._calls))

    def action_everything(self) -> None:
        self.regions.everything = not self.regions.everything
        self.regions.show(self.timeline, self.epoch, self.region)

    def action_sort(self) -> None:
        self.regions.sort = SORTS[(SORTS.index(self.regions.sort) + 1) % len(SORTS)]
        self.regions.show(self.timeline, self.epoch, self.region)

    def action_zoom(self) -> None:
        lists = self.query_one("#lists")
        lists.display = not lists.display
        self.view.focus()

    def action_process(self) -> None:
        indices = [p.index for p in self.run_read.processes]
        if len(indices) < 2:
            self.tell("the run has one process only")
            return
        at = indices.index(self.timeline.process.index)
        self._open(self.run_read, indices[(at + 1) % len(indices)])
        self.epoch, self.region, self.marked = self._last_epoch(), None, None
        self._offsets.clear()
        self._begin()

    def action_reload(self) -> None:
        index, path = self.timeline.process.index, self.run_read.path

        def take(run: Any) -> None:
            if isinstance(run, Error):
                self.tell(str(run))
                return
            before = self.timeline.epochs
            self._open(run, index)
            self.epoch = min(self.epoch, max(0, self.timeline.epochs - 1))
            self.go_to()
            self.tell(text.count(max(0, self.timeline.epochs - before), "new epoch"))

        def work() -> Run:
            run = open_run(path)
            len(run.process(index).regions)  # is read when it is asked for
            return run

        self._start_work.ask(work, take)

    def _open(self, run: Run, process: int) -> None:
        self.run_read = run
        self.timeline = Timeline(run.process(process))
