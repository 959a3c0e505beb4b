"""Line plots as SVG, for points that span many powers of ten. Needs nothing installed.

Text keeps to plain fonts and every plot has a white ground, so that it reads the same on pages of
any colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 46, 56
COLOURS = ("#1b6ca8", "#c2410c", "#3f7d20", "#7b2d8b", "#6b7280", "#a16207")
BAR, BETWEEN = 13, 14  # pixels: of a bar, and between groups
TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
Units = Sequence[tuple[float, str]]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """From low to high over `length` pixels. log: by powers of ten, where all is above 0."""

    low: float
    high: float
    log: bool
    length: float

    def at(self, value: float) -> float:
        """Pixels from the axis's beginning."""
        low, high, value = (self._scaled(v) for v in (self.low, self.high, value))
        return self.length * (value - low) / (high - low)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.log else value

    def ticks(self) -> list[float]:
        if not self.log:
            return [self.low + (self.high - self.low) * i / 5 for i in range(6)]
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        step = max(1, (last - first + 7) // 8)
        return [10.0**n for n in range(first, last + 1, step)]


def axis(values: Sequence[float], length: float, log: bool) -> Axis:
    """One that holds all values; from 0, or over whole powers of ten."""
    if not log:
        return Axis(0.0, _round_up(max(values)), False, length)
    positive = [v for v in values if v > 0] or [1.0]
    low = 10.0 ** math.floor(math.log10(min(positive)))
    high = 10.0 ** math.ceil(math.log10(max(positive)))
    return Axis(low, high if high > low else low * 10, True, length)


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 and their tenfolds."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= value * (1 - 1e-9))


def line_plot(
    title: str,
    x: str,
    y: str,
    series: Mapping[str, Points],
    log_x: bool,
    log_y: bool,
    units: Units = TIMES,
) -> str:
    """An SVG document. x, y: what the axes are of; units: of the points' y."""
    points = [point for of in series.values() for point in of]
    across = axis([px for px, _ in points], WIDTH - LEFT - RIGHT, log_x)
    up = axis([py for _, py in points], HEIGHT - TOP - BOTTOM, log_y)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 18, title, "start", 'font-weight="bold"'),
        *_grid(across, up, units),
        _text(LEFT + across.length / 2, HEIGHT - 12, x, "middle"),
        _text(16, TOP + up.length / 2, y, "middle", f'transform="rotate(-90 16 {_y(up, 0.5)})"'),
    ]
    step = min(200, (WIDTH - LEFT) // max(len(series), 1))
    for i, (name, of) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        out += _line(of, across, up, colour)
        out.append(_text(LEFT + 14 + step * i, 36, name, "start"))
        out.append(f'<circle cx="{LEFT + 5 + step * i}" cy="32" r="4" fill="{colour}"/>')
    return "\n".join([*out, "</svg>\n"])


def bar_plot(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """An SVG document: for each group a bar for each name, as long as its ratio, from 1 on.

    Ratios below 1 are drawn as 1. The axis has powers of ten.
    """
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    ratios = [ratio for bars in groups.values() for ratio in bars.values()]
    along = Axis(1.0, max(10.0, *ratios, 10.0) * 1.3, True, WIDTH - LEFT - RIGHT - 30)
    below = TOP + 8
    out = []
    for group, bars in groups.items():
        out.append(_text(LEFT - 8, below + BAR * len(bars) / 2 + 4, group, "end"))
        for name, ratio in bars.items():
            width = along.at(max(ratio, 1.0))
            colour = COLOURS[names.index(name) % len(COLOURS)]
            size = f'width="{_number(max(width, 1.0))}" height="{BAR - 2}"'
            out.append(f'<rect x="{LEFT}" y="{_number(below)}" {size} fill="{colour}"/>')
            shown = f"{ratio:.3g}\N{MULTIPLICATION SIGN}"
            out.append(_text(LEFT + width + 4, below + BAR - 3, shown, "start"))
            below += BAR
        below += BETWEEN
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {below}" width="{WIDTH}" '
        f'height="{below}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{below}" fill="#fff"/>',
        _text(12, 18, title, "start", 'font-weight="bold"'),
    ]
    step = (WIDTH - 12) // max(len(names), 1)
    for i, name in enumerate(names):
        head.append(
            f'<circle cx="{16 + step * i}" cy="34" r="4" fill="{COLOURS[i % len(COLOURS)]}"/>'
        )
        head.append(_text(24 + step * i, 38, name, "start"))
    return "\n".join([*head, *out, "</svg>\n"])


def _y(up: Axis, share: float) -> str:
    return _number(TOP + up.length * share)


def _grid(across: Axis, up: Axis, units: Units) -> list[str]:
    out = []
    bottom = TOP + up.length
    scale, unit = next((t for t in units if up.high > t[0]), units[-1])
    for value in across.ticks():
        px = LEFT + across.at(value)
        out.append(_rule(px, TOP, px, bottom))
        out.append(_text(px, bottom + 18, short(value), "middle"))
    for value in up.ticks():
        py = bottom - up.at(value)
        out.append(_rule(LEFT, py, LEFT + across.length, py))
        shown = in_units(value, units) if up.log else f"{value / scale:g} {unit}"
        out.append(_text(LEFT - 8, py + 4, shown, "end"))
    return out


def _line(points: Points, across: Axis, up: Axis, colour: str) -> list[str]:
    places = [(LEFT + across.at(px), TOP + up.length - up.at(py)) for px, py in points]
    path = " ".join(f"{_number(px)},{_number(py)}" for px, py in places)
    dots = [
        f'<circle cx="{_number(px)}" cy="{_number(py)}" r="3" fill="{colour}"/>'
        for px, py in places
    ]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    words = " ".join(f'{key}="{_number(value)}"' for key, value in ends.items())
    return f'<line {words} stroke="#d8d8d8"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    place = f'x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}"'
    return f'<text {place} fill="#222"{" " + more if more else ""}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def short(value: float) -> str:
    """A number in few characters: 1000 as 1k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def in_units(value: float, units: Units) -> str:
    """Returns a value in the largest unit that gives 1 or more."""
    for size, unit in units:
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} {units[-1][1]}"
