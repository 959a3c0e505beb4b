"""The live view of a recording that still runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, Static

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.tui.background import Background
from ttanalyze.tui.lists import beside, brief, fit
from ttanalyze.tui.looks import Follower, Look, RecentEpoch
from ttanalyze.tui.rows import Cells, Rows
from ttanalyze.tui.style import STYLE, THEME

EVERY = 1.0  # seconds between two looks
SHARE = 10  # a look that takes long is followed by a pause of so many times its length
KEPT = 200  # looks
LEVELS = "▁▂▃▄▅▆▇█"
FACTS = """
Follow #facts { height: auto; padding: 1 0; }
Follow #recent { width: 3fr; }
Follow #kernels { width: 2fr; border-left: tall $panel; }
Follow #said { height: 1; background: $panel; color: $secondary; }
Follow #said.told { color: $error; text-style: bold; }
"""


def spark(values: Sequence[float], width: int) -> str:
    """Returns the last values as a row of bars, the largest as high as a line."""
    shown = values[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    levels = [round(value / most * (len(LEVELS) - 1)) if most > 0 else 0 for value in shown]
    return "".join(LEVELS[level] for level in levels).ljust(max(0, width))


class Recent(Rows):
    """The last committed epochs, the latest first."""

    look: Look | None = None

    def show(self, look: Look) -> None:
        self.look = look
        self.renew(len(look.recent))

    def fetch(self) -> Callable[[int, int], list[Any]]:
        recent = self.look.recent if self.look else []
        return lambda first, last: recent[first:last]

    def title(self, width: int) -> str:
        times = f"{'read in':>8} {'stored in':>9}"
        return f" {'epoch':>7} {fit('cut at', width - 38)} {'changed':>7} {times}"

    def cells(self, row: RecentEpoch, width: int) -> Cells:
        several = self.look is not None and self.look.processes > 1
        what = f"p{row.process} {row.what}" if several else row.what
        times = [text.duration(t) if t else "?" for t in (row.read, row.stored)]
        size = brief(row.changed) if row.changed else "·"
        return [
            (f" {row.number:>7} {fit(what, width - 38)} {size:>7} ", "wrong" if row.lost else ""),
            (f"{times[0]:>8} {times[1]:>9}", "faint"),
        ]


class Kernels(Rows):
    """The kernels with the most launches."""

    kernels: Sequence[tuple[str, int]] = ()

    def show(self, look: Look) -> None:
        self.kernels = look.kernels
        self.renew(len(self.kernels))

    def fetch(self) -> Callable[[int, int], list[Any]]:
        kernels = self.kernels
        return lambda first, last: list(kernels[first:last])

    def title(self, width: int) -> str:
        return f" {fit('kernel', width - 14)} {'launches':>11}"

    def cells(self, row: tuple[str, int], width: int) -> Cells:
        return [(f" {fit(row[0], width - 14)}{beside(f'{row[1]:>11,}', 11)}", "")]


class Follow(App[str | None]):
    """Looks at a growing run until the program ends. Returns how it ended, "" if the user wants to
    browse, None if the user quits.
    """

    TITLE = "ttanalyze"
    CSS = STYLE + FACTS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "browse", "Browse what is there"),
        Binding("tab", "app.focus_next", "Next list", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("q,ctrl+c", "quit", "Quit"),
    ]

    def __init__(self, path: Path) -> None:
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=plain or None)
        self._path = path
        self._follower = Follower(path)
        self.looks: list[Look] = []
        self.register_theme(THEME)
        self.theme = "ansi-dark" if plain else THEME.name

    def compose(self) -> ComposeResult:
        yield Static(id="top", markup=False)
        yield Static(id="facts", markup=False)
        with Horizontal(id="lists"):
            yield Recent(id="recent")
            yield Kernels(id="kernels")
        yield Static(id="said", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self._work = Background(self.query_one(Recent))
        self.query_one(Recent).focus()
        self._ask()

    def _ask(self) -> None:
        began = time.monotonic()

        def take(found: Any) -> None:
            self._take(found)
            took = time.monotonic() - began
            self.set_timer(max(EVERY, SHARE * took), self._ask)

        self._work.ask(self._follower.look, take)

    def _take(self, found: Look | Error) -> None:
        if not self.query("#said"):  # the screen is being closed
            return
        said = self.query_one("#said", Static)
        said.set_class(isinstance(found, Error), "told")
        if isinstance(found, Error):
            said.update(f" {text.printable(str(found))}", layout=False)
            return
        self.looks = [*self.looks[-KEPT:], found]
        self.query_one(Recent).show(found)
        self.query_one(Kernels).show(found)
        said.update(f" {self._losses(found)}", layout=False)
        state = (
            found.ended
            or f"{found.running} of {text.count(found.processes, 'process', 'processes')} running"
        )
        name = text.printable(self._path.resolve().name)
        self.query_one("#top", Static).update(f" {name}  live  {state}", layout=False)
        self._show_facts()
        if found.ended:
            self.exit(found.ended)

    @staticmethod
    def _losses(look: Look) -> str:
        lost = [
            text.count(number, f"{what} epoch")
            for number, what in ((look.refused, "refused"), (look.dropped, "dropped"))
            if number
        ]
        lost += [] if look.calls_recorded else ["calls are not recorded"]
        return ", ".join(lost) or "committed epochs and whole records only"

    def on_resize(self) -> None:
        if self.looks:
            self._show_facts()

    def _rates(self, name: str) -> list[float]:
        """Returns the growth of a number per second, between each two looks."""
        return [
            (getattr(b, name) - getattr(a, name)) / (b.at - a.at)
            for a, b in zip(self.looks, self.looks[1:], strict=False)
        ]

    def _show_facts(self) -> None:
        now = self.looks[-1]
        held = f", {now.held / now.launches:.1%} of launches" if now.launches else ""
        rows = [
            ("launches", "launches", f"{now.launches:,}"),
            ("epochs", "epochs", f"{now.epochs:,}"),
            ("stored", "stored", text.size(now.stored)),
            ("waits of the host", "waits", f"{now.waits:,}"),
            ("waits for captures", "held", f"{now.held:,}{held}"),
        ]
        width = self.size.width - 70
        lines = []
        for title, name, total in rows:
            rates = self._rates(name)
            rate = "" if not rates else f"{rates[-1]:,.0f}/s"
            if name == "stored" and rates:
                rate = f"{text.size(int(rates[-1]))}/s"
            lines.append((title, rate, total, spark(rates, width)))
        peak = f"peak {text.size(now.peak)}, {text.count(now.allocations, 'allocation')}"
        history = spark([float(look.memory) for look in self.looks], width)
        lines.append(("memory in use", text.size(now.memory), peak, history))
        shown = [f" {a:<19}{b:>12}  {fit(c, 34)} {d}" for a, b, c, d in lines]
        self.query_one("#facts", Static).update("\n".join(shown))

    def action_browse(self) -> None:
        self.exit("")
