"""Launch configurations, and the set of those to try."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.output import text
from ttanalyze.verbs.replay.changes import Change, Three, parse_bounds, parse_three

RECORDED = "recorded"  # code, and a grid
TOTAL = "total"  # a grid of as many threads as were recorded
CACHES = {"none": 0, "shared": 1, "l1": 2, "equal": 3}  # CUfunc_cache
DEFAULT_BLOCKS = tuple((1 << n, 1, 1) for n in range(5, 11))
MOST = 1 << 20  # configurations of a grid search


@dataclass(frozen=True)
class Configuration:
    """A launch configuration.

    Attributes:
        code: "recorded", or the name and digest of a file.
        block: The threads of a block in x, y and z.
        grid: The blocks of the grid in x, y and z.
        shared: The dynamic shared memory in bytes.
        maxregs: The maximal number of registers per thread, None for the driver's choice.
        opt_level: The optimisation level of the PTX compiler, None for the driver's choice.
        cache: The cache preference: "none", "shared", "l1" or "equal", None for the driver's
            choice.
        launch_bounds: The most threads of a block and the least blocks of a multiprocessor, None
            as in the code.
        specialize: What becomes constants of the code: "args", "dims" or "all", None for nothing.

    Example:
        >>> one = tt.tune.Configuration("recorded", block=(128, 1, 1), grid=(4, 1, 1), shared=0)
        >>> one.cells()["block"]
        '128'
    """

    code: str
    block: Three
    grid: Three
    shared: int
    maxregs: int | None = None
    opt_level: int | None = None
    cache: str | None = None
    launch_bounds: tuple[int, int] | None = None
    specialize: str | None = None

    @property
    def change(self) -> Change:
        """The changes of the launch."""
        kept = ("grid", "block", "shared", "maxregs", "opt_level", "launch_bounds")
        return Change(
            **{name: getattr(self, name) for name in kept}, specialize=self.specialize or "none"
        )

    def cells(self) -> dict[str, str]:
        """Returns the values as text by name. The driver's choice is empty."""
        return {name: _text(getattr(self, name)) for name in NAMES}

    @classmethod
    def of_cells(cls, cells: Mapping[str, str]) -> Configuration:
        """Makes a configuration of the texts that `cells` returns.

        Args:
            cells: The texts by name.

        Raises:
            KeyError: A name is missing.
            ValueError: A text is no number.
            Error: A text is no size.
        """
        numbers = {name: cells[name] for name in ("maxregs", "opt_level")}
        return cls(
            cells["code"],
            parse_three(cells["block"], "block"),
            parse_three(cells["grid"], "grid"),
            int(cells["shared"]),
            **{name: int(text) if text else None for name, text in numbers.items()},
            cache=cells["cache"] or None,
            launch_bounds=parse_bounds(cells["launch_bounds"]) if cells["launch_bounds"] else None,
            specialize=cells["specialize"] or None,
        )


NAMES = tuple(field.name for field in fields(Configuration))
COMPILED = ("maxregs", "opt_level", "launch_bounds", "specialize")  # what needs PTX


@dataclass(frozen=True)
class Space:
    """A set of configurations: all combinations of the values of each attribute.

    Attributes:
        recorded: The recorded configuration.
        code: Codes.
        block: Block sizes.
        grid: Grid sizes, "recorded", or "total" (as many threads in each dimension as recorded).
        shared: Sizes of dynamic shared memory in bytes.
        maxregs: Maximal numbers of registers.
        opt_level: Optimisation levels.
        cache: Cache preferences.
        launch_bounds: Launch bounds.
        specialize: What becomes constants of the code.
        fixed: Codes that the driver does not compile, for which the attributes of COMPILED do not
            apply.
    """

    recorded: Configuration
    code: Sequence[str]
    block: Sequence[Three]
    grid: Sequence[Three | str]
    shared: Sequence[int]
    maxregs: Sequence[int | None]
    opt_level: Sequence[int | None]
    cache: Sequence[str | None]
    launch_bounds: Sequence[tuple[int, int] | None] = (None,)
    specialize: Sequence[str | None] = (None,)
    fixed: frozenset[str] = frozenset()

    @property
    def axes(self) -> dict[str, list[str]]:
        """The attributes with more than one value, as text by name. The last one changes
        fastest.
        """
        order = ("code", *COMPILED, "cache", "shared", "grid", "block")
        found = {name: [_text(value) for value in getattr(self, name)] for name in order}
        return {name: texts for name, texts in found.items() if len(texts) > 1}

    @property
    def size(self) -> int:
        """The number of combinations."""
        return math.prod(len(getattr(self, name)) for name in NAMES)

    def make(self, chosen: Mapping[str, int]) -> Configuration:
        """Returns one configuration.

        Args:
            chosen: Indices of values by attribute. Attributes that are not given have index 0.
        """
        at = {name: getattr(self, name)[chosen.get(name, 0)] for name in NAMES}
        if at["grid"] == RECORDED:
            at["grid"] = self.recorded.grid
        elif at["grid"] == TOTAL:
            sizes = zip(self.recorded.grid, self.recorded.block, at["block"], strict=True)
            x, y, z = (-(-grid * block // now) for grid, block, now in sizes)
            at["grid"] = x, y, z
        if at["code"] in self.fixed:
            at |= dict.fromkeys(COMPILED)
        return Configuration(**at)

    def choices(self) -> Iterator[dict[str, int]]:
        """Yields all indices of `axes`."""
        axes = {name: range(len(texts)) for name, texts in self.axes.items()}
        for positions in itertools.product(*axes.values()):
            yield dict(zip(axes, positions, strict=True))

    def all(self) -> Iterator[Configuration]:
        """Yields each configuration once.

        Raises:
            Error: There are more than 1,048,576 combinations.
        """
        if self.size > MOST:
            raise Error(f"{self.size:,} configurations: give fewer values, or --search optuna")
        seen = set()
        for choice in self.choices():
            made = self.make(choice)
            if made not in seen:
                seen.add(made)
                yield made


def recorded(launch: Launch) -> Configuration:
    """Returns the recorded configuration of a launch."""
    return Configuration(RECORDED, launch.block, launch.grid, launch.shared)


def space(launch: Launch, code: Sequence[str] = (), **axes: Sequence[Any] | None) -> Space:
    """Returns the configurations to try for a launch.

    An attribute without values keeps its recorded value. If nothing is given, blocks of 32 to 1024
    threads are tried.

    Args:
        launch: The launch, such as `plan.launch`.
        code: Codes to try besides the recorded one.
        axes: Values by attribute of Configuration, such as block=[(64, 1, 1)].
    """
    as_recorded = recorded(launch)
    given = {name: list(dict.fromkeys(values)) for name, values in axes.items() if values}
    if not given and not code:
        given["block"] = list(dict.fromkeys([*DEFAULT_BLOCKS, as_recorded.block]))
    made: dict[str, Any] = {name: given.get(name, [getattr(as_recorded, name)]) for name in NAMES}
    made["grid"] = given.get("grid", [TOTAL if "block" in given else RECORDED])
    made["code"] = [RECORDED, *code]
    return Space(as_recorded, **made)


# ---- texts ----


def _text(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == len(("threads", "blocks")):
        return f"{value[0]}/{value[1]}"
    return (
        text.extent(value, "x") if isinstance(value, tuple) else "" if value is None else str(value)
    )


def parse_grid(value: str) -> Three | str:
    """Parses a size, "total" or "recorded". Raises Error for any other text."""
    return value if value in (TOTAL, RECORDED) else parse_three(value, "--grids")
