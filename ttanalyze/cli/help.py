"""The text of --help: verbs in groups, arguments and options without the types of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand, TyperGroup

GROUPS = {  # in the order of the help; each verb is a file of this folder
    "Begin": ("demo", "doctor"),
    "Record a program": ("record", "instrument", "check", "race", "reduce", "shim"),
    "Look at a run": (
        "info",
        "stats",
        "breakdown",
        "tui",
        "report",
        "query",
        "memory",
        "graph",
        "rewind",
        "blame",
    ),
    "Compare runs": ("diff", "replicas", "collectives", "verify", "compare"),
    "Replay launches": ("launches", "replay", "prove", "tune", "export"),
    "Examine kernels": ("sass", "memcheck"),
    "Write and check files": ("events", "trace", "manifest", "validate", "merge", "push"),
}


def is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def usage(verb: Any) -> list[str]:
    """Returns what follows the name of a verb on the command line."""
    arguments = [
        (p.metavar if p.required else f"[{p.metavar}]") + ("..." if p.nargs == -1 else "")
        for p in verb.params
        if is_argument(p)
    ]
    return ["[OPTIONS]", *arguments]


def summary(verb: Any) -> str:
    """Returns the first paragraph of a verb's help, in one line."""
    return " ".join((verb.help or "").partition("\n\n")[0].split())


def choices(words: str) -> Callable[[str], list[str]]:
    """Returns a function that completes one of several words, which are separated by a bar."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words.split("|") if word.startswith(incomplete)]

    return complete


class Verb(TyperCommand):
    """A verb with the help text of this project."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage(self)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters: list[Any] = self.params
        arguments = [(p.metavar, p.help) for p in parameters if is_argument(p)]
        options = [p.get_help_record(ctx) for p in self.get_params(ctx) if not is_argument(p)]
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl([row for row in rows if row])


class Verbs(TyperGroup):
    """The command without a verb: lists the verbs in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), summary(self.commands[name])) for name in names]
                formatter.write_dl(rows)
