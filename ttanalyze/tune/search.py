"""In which order configurations are tried: each search gives one, and is told what came of it."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.tune.space import Configuration, Space
from ttanalyze.tune.table import Row

Search = Generator[Configuration, Row, None]
SEARCHES = ("grid", "random", "optuna")
TRIALS = 30  # of a search that need not end
REPEATS = 200  # proposals of what is known already, after which there is nothing left


def search(name: str, space: Space, trials: int | None, seed: int) -> Search:
    """grid: all, in order; random: all, in any order; optuna: where the last were good. trials: how
    many at most. Raises Error for an unknown search, a space that is too large, and where a
    package is missing.
    """
    check(name)
    if name == "grid":
        return _sequence(list(space.all())[:trials])
    if name == "random":
        found = list(space.all())
        random.Random(seed).shuffle(found)
        return _sequence(found[:trials])
    return _optuna(_package(), space, TRIALS if trials is None else trials, seed)


def check(name: str) -> None:
    """Raises Error for an unknown search, and where a package is missing."""
    if name not in SEARCHES:
        raise Error(f"--search {name}: there are {', '.join(SEARCHES)}")
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
    categorical = optuna.distributions.CategoricalDistribution
    axes = {name: categorical(list(range(len(of)))) for name, of in space.axes.items()}
    failed = optuna.trial.TrialState.FAIL
    known: dict[Configuration, Row] = {}
    repeats = 0
    while len(known) < min(trials, space.size) and repeats < REPEATS:
        trial = study.ask(axes)
        configuration = space.make(trial.params)
        repeats = repeats + 1 if configuration in known else 0
        row = known.get(configuration)
        if row is None:
            row = known[configuration] = yield configuration
        if row.good:
            study.tell(trial, row.median_ms)
        else:
            study.tell(trial, state=failed)
