"""Makes docs/python.md from the docstrings of the public modules."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import ttanalyze
from ttanalyze.core.meanings import LISTS, items, sections

PAGE = Path(__file__).resolve().parents[1] / "python.md"
HEAD = """# Python reference

`import ttanalyze as tt` gives the names below. The modules are imported at their first use.
The examples open runs:

- `run1`, `run2` and `graphed`: of `ttanalyze record`; `work`: with `--replayable`; `delayed`: with
  `--delay`; `timed`: with GPU times
- `ddp` and `nccl`: of several ranks
- `traced`: of `ttanalyze instrument`

- [Open a run in Python](guides/open-a-run.md) is the introduction.
- [Tables](reference/tables.md) describes every table and column.
- [Guides](guides/index.md) has one page per task.

These types appear in signatures:

| Type | Meaning |
|---|---|
| `Array` | `numpy.ndarray` |
| `Progress` | a function that is called with the finished and the total number of steps, or None |
| `Process` | one recorded process, from `run.processes` or `run.process(0)` |
| `Size`, `Three` | an int or a tuple of up to three ints; three ints |
| `Types`, `Tolerances` | a mapping from the id or the label of a region; None: all other regions |
| `pd.DataFrame` | `pandas.DataFrame` |
"""
STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
WIDEST = 88  # characters of a signature on one line


def escaped(words: str) -> str:
    """Words in which only what is between backticks is markup."""
    parts = re.split(r"(`[^`\n]+`)", words)
    parts[::2] = [re.sub(r"([<>*_`\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def prose(paragraphs: str) -> str:
    """Paragraphs, lists and indented code as Markdown, each paragraph on one line."""
    found = []
    for is_code, some in groupby(paragraphs.split("\n\n"), lambda part: part.startswith("    ")):
        if is_code:
            code = inspect.cleandoc("\n\n".join(some))
            found.append(f"```python\n{code}\n```")
            continue
        for paragraph in some:
            lines = re.split(r"\n(?=- )", paragraph)
            found.append("\n".join(escaped(" ".join(line.split())) for line in lines))
    return "\n\n".join(found)


def annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def default(value: Any) -> str:
    return "…" if re.search("<.*>", repr(value)) else repr(value)


@functools.cache
def parameters(function: Any) -> dict[str, tuple[str, str]]:
    """The type and the default of each parameter, "" where there is none."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    empty = inspect.Parameter.empty
    return {
        each.name: (
            "" if each.annotation is empty else annotation(each.annotation),
            "" if each.default is empty else default(each.default),
        )
        for each in found
    }


def signature(name: str, function: Any) -> str:
    """A call as a code block, with a line for each parameter where one line is too long."""
    found = inspect.signature(function)
    parts, keywords = [], False
    for each in found.parameters.values():
        kind, value = parameters(function)[each.name]
        if each.kind is each.KEYWORD_ONLY and not keywords:
            parts.append("*")
        keywords |= each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        spelled = STARS.get(each.kind.name, "") + each.name + (f": {kind}" if kind else "")
        parts.append(spelled + (f" = {value}" if value and kind else f"={value}" if value else ""))
    parts = [part for part in parts if part not in ("self", "cls")]
    made = found.return_annotation
    gives = "" if made is found.empty or inspect.isclass(function) else f" -> {annotation(made)}"
    line = f"{name}({', '.join(parts)}){gives}"
    if len(line) > WIDEST:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"
    return f"```python\n{line}\n```"


def described(found: dict[str, str], types: dict[str, tuple[str, str]]) -> str:
    """A list of names with types, defaults and meanings."""
    lines = []
    for names, meaning in found.items():
        kind, value = types.get(names.split(",")[0].strip("* "), ("", ""))
        kind = "" if kind == "Any" else kind
        value = "" if "Default: " in meaning else value
        details = ", ".join(
            filter(None, (f"`{kind}`" if kind else "", f"default `{value}`" if value else ""))
        )
        spelled = re.sub(r"[\w*]+", r"`\g<0>`", names)
        lines.append(f"- {spelled}{f' ({details})' if details else ''}: {escaped(meaning)}")
    return "\n".join(lines)


def text(documented: Any, types: dict[str, tuple[str, str]]) -> str:
    """A docstring as Markdown."""
    parts = []
    for title, body in sections(documented).items():
        if not title:
            parts.append(prose(body))
        elif title == "Example":
            parts.append(f"Example:\n\n```pycon\n{body}\n```")
        elif title in LISTS and items(body):
            parts.append(f"{LISTS[title]}:\n\n{described(items(body), types)}")
        else:
            parts.append(f"{title}: {prose(body)}")
    return "\n\n".join(parts)


def fields(documented: type) -> dict[str, tuple[str, str]]:
    """The type and the default of each attribute of a class."""
    found = {name: (annotation(kind), "") for name, kind in _annotations(documented)}
    if dataclasses.is_dataclass(documented):
        found |= parameters(documented)
    return found


def _annotations(documented: type) -> Iterator[tuple[str, Any]]:
    for each in reversed(documented.__mro__):
        yield from vars(each).get("__annotations__", {}).items()


def own(module: ModuleType, value: Any) -> bool:
    """Whether a module is where users look for a function or class."""
    home = getattr(value, "__module__", None) or ""
    return (inspect.isfunction(value) or inspect.isclass(value)) and (
        home == module.__name__ or home.startswith(f"{module.__name__}.")
    )


def function_of(member: Any) -> Any:
    """The function of a method or a property; None for anything else."""
    found = getattr(member, "func", getattr(member, "fget", getattr(member, "__func__", member)))
    return found if inspect.isfunction(found) else None


def members(value: type) -> dict[str, Any]:
    """The documented methods and properties that a class has of its own."""
    return {
        name: each
        for name, each in vars(value).items()
        if not name.startswith("_") and function_of(each) and function_of(each).__doc__
    }


def is_method(member: Any) -> bool:
    return callable(member) or isinstance(member, (staticmethod, classmethod))


def class_entry(name: str, value: type) -> list[str]:
    """What the page says of a class: its description, properties and methods."""
    made = not dataclasses.is_dataclass(value) and not issubclass(value, Exception)
    parts = [signature(name, value)] if made else []
    parts.append(text(value, fields(value) | (parameters(value) if made else {})))
    found = members(value)
    properties = {n: function_of(each) for n, each in found.items() if not is_method(each)}
    if properties:
        kinds = {
            n: (annotation(inspect.signature(f).return_annotation), "")
            for n, f in properties.items()
        }
        meanings = {n: " ".join(inspect.cleandoc(f.__doc__).split()) for n, f in properties.items()}
        parts.append(f"Properties:\n\n{described(meanings, kinds)}")
    for each, member in found.items():
        if is_method(member):
            function = function_of(member)
            parts += [
                f"#### {value.__name__}.{each}()",
                signature(f"{value.__name__}.{each}", function),
            ]
            parts.append(text(function, parameters(function)))
    return parts


def heading(name: str, value: Any) -> str:
    return f"Class {name}" if inspect.isclass(value) else f"{name}()"


def anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def spelled(public: str, name: str) -> str:
    """How `tt` has a name of a module: the function of a verb is the verb itself."""
    verb = ttanalyze.MODULES.get(public, "").startswith("verbs.") and name == public
    return name if not public or verb else f"{public}.{name}"


def entry(name: str, value: Any) -> str:
    """What the page says of a function or a class. name: how `tt` has it, as verify.verify."""
    if inspect.isclass(value):
        parts = class_entry(name.rpartition(".")[2], value)
    else:
        parts = [signature(f"tt.{name}", value), text(value, parameters(value))]
    return "\n\n".join(filter(None, (f"### {heading(name, value)}", *parts)))


def public_names() -> Iterator[tuple[str, ModuleType, dict[str, Any]]]:
    """Each public module: its name, the module, and its functions and classes, each once."""
    yield "", ttanalyze, {name: getattr(ttanalyze, name) for name in ttanalyze.VALUES}
    seen = {getattr(ttanalyze, name) for name in ttanalyze.VALUES}
    for public, private in ttanalyze.MODULES.items():
        module = import_module(f"ttanalyze.{private}")
        found = {}
        for name in sorted(getattr(module, "__all__", vars(module))):
            value = getattr(module, name)
            listed = hasattr(module, "__all__") or (own(module, value) and value.__doc__)
            if callable(value) and listed and not name.startswith("_") and value not in seen:
                found[name] = value
        seen |= {*found.values()}
        yield public, module, found


def contents() -> str:
    """The table of modules and names at the top of the page."""
    rows = ["| Module | Purpose | Names |", "|---|---|---|"]
    for public, module, found in public_names():
        links = (
            f"[{escaped(name)}](#{anchor(heading(spelled(public, name), value))})"
            for name, value in found.items()
        )
        title = f"ttanalyze.{public}" if public else "ttanalyze"
        purpose = prose(sections(module)[""].partition("\n\n")[0]).replace("|", "\\|")
        rows.append(f"| [{escaped(title)}](#{anchor(title)}) | {purpose} | {', '.join(links)} |")
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """The content of the page."""
    parts = [HEAD, contents()]
    for public, module, found in public_names():
        parts += [f"## ttanalyze.{public}" if public else "## ttanalyze"]
        parts += [text(module, {})] if public else []
        parts += [entry(spelled(public, n), value) for n, value in found.items()]
    return {PAGE: "\n\n".join(part.strip() for part in parts) + "\n"}
