"""The input line: where to go, what to search for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

Taken = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """A question. title: what is requested. hint: shown while the line is empty. taken: called with
    the answer.
    """

    title: str
    hint: str
    taken: Taken


class Prompt(Horizontal):
    """Asks one of several questions. Tab changes between them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False, priority=True),
        Binding("tab", "other(1)", show=False, priority=True),
        Binding("shift+tab", "other(-1)", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt Label { width: auto; padding: 0 1; text-style: bold; }
    Prompt Input { width: 1fr; }
    """

    def compose(self) -> ComposeResult:
        yield Label()
        yield Input(compact=True)

    def ask(self, questions: Sequence[Question], which: int = 0, value: str = "") -> None:
        self._questions, self._which = questions, which
        self._before = self.screen.focused
        self._open(True)
        field = self.query_one(Input)
        field.value = value
        self._show()
        field.focus()

    def _show(self) -> None:
        question = self._questions[self._which]
        others = " (tab: other)" if len(self._questions) > 1 else ""
        self.query_one(Label).update(f"{question.title}{others}:")
        self.query_one(Input).placeholder = question.hint

    def action_other(self, by: int) -> None:
        self._which = (self._which + by) % len(self._questions)
        self._show()

    def _open(self, wanted: bool) -> None:
        """Shows or hides the prompt in place of the other contents of the line."""
        self.display = wanted
        for other in self.siblings:
            other.display = not wanted

    def action_close(self) -> None:
        self._open(False)
        if self._before is not None:
            self._before.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_close()
        if event.value.strip():
            self._questions[self._which].taken(event.value.strip())

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        if self.display and self.screen.focused is not None:
            self._open(False)
