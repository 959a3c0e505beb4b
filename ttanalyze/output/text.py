"""Formats numbers, sizes and texts for people."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable

NARROWEST = 16  # letters that a text in a table keeps


def size(count: int) -> str:
    """Returns bytes with a binary unit: 1536 is "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def duration(nanoseconds: float) -> str:
    """Returns nanoseconds with three digits and a unit: 1500 is "1.5 µs"."""
    value, unit = nanoseconds / 1e9, "s"
    for smaller in ("ms", "µs", "ns"):
        if value >= 1 or value == 0:
            break
        value, unit = value * 1000, smaller
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def count(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: "1 epoch", "2 epochs"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ranges(numbers: Iterable[int], shown: int = 8) -> str:
    """Returns ascending numbers in short: "0-3, 6". shown: the most parts."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    more = f" and {len(parts) - shown} more" if len(parts) > shown else ""
    return ", ".join("-".join(map(str, part)) for part in parts[:shown]) + more


def ranks(numbers: list[int]) -> str:
    """Returns ascending ranks in words: "rank 6", "ranks 0-2, 6"."""
    return f"{'ranks' if numbers[1:] else 'rank'} {ranges(numbers)}"


def coordinates(place: tuple[int, ...]) -> str:
    """Returns a block or thread: x, or x,y or x,y,z where these are not 0."""
    last = max((i for i, number in enumerate(place) if number), default=0)
    return ",".join(str(number) for number in place[: last + 1])


def listing(items: Iterable[tuple[str, int]]) -> str:
    """Returns counted items: "sync 8, final 1"."""
    return ", ".join(f"{name} {number:,}" for name, number in items)


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns two columns. All lines of a value stay in the second one."""
    pairs = list(pairs)
    width = max((len(key) for key, _ in pairs), default=0) + 2
    out = []
    for key, value in pairs:
        for i, line in enumerate(value.split("\n")):
            out.append((key if i == 0 else "").ljust(width) + line)
    return "\n".join(line.rstrip() for line in out)


def table(rows: list[list[str]], right: set[int], width: int = 0) -> str:
    """Returns aligned columns with a head.

    right: the columns that are aligned to the right. width: of the screen, 0 for no limit. Texts
    are cut to fit; then columns on the right are left out, and a last line says so.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    left = [i for i in range(len(widths)) if i not in right]
    shown = len(widths)
    if width:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        while over > 0 and left:
            widest = max(left, key=lambda i: widths[i])
            if widths[widest] <= NARROWEST:
                break
            cut = min(over, widths[widest] - NARROWEST)
            next_widest = max((widths[i] for i in left if i != widest), default=0)
            cut = min(cut, max(1, widths[widest] - next_widest))
            widths[widest] -= cut
            over -= cut
        while over > 0 and shown > 1:
            shown -= 1
            over -= widths[shown] + 2
    lines = []
    for row in rows:
        cells = []
        for i, (cell, room) in enumerate(zip(row[:shown], widths, strict=False)):
            cell = cell if len(cell) <= room else cell[: room - 1] + "…"
            cells.append(cell.rjust(room) if i in right else cell.ljust(room))
        lines.append("  ".join(cells).rstrip())
    if shown < len(widths):
        lines.append(f"… not shown for lack of room: {', '.join(rows[0][shown:])}")
    return "\n".join(lines)


def command(argv: list[str]) -> str:
    """Returns a command line as one would type it, without control characters."""
    return printable(shlex.join(argv))


def printable(value: str) -> str:
    """Escapes everything that a terminal would act on."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


OURS = re.compile("\033\\[(?:0|1|31|32|33)m")  # what coloured() adds
ODD = re.compile("[^\n\t -~]")


def screened(value: str, colour: bool) -> str:
    """Escapes what a terminal would act on, as JSON does, so JSON output keeps its meaning.

    colour: whether `coloured` added colours, which stay.
    """
    if not colour:
        return ODD.sub(_escaped, value)
    parts = zip(OURS.split(value), [*OURS.findall(value), ""], strict=True)
    return "".join(ODD.sub(_escaped, plain) + ours for plain, ours in parts)


def _escaped(found: re.Match[str]) -> str:
    if found[0].isprintable():
        return found[0]
    units = found[0].encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def coloured(value: str, colour: str, wanted: bool) -> str:
    """Returns the text in "red", "green", "yellow" or "bold", if wanted."""
    codes = {"red": 31, "green": 32, "yellow": 33, "bold": 1}
    return f"\033[{codes[colour]}m{value}\033[0m" if wanted else value


def colours_wanted(descriptor: int) -> bool:
    """Returns whether a descriptor is a terminal whose user has not asked for plain text."""
    return (
        os.isatty(descriptor) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    )


def extent(sizes: Iterable[int], sign: str = "") -> str:
    """Returns a grid or block without trailing axes of size 1: 16, (16, 8), or with a sign 16x8."""
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] <= 1:
        kept.pop()
    listed = (sign or ", ").join(map(str, kept))
    return listed if sign or len(kept) == 1 else f"({listed})"
