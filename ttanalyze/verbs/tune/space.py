"""Launch configurations, and all those that are to be tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.output import text

Three = tuple[int, int, int]
RECORDED = "recorded"  # code, and a grid
TOTAL = "total"  # a grid of as many threads as were recorded
CACHES = {"none": 0, "shared": 1, "l1": 2, "equal": 3}  # CUfunc_cache
DEFAULT_BLOCKS = tuple((1 << n, 1, 1) for n in range(5, 11))
MOST = 1 << 20  # configurations of a grid search


@dataclass(frozen=True)
class Configuration:
    """One way to launch. code: "recorded", or a file's name and digest. shared: bytes of dynamic
    shared memory. maxregs, opt_level, cache: None as the driver has it.
    """

    code: str
    block: Three
    grid: Three
    shared: int
    maxregs: int | None = None
    opt_level: int | None = None
    cache: str | None = None

    def cells(self) -> dict[str, str]:
        """As texts, by name; empty where the driver chooses."""
        return {name: _text(getattr(self, name)) for name in NAMES}

    @classmethod
    def of_cells(cls, cells: Mapping[str, str]) -> Configuration:
        """The other way round. Raises ValueError, KeyError or Error for what is none."""
        numbers = {name: cells[name] for name in ("maxregs", "opt_level")}
        return cls(
            cells["code"],
            parse_three(cells["block"], "block"),
            parse_three(cells["grid"], "grid"),
            int(cells["shared"]),
            **{name: int(text) if text else None for name, text in numbers.items()},
            cache=cells["cache"] or None,
        )


NAMES = tuple(field.name for field in fields(Configuration))


@dataclass(frozen=True)
class Space:
    """What is to be tried: all combinations. grids: also "total", for as many threads as were
    recorded in each dimension, and "recorded". fixed: code that the driver does not compile, so
    that there is nothing to choose of maxregs and opt_level.
    """

    recorded: Configuration
    code: Sequence[str]
    block: Sequence[Three]
    grid: Sequence[Three | str]
    shared: Sequence[int]
    maxregs: Sequence[int | None]
    opt_level: Sequence[int | None]
    cache: Sequence[str | None]
    fixed: frozenset[str] = frozenset()

    @property
    def axes(self) -> dict[str, list[str]]:
        """What there is to choose of each thing of which there are several, as texts by name. The
        first change least often.
        """
        order = ("code", "maxregs", "opt_level", "cache", "shared", "grid", "block")
        found = {name: [_text(value) for value in getattr(self, name)] for name in order}
        return {name: texts for name, texts in found.items() if len(texts) > 1}

    @property
    def size(self) -> int:
        return math.prod(len(getattr(self, name)) for name in NAMES)

    def make(self, chosen: Mapping[str, int]) -> Configuration:
        """The configuration with these positions on the axes, and the first of all else."""
        at = {name: getattr(self, name)[chosen.get(name, 0)] for name in NAMES}
        if at["grid"] == RECORDED:
            at["grid"] = self.recorded.grid
        elif at["grid"] == TOTAL:
            sizes = zip(self.recorded.grid, self.recorded.block, at["block"], strict=True)
            x, y, z = (-(-grid * block // now) for grid, block, now in sizes)
            at["grid"] = x, y, z
        if at["code"] in self.fixed:
            at["maxregs"] = at["opt_level"] = None
        return Configuration(**at)

    def choices(self) -> Iterator[dict[str, int]]:
        """All positions on the axes."""
        axes = {name: range(len(texts)) for name, texts in self.axes.items()}
        for positions in itertools.product(*axes.values()):
            yield dict(zip(axes, positions, strict=True))

    def all(self) -> Iterator[Configuration]:
        """Each once. Raises Error where they are too many to be tried one after the other."""
        if self.size > MOST:
            raise Error(f"{self.size:,} configurations: give fewer values, or --search optuna")
        seen = set()
        for choice in self.choices():
            made = self.make(choice)
            if made not in seen:
                seen.add(made)
                yield made


def recorded(launch: Launch) -> Configuration:
    """The configuration that was recorded."""
    return Configuration(RECORDED, launch.block, launch.grid, launch.shared)


def space(launch: Launch, code: Sequence[str] = (), **axes: Sequence[Any] | None) -> Space:
    """All combinations of what is given: of what is not, as it was recorded, and of a launch of
    which nothing at all is given, blocks of 32 to 1024 threads. code: in the recorded one's place.
    Raises Error for what can't be.
    """
    own = recorded(launch)
    given = {name: list(dict.fromkeys(values)) for name, values in axes.items() if values}
    if not given and not code:
        given["block"] = list(dict.fromkeys([*DEFAULT_BLOCKS, own.block]))
    made: dict[str, Any] = {name: given.get(name, [getattr(own, name)]) for name in NAMES}
    made["grid"] = given.get("grid", [TOTAL if "block" in given else RECORDED])
    made["code"] = [RECORDED, *code]
    return Space(own, **made)


# ---- texts ----


def _text(value: Any) -> str:
    return (
        text.extent(value, "x") if isinstance(value, tuple) else "" if value is None else str(value)
    )


def parse_three(value: str, what: str) -> Three:
    """A size of up to three numbers, such as 128 or 16x16. Raises Error for what is none."""
    parts = value.split("x")
    if not 1 <= len(parts) <= 3 or not all(p.isdecimal() and 0 < int(p) < 1 << 31 for p in parts):
        raise Error(f"{what} {value}: expected a size such as 128, 16x16 or 8x8x4")
    x, y, z = (int(part) for part in [*parts, "1", "1"][:3])
    return x, y, z


def parse_grid(value: str) -> Three | str:
    """The same, or "total" or "recorded"."""
    return value if value in (TOTAL, RECORDED) else parse_three(value, "--grids")
