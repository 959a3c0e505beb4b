"""The regions and the epochs of one context that correspond in two processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.diff import match
from ttanalyze.verbs.diff.histories import history
from ttanalyze.verbs.diff.match import MatchedCalls, MatchedRegions
from ttanalyze.verbs.diff.sides import Calls, Side
from ttanalyze.verbs.diff.uses import used_alike


@dataclass(frozen=True)
class Pairing:
    """What corresponds.

    regions: all pairs. equal: which of them have equal sizes. usable: of each side, the epochs that
    say what memory was. unsure: of each side, how many others were left out because other threads
    submitted work as they were cut. epochs: the pairs of epochs, ascending.
    """

    calls: MatchedCalls | None
    regions: MatchedRegions
    equal: Array
    usable: tuple[Array, Array]
    unsure: tuple[int, int]
    epochs: tuple[Array, Array]

    @property
    def same_size(self) -> MatchedRegions:
        """The pairs of regions of equal sizes."""
        of = self.regions
        return MatchedRegions(of.a, of.b, of.rows_a[self.equal], of.rows_b[self.equal])


def match_context(
    a: Side, b: Side, context: int, calls_a: Calls | None, calls_b: Calls | None
) -> Pairing:
    """Matches the calls, the regions and the epochs of one context. calls_a, calls_b: of all
    contexts, None if they are unknown.
    """
    calls, regions = match_memory(a, b, context, calls_a, calls_b)
    equal = regions.a.size[regions.rows_a] == regions.b.size[regions.rows_b]
    alike = MatchedRegions(regions.a, regions.b, regions.rows_a[equal], regions.rows_b[equal])
    usable = [np.flatnonzero(s.usable & (s.context == context)) for s in (a, b)]
    unsure = [0, 0]
    if calls is not None:
        for i, (side, of) in enumerate(((a, calls.a), (b, calls.b))):
            usable[i], unsure[i] = _settled(side, usable[i], of)
    epochs = match.match_epochs(
        a,
        b,
        usable[0],
        usable[1],
        calls,
        lambda: [history(s, usable[i], alike, i) for i, s in enumerate((a, b))],
    )
    return Pairing(calls, regions, equal, (usable[0], usable[1]), (unsure[0], unsure[1]), epochs)


def match_memory(
    a: Side, b: Side, context: int, calls_a: Calls | None, calls_b: Calls | None
) -> tuple[MatchedCalls | None, MatchedRegions]:
    """Matches the calls and the regions of one context, as match_context does."""
    calls, used = None, None
    if calls_a is not None and calls_b is not None:
        calls = match.match_calls(calls_a.of_context(context), calls_b.of_context(context))
        if a.process is not None and b.process is not None:
            used = partial(used_alike, a.process, b.process, calls)
    return calls, match.match_regions(
        a.regions.where(a.regions.context == context),
        b.regions.where(b.regions.context == context),
        calls,
        used,
    )


def _settled(side: Side, epochs: Array, calls: Calls) -> tuple[Array, int]:
    """Returns the epochs with known coverage and the number of others, and corrects their cuts."""
    if not match.several_threads(calls):
        return epochs, 0
    side.cut[epochs], sure = match.settled_cuts(side, epochs, calls)
    return epochs[sure], int(np.count_nonzero(~sure))
