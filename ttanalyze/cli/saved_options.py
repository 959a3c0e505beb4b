"""Options of queries, saved under names: one JSON file of the user, which may be edited."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

from typer import Context

from ttanalyze.errors import Error, system_errors
from ttanalyze.output.files import replacing


def file() -> Path:
    """Where they are."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "ttanalyze" / "queries.json"


def saved() -> dict[str, list[str]]:
    """Returns the options of each saved query, by name.

    Raises:
        Error: The file cannot be read, or has something else.
    """
    path = file()
    if not path.exists():
        return {}
    with system_errors(path):
        content = path.read_text()
    try:
        found = json.loads(content)
        right = all(isinstance(word, str) for words in found.values() for word in words)
    except (ValueError, AttributeError, TypeError) as e:
        raise Error(f"{path}: not a file of saved queries: {e}") from None
    if not right:
        raise Error(f"{path}: not a file of saved queries: an option is not text")
    return {str(name): list(words) for name, words in found.items()}


def save(name: str, words: list[str]) -> None:
    """Saves options under a name, in place of those that it had.

    Raises:
        Error: There are no options, or the file cannot be written.
    """
    if not words:
        raise Error(f"--save {name}: no options to save")
    path, known = file(), saved()
    with system_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as out:
        text = json.dumps(known | {name: words}, indent=1, ensure_ascii=False) + "\n"
        out.write(text.encode())


def complete(incomplete: str) -> list[str]:
    """Names that begin so, for the shell."""
    try:
        return [name for name in saved() if name.startswith(incomplete)]
    except Error:
        return []


def given(context: Context, but: Collection[str] = ()) -> list[str]:
    """Returns the options of a command line as words, apart from parameters of these names."""
    words = []
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in but:
            continue
        value = context.params[name]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += parameter.opts[:1] if one is True else [*parameter.opts[:1], str(one)]
    return words


def ask_again(context: Context, name: str) -> None:
    """Runs the command with saved options, then those of the command line but `--use`.

    Raises:
        Error: There is no such saved query.
    """
    known = saved()
    if name not in known:
        names = f"{file()} has {', '.join(known)}" if known else "--save NAME saves one"
        raise Error(f"--use {name}: no saved query of this name; {names}")
    runs = [str(run) for run in context.params["runs"]]
    words = [*known[name], *given(context, ("runs", "use")), "--", *runs]
    command = context.command
    with command.make_context(context.info_name, words, parent=context.parent) as again:
        command.invoke(again)
