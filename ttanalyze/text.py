"""How numbers, sizes and words are put for people."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable


def size(count: int) -> str:
    """Bytes with a binary unit: 1536 is "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def count(number: int, noun: str, plural: str = "") -> str:
    """ "1 epoch", "2 epochs"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listing(items: Iterable[tuple[str, int]]) -> str:
    """ "sync 8, final 1"."""
    return ", ".join(f"{name} {number:,}" for name, number in items)


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Two columns; the lines of a value stay in the second one."""
    pairs = list(pairs)
    width = max((len(key) for key, _ in pairs), default=0) + 2
    out = []
    for key, value in pairs:
        for i, line in enumerate(value.split("\n")):
            out.append((key if i == 0 else "").ljust(width) + line)
    return "\n".join(line.rstrip() for line in out)


def command(argv: list[str]) -> str:
    """A command line as one would type it, safe to print."""
    return printable(shlex.join(argv))


def printable(value: str) -> str:
    """The text without anything that a terminal would act on."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def coloured(value: str, colour: str, wanted: bool) -> str:
    """The text in "red", "green", "yellow" or "bold", where that is wanted."""
    codes = {"red": 31, "green": 32, "yellow": 33, "bold": 1}
    return f"\033[{codes[colour]}m{value}\033[0m" if wanted else value


def colours_wanted(descriptor: int) -> bool:
    """Whether a descriptor is a terminal whose user has not asked for plain text."""
    return (
        os.isatty(descriptor) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    )
