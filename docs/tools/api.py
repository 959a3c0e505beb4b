"""Makes docs/python.md from the docstrings of the public modules."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import ttanalyze

PAGE = Path(__file__).resolve().parents[1] / "python.md"
HEAD = """# From Python

`import ttanalyze as tt` gives the names below. To see them at work:

- [Open a run in Python](guides/open-a-run.md)
- [Tables](reference/tables.md): every table and column
- [Guides](guides/index.md): one task each
"""


def escaped(words: str) -> str:
    """Words of which nothing is markup but what is between backticks."""
    parts = re.split(r"(`[^`\n]+`)", words)
    parts[::2] = [re.sub(r"([<>*_`\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def text(documented: Any) -> str:
    """A docstring as Markdown. Parameters and members that it describes become a list."""
    names = set(re.findall(r"(\w+):", signature("", documented)))
    names |= {*getattr(documented, "__annotations__", ()), *vars(documented)}
    names |= {name.removesuffix("_a") for name in names}
    found = []
    for paragraph in inspect.cleandoc(documented.__doc__ or "").split("\n\n"):
        parts = re.split(r"(?:^|(?<=[.;]) )((?:\w+, )*\w+): ", " ".join(paragraph.split()))
        lines = [parts[0]]
        for spelled, meaning in zip(parts[1::2], parts[2::2], strict=True):
            if set(spelled.split(", ")) <= names or (
                inspect.isclass(documented) and spelled.islower()
            ):
                lines.append(f"- `{spelled}`: {meaning}")
            else:
                lines[-1] += f" {spelled}: {meaning}"
        described = "\n".join(map(escaped, lines[1:]))
        found.append("\n\n".join(filter(None, (escaped(lines[0].strip()), described))))
    return "\n\n".join(found)


def signature(name: str, function: Any) -> str:
    try:
        found = str(inspect.signature(function))
    except (TypeError, ValueError):
        return name
    found = re.sub(r"ForwardRef\(([^()]*)\)", r"\1", found.replace("'", ""))
    return name + re.sub(r"<[^>]*>", "…", found)


def own(module: ModuleType, value: Any) -> bool:
    """Whether a module is where users look for a function or class."""
    home = getattr(value, "__module__", None) or ""
    return (inspect.isfunction(value) or inspect.isclass(value)) and (
        home == module.__name__ or home.startswith(f"{module.__name__}.")
    )


def member(name: str, value: Any) -> str:
    wrapped = getattr(value, "func", getattr(value, "fget", getattr(value, "__func__", value)))
    if name.startswith("_") or not (inspect.isfunction(wrapped) and wrapped.__doc__):
        return ""
    spelled = name if wrapped is not value and not callable(value) else signature(name, wrapped)
    return f"- `{spelled}`: " + text(wrapped).replace("\n", "\n    ").replace("    \n", "\n")


def entry(name: str, value: Any) -> str:
    parts = [f"### {name}", f"```python\n{signature(name, value)}\n```"]
    if not (value.__doc__ or "").startswith(f"{name}("):  # else it is made of the signature
        parts.append(text(value))
    if inspect.isclass(value):
        members = [member(each, what) for each, what in vars(value).items()]
        apart = "\n\n" if any("\n" in each for each in members) else "\n"
        parts.append(apart.join(filter(None, members)))
    return "\n\n".join(filter(None, parts))


def pages() -> dict[Path, str]:
    """What the file is to hold."""
    parts = [HEAD, "## ttanalyze"]
    parts += [entry(name, getattr(ttanalyze, name)) for name in ttanalyze.VALUES]
    for public, private in ttanalyze.MODULES.items():
        module = import_module(f"ttanalyze.{private}")
        found = {n: v for n, v in vars(module).items() if not n.startswith("_") and own(module, v)}
        first = text(module).partition("\n\n")[0]
        parts += [f"## ttanalyze.{public}", first]
        parts += [entry(n, found[n]) for n in sorted(found) if found[n].__doc__]
    return {PAGE: "\n\n".join(part.strip() for part in parts) + "\n"}
