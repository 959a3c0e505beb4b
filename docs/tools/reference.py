"""Makes a page of docs/reference from the options of each verb."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer

from ttanalyze import options
from ttanalyze.cli import app
from ttanalyze.cli.help import is_argument, usage

FOLDER = Path(__file__).resolve().parents[1] / "reference"
INDEX = """# Reference

| verb | what it does |
| --- | --- |
{verbs}

Sizes take the units K, M, G and T, such as 64M. Times take ns, us, ms, s, m and h, such as 1.5s.

- In a shell: `ttanalyze --install-completion` lets bash, zsh or fish complete verbs and options.
- Man pages: a wheel installs `man ttanalyze-record` and so on; `make man` writes them to man.
- [Exit statuses](exit-statuses.md)
- [Tables](tables.md): tables and columns of a run
- [From Python](../python.md): modules and functions
"""


def code(text: str) -> str:
    """Text of a help as Markdown: options and variables are code, and nothing else is markup."""
    text = re.sub(r"([<>*])", r"\\\1", text)
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*|TT_[A-Z_]+(?:=\w+)?)", r"`\1`", text)


def cell(text: str) -> str:
    return code(" ".join(text.split())).replace("|", "\\|")


def names(option: Any) -> str:
    """How an option is written: `-o DIR`, `--out DIR`."""
    value = f" {option.metavar}" if option.metavar else ""
    spelled = [*sorted(option.opts, key=len), *option.secondary_opts]
    return " ".join(f"`{name}{value}`".replace("|", "\\|") for name in spelled)


def variable(option: Any) -> str:
    found = options.TABLE.get(option.name)
    return f"`{found.variable}`" if found else ""


def page(name: str, command: Any) -> str:
    first, *others = (command.help or "").split("\n\n")
    arguments = list(filter(is_argument, command.params))
    chosen = [p for p in command.params if p not in arguments and not p.hidden]
    parts = [
        f"# ttanalyze {name}",
        code(" ".join(first.split())),
        f"```\nttanalyze {name} {' '.join(usage(command))}\n```",
        *(code(" ".join(other.split())) for other in others),
    ]
    if arguments:
        rows = [f"| `{p.metavar}` | {cell(p.help or '')} |" for p in arguments]
        parts += ["\n".join(["| argument | meaning |", "| --- | --- |", *rows])]
    if name == "record":
        rows = [f"| {names(p)} | {variable(p)} | {cell(p.help or '')} |" for p in chosen]
        parts += ["\n".join(["| option | variable | meaning |", "| --- | --- | --- |", *rows])]
    elif chosen:
        rows = [f"| {names(p)} | {cell(p.help or '')} |" for p in chosen]
        parts += ["\n".join(["| option | meaning |", "| --- | --- |", *rows])]
    examples = (command.epilog or "").replace("\b", "").strip().removeprefix("Examples:")
    if examples:
        parts += ["## Examples", f"```\n{dedent(examples.strip(chr(10)))}\n```"]
    return "\n\n".join([*parts, "See [exit statuses](exit-statuses.md)."]) + "\n"


def pages() -> dict[Path, str]:
    """What the files are to hold."""
    group: Any = typer.main.get_command(app)
    found = {FOLDER / f"{name}.md": page(name, each) for name, each in group.commands.items()}
    rows = [
        f"| [{name}]({name}.md) | {cell(each.help.partition(chr(10) * 2)[0])} |"
        for name, each in group.commands.items()
    ]
    return {**found, FOLDER / "index.md": INDEX.format(verbs="\n".join(rows))}
