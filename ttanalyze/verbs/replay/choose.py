"""Selects the launch to repeat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format.process import Process
from ttanalyze.verbs.replay.plan import Plan, launches, none_of, plan

TRIES = 200  # launches of a kernel that are looked at


def choose(
    process: Process, launch: int | None, kernel: str | None, check: Callable[[Plan], None]
) -> Plan:
    """Returns the launch with a sequence number, or the first of a matching kernel, that can be
    repeated and passes a check.

    kernel: a regular expression. check: raises Error. Raises Error with the first reason if there
    is none.
    """
    if (launch is None) == (kernel is None):
        raise Error("--launch N or --kernel REGEX is required; `ttanalyze query` lists launches")
    seqs = np.array([launch]) if launch is not None else launches(process, kernel)["seq"]
    if not len(seqs):
        raise Error(none_of(process, kernel))
    kept = np.isin(seqs, process.launches["seq"])  # which most likely can
    reasons = []
    for seq in [*seqs[kept].tolist(), *seqs[~kept].tolist()][:TRIES]:
        try:
            found = plan(process, seq)
            check(found)
            return found
        except Error as e:
            reasons.append(str(e))
    many = f" ({len(reasons) - 1:,} more can't either)" if len(reasons) > 1 else ""
    raise Error(f"{reasons[0]}{many}")
