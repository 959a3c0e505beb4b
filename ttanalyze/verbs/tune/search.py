"""Search strategies: the order in which configurations are tried."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.verbs.tune.space import MOST, Configuration, Space
from ttanalyze.verbs.tune.table import Row

Search = Generator[Configuration, Sequence[Row], None]
Allowed = Callable[[Sequence[Configuration]], Sequence[bool]]
SEARCHES = ("auto", "grid", "random", "optuna")
TRIALS = 30  # of a search that need not end


def search(
    name: str, space: Space, trials: int | None, seed: int, allowed: Allowed | None = None
) -> Search:
    """Returns a generator of configurations. Each time it is sent the results since.

    grid: all in order. random: all in random order. optuna: near good ones. trials: the maximal
    number. allowed: says which configurations may be tried. Raises Error for an unknown search, a
    space that is too large, or a missing package.
    """
    check(name)
    if name == "optuna":
        return _optuna(_package(), space, most(name, space, trials), seed, allowed)
    found = list(space.all())
    if allowed is not None:
        found = [one for one, may in zip(found, allowed(found), strict=True) if may]
    if name == "random":
        random.Random(seed).shuffle(found)
    return _sequence(found[: most(name, space, trials)])


def chosen(name: str, space: Space, trials: int | None) -> str:
    """Returns the search that "auto" stands for: optuna if it is installed and not all
    configurations are tried, else grid.
    """
    if name != "auto":
        return name
    there = importlib.util.find_spec("optuna") is not None
    return "optuna" if there and space.size > (trials or TRIALS) else "grid"


def most(name: str, space: Space, trials: int | None) -> int:
    """Returns the maximal number of configurations of a search."""
    return min(space.size, trials or (TRIALS if name == "optuna" else space.size))


def check(name: str) -> None:
    """Raises Error for an unknown search or a missing package."""
    if name not in SEARCHES:
        raise Error(f"--search {name}: must be one of {', '.join(SEARCHES)}")
    if name == "optuna":
        _package()


def _sequence(configurations: Sequence[Configuration]) -> Search:
    for configuration in configurations:  # noqa: UP028, which would pass on what came of it
        yield configuration


def _package() -> Any:
    try:
        import optuna
    except ImportError:
        raise Error("--search optuna needs optuna: pip install 'ttanalyze[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _optuna(optuna: Any, space: Space, trials: int, seed: int, allowed: Allowed | None) -> Search:
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    axes = {name: _axis(optuna, getattr(space, name)) for name in space.axes}
    states = optuna.trial.TrialState
    others = _any(space, seed)
    known: dict[Configuration, Any] = {}
    tried = 0
    while tried < trials:
        trial = study.ask(axes)
        configuration = space.make(trial.params)
        if configuration in known:  # what seems best is proposed over and over
            study.tell(trial, state=states.FAIL)
            choice = next(others, None)
            if choice is None:
                return
            study.enqueue_trial(choice)
            continue
        known[configuration] = trial
        if allowed is not None and not allowed([configuration])[0]:
            study.tell(trial, state=states.PRUNED)
            continue
        tried += 1
        for row in (yield configuration):
            if row.good:
                study.tell(known[row.configuration], row.median_ms)
            else:  # which is worse than all others; of what failed nothing would be concluded
                study.tell(known[row.configuration], state=states.PRUNED)


def _axis(optuna: Any, values: Sequence[Any]) -> Any:
    """Returns a distribution over values. If they ascend, neighbours of a good one are likely
    good.
    """
    if all(isinstance(value, (int, tuple)) for value in values) and list(values) == sorted(values):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(list(range(len(values))))


def _any(space: Space, seed: int) -> Iterator[dict[str, int]]:
    """Yields indices on the axes in random order: all, or some if there are too many to list."""
    rng = random.Random(seed)
    if space.size <= MOST:
        found = list(space.choices())
        rng.shuffle(found)
        yield from found
        return
    for _ in range(MOST):
        yield {name: rng.randrange(len(of)) for name, of in space.axes.items()}
