"""Delta debugging over the active delays of a configuration.

Invariant: each set of delays is asked for once. The search depends on the answers alone, so an
interrupted search continues if it gets its earlier answers.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ttanalyze.core import delays
from ttanalyze.errors import Error
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress

STRATEGIES = ("bisect", "linear")

Fails = Callable[[delays.Config], bool]


@checked
@dataclass(frozen=True)
class Point:
    """A delay of an instruction or of a call.

    Attributes:
        kernel: The key of the kernel in the configuration, None for a call.
        key: The key of the instruction or the call in the configuration.

    Example:
        >>> delay = {"stream": 1, "number": 3, "delay": 50_000, "on": True}
        >>> document = {"version": "1.0", "kernels": {}, "launches": {"1:3": delay}}
        >>> tt.reduce.Point(None, "1:3").member(tt.delays.Config(document))["delay"]
        50000
    """

    kernel: str | None
    key: str

    def member(self, config: delays.Config) -> dict[str, Any]:
        """Returns the entry of the delay in a configuration.

        Args:
            config: The configuration.
        """
        if self.kernel is None:
            found: dict[str, Any] = config.launches[self.key]
        else:
            found = config.kernels[self.kernel]["instrumentation_points"][self.key]
        return found


@dataclass(frozen=True)
class Answers:
    """The answers about one set of delays.

    Attributes:
        failed: The number of runs that failed.
        runs: The number of runs.
    """

    failed: int
    runs: int


@dataclass(frozen=True)
class Reduction:
    """The result of `reduce`.

    Attributes:
        points: The delays that are left.
        minimal: The configuration with only these.
        total: The number of active delays before.
        status: "reduced" (each delay is needed), "flaky" (it fails only sometimes) or "stopped"
            (the limit was reached).
        failures: The answers about the delays that are left.
        tests: The number of sets of delays that were tried.
        runs: The number of runs.
    """

    points: list[Point]
    minimal: delays.Config
    total: int
    status: str
    failures: Answers
    tests: int
    runs: int


class NothingError(Error):
    """There is nothing to reduce."""


class _LimitError(Exception):
    """The limit of runs is reached."""


def points_of(config: delays.Config) -> list[Point]:
    """Returns the active delays: kernel by kernel in the order of addresses, then calls."""
    found = [
        Point(name, key)
        for name, kernel in config.kernels.items()
        for key, point in sorted(kernel["instrumentation_points"].items(), key=lambda p: p[1]["pc"])
        if point["on"]
    ]
    return found + [Point(None, key) for key, call in config.launches.items() if call["on"]]


def with_points(config: delays.Config, points: Iterable[Point]) -> delays.Config:
    """Returns the configuration with only these delays active."""
    made = delays.Config(copy.deepcopy(config.document))
    for kernel in made.kernels.values():
        for point in kernel["instrumentation_points"].values():
            point["on"] = False
    for call in made.launches.values():
        call["on"] = False
    for point in points:
        point.member(made)["on"] = True
    return made


def reduce(
    config: delays.Config,
    fails: Fails,
    *,
    strategy: str = "bisect",
    confidence: int = 1,
    limit: int = 0,
    seconds: float = 0,
    first: Iterable[Sequence[int]] = (),
    known: dict[frozenset[int], Answers] | None = None,
    progress: Progress = None,
) -> Reduction:
    """Removes delays as long as it still fails with the others.

    Args:
        config: The configuration.
        fails: Returns whether it fails with a configuration.
        strategy: "bisect" or "linear".
        confidence: The maximal number of runs of each set. A set fails if more than half of them
            do.
        limit: The maximal number of runs, 0 for no limit.
        seconds: No run begins after this time, 0 for no limit.
        first: Sets of delays that are tried alone first, by indices into `points_of`.
        known: Answers from before, by indices into `points_of`. New answers are added.
        progress: Called with the settled and the total number of delays.

    Raises:
        NothingError: No delay is active, it does not fail with all of them, or it fails without
            any.

    Source:
        A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.

    Example:
        >>> delay = {"stream": 1, "delay": 50_000, "on": True, "where": "stream"}
        >>> calls = {f"1:{i}": delay | {"number": i} for i in range(8)}
        >>> document = {"version": "1.0", "delay_ns": 0, "kernels": {}, "launches": calls}
        >>> def fails(config):
        ...     return config.launches["1:3"]["on"]
        >>> found = tt.reduce(tt.delays.Config(document), fails)
        >>> [point.key for point in found.points], found.status, found.total
        (['1:3'], 'reduced', 8)
    """
    if strategy not in STRATEGIES:
        raise Error(f"--strategy {strategy}: must be one of {', '.join(STRATEGIES)}")
    if confidence < 1 or limit < 0:
        raise Error("--confidence: expected 1 or more")
    points = points_of(config)
    if not points:
        raise NothingError("this configuration has no active delays")
    search = _Search(config, points, fails, confidence, limit, {} if known is None else known)
    search.progress = progress
    search.until = time.monotonic() + seconds if seconds else None
    status = "reduced"
    try:
        search.begin(first)
        (search.bisect if strategy == "bisect" else search.linear)()
        answers = search.settle()
        status = "flaky" if answers.failed < answers.runs else "reduced"
    except _LimitError:
        status = "stopped"
    left = [points[i] for i in search.left]
    answers = search.known.get(frozenset(search.left), Answers(0, 0))
    runs = sum(a.runs for a in search.known.values())
    minimal = with_points(config, left)
    return Reduction(left, minimal, len(points), status, answers, len(search.known), runs)


class _Search:
    """The state of a search. left: the delays that are not removed yet; it fails with them."""

    def __init__(
        self,
        config: delays.Config,
        points: Sequence[Point],
        fails: Fails,
        confidence: int,
        limit: int,
        known: dict[frozenset[int], Answers],
    ) -> None:
        self._config, self._points, self._ask = config, points, fails
        self._confidence, self._limit = confidence, limit
        self.known = known
        self.left = list(range(len(points)))
        self.progress: Progress = None
        self.until: float | None = None
        self._needed = 0  # of those that are left, known to be

    def begin(self, first: Iterable[Sequence[int]]) -> None:
        for some in first:
            if some and len(some) < len(self.left) and self._fails(some):
                self._leave(sorted(some))
                break
        else:
            self._require_all()
        if self._fails([]):
            raise NothingError("the test fails without any delay")

    def _require_all(self) -> None:
        if not self._fails(self.left):
            raise NothingError("the test does not fail with all delays of this configuration")

    def linear(self) -> None:
        """Tries to remove one delay after the other."""
        for i in list(self.left):
            without = [j for j in self.left if j != i]
            if without and self._fails(without):
                self._leave(without)
            else:
                self._needed += 1
                self._tell()

    def bisect(self) -> None:
        """Tries parts alone, then all but a part, in ever smaller parts (ddmin)."""
        count = 2
        while len(self.left) > 1:
            count = min(count, len(self.left))
            parts = _parts(self.left, count)
            rests = [[i for i in self.left if i not in set(part)] for part in parts]
            if (part := self._first(parts)) is not None:
                self._leave(part)
                count = 2
            elif count > 2 and (rest := self._first(rests)) is not None:
                self._leave(rest)
                count -= 1
            elif count == len(self.left):
                break
            else:
                count *= 2

    def settle(self) -> Answers:
        """Tries the delays that are left as often as `confidence` says."""
        return self._answers(self.left, whole=True)

    def _first(self, sets: Iterable[list[int]]) -> list[int] | None:
        return next((points for points in sets if self._fails(points)), None)

    def _leave(self, points: list[int]) -> None:
        self.left = points
        self._tell()

    def _tell(self) -> None:
        if self.progress:
            settled = len(self._points) - len(self.left) + self._needed
            self.progress(settled, len(self._points))

    def _fails(self, points: Sequence[int]) -> bool:
        answers = self._answers(points, whole=False)
        return 2 * answers.failed > self._confidence

    def _answers(self, points: Sequence[int], whole: bool) -> Answers:
        """Tries a set. whole: as often as `confidence` says, else until the answer is certain."""
        key = frozenset(points)
        answers = self.known.get(key, Answers(0, 0))
        config = None
        while answers.runs < self._confidence:
            passed = answers.runs - answers.failed
            decided = 2 * max(answers.failed, passed) > self._confidence
            if decided and not whole:
                break
            if self._limit and sum(a.runs for a in self.known.values()) >= self._limit:
                raise _LimitError
            if self.until is not None and time.monotonic() > self.until:
                raise _LimitError
            config = config or with_points(self._config, [self._points[i] for i in points])
            failed = self._ask(config)
            answers = Answers(answers.failed + failed, answers.runs + 1)
            self.known[key] = answers
        return answers


def _parts(points: list[int], count: int) -> list[list[int]]:
    """Splits delays into parts of about the same size."""
    bounds = [len(points) * i // count for i in range(count + 1)]
    return [points[a:b] for a, b in itertools.pairwise(bounds)]
