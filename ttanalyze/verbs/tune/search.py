"""Search strategies: the order in which configurations are tried."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.verbs.tune.space import MOST, Configuration, Space
from ttanalyze.verbs.tune.table import Row

Search = Generator[Configuration, Row, None]
SEARCHES = ("grid", "random", "optuna")
TRIALS = 30  # of a search that need not end


def search(name: str, space: Space, trials: int | None, seed: int) -> Search:
    """Returns a generator of configurations that is sent the result of each.

    grid: all in order. random: all in random order. optuna: near good ones. trials: the maximal
    number. Raises Error for an unknown search, a space that is too large, or a missing package.
    """
    check(name)
    if name == "optuna":
        return _optuna(_package(), space, most(name, space, trials), seed)
    found = list(space.all())
    if name == "random":
        random.Random(seed).shuffle(found)
    return _sequence(found[: most(name, space, trials)])


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


def _optuna(optuna: Any, space: Space, trials: int, seed: int) -> Search:
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    axes = {name: _axis(optuna, getattr(space, name)) for name in space.axes}
    states = optuna.trial.TrialState
    others = _any(space, seed)
    known: set[Configuration] = set()
    while len(known) < trials:
        trial = study.ask(axes)
        configuration = space.make(trial.params)
        if configuration in known:  # what seems best is proposed over and over
            study.tell(trial, state=states.FAIL)
            choice = next(others, None)
            if choice is None:
                return
            study.enqueue_trial(choice)
            continue
        known.add(configuration)
        row = yield configuration
        if row.good:
            study.tell(trial, row.median_ms)
        else:  # which is worse than all others; of what failed nothing would be concluded
            study.tell(trial, state=states.PRUNED)


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
