"""Conditions on configurations, in the syntax of `query --filter`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ttanalyze.verbs.query.expression import Expression
from ttanalyze.verbs.tune.search import Allowed
from ttanalyze.verbs.tune.space import Configuration

SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
COLUMNS = (
    *SIZES,
    *("blocks", "threads", "shared", "maxregs", "opt_level", "cache", "code"),
    *("max_threads", "min_blocks", "specialize"),
)


def constraints(texts: Sequence[str]) -> Allowed | None:
    """Returns a function that says which configurations fulfil all conditions, None for none.

    Raises Error if a text is no condition on COLUMNS.
    """
    if not texts:
        return None
    expression = Expression(texts, COLUMNS, "a configuration", "--where")

    def allowed(found: Sequence[Configuration]) -> list[bool]:
        return [bool(holds) for holds in expression.rows(_frame(found))] if found else []

    return allowed


def _frame(found: Sequence[Configuration]) -> pd.DataFrame:
    sizes = np.array([(*one.grid, *one.block) for one in found], np.int64).reshape(-1, len(SIZES))
    columns = dict(zip(SIZES, sizes.T, strict=True))
    bounds = [one.launch_bounds or (0, 0) for one in found]
    return pd.DataFrame(
        {
            **columns,
            "blocks": sizes[:, :3].prod(axis=1),
            "threads": sizes[:, 3:].prod(axis=1),
            "shared": [one.shared for one in found],
            "maxregs": [one.maxregs or 0 for one in found],
            "opt_level": [-1 if one.opt_level is None else one.opt_level for one in found],
            "cache": pd.Categorical([one.cache or "none" for one in found]),
            "code": pd.Categorical([one.code.partition(":")[0] for one in found]),
            "max_threads": [most for most, _ in bounds],
            "min_blocks": [least for _, least in bounds],
            "specialize": pd.Categorical([one.specialize or "none" for one in found]),
        }
    )
