"""Sums over sets of intervals of time, such as the times in which a GPU ran kernels.

A set is two ascending arrays of begins and ends, of intervals that neither overlap nor touch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format.layout import Array


@dataclass(frozen=True)
class Intervals:
    """A set of times. begins, ends: int64 nanoseconds, ascending."""

    begins: Array
    ends: Array

    @classmethod
    def of(cls, begins: Array, ends: Array) -> Intervals:
        """Returns the union of intervals in any order."""
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order].astype("i8"), ends[order].astype("i8")
        latest = np.maximum.accumulate(ends)
        first = np.append(True, begins[1:] > latest[:-1])[: len(begins)]
        last = np.append(first[1:], True)[: len(begins)]
        return cls(begins[first], latest[last])

    def union(self, other: Intervals) -> Intervals:
        """Returns the times in either set."""
        return Intervals.of(
            np.concatenate([self.begins, other.begins]), np.concatenate([self.ends, other.ends])
        )

    def gaps(self) -> Intervals:
        """Returns the times between the intervals."""
        return Intervals(self.ends[:-1], self.begins[1:])

    def before(self, times: Array) -> Array:
        """Returns how much of the set is before each time, in nanoseconds."""
        if not len(self.begins):
            return np.zeros(len(times), "i8")
        sums = np.concatenate([[0], np.cumsum(self.ends - self.begins)])
        at = np.searchsorted(self.begins, times, "right") - 1  # the last that began by then
        begun = at >= 0
        at = np.maximum(at, 0)
        inside = np.minimum(times, self.ends[at]) - self.begins[at]
        return np.where(begun, sums[at] + inside, 0)

    def within(self, first: Array, last: Array) -> Array:
        """Returns how much of the set is in each window, in nanoseconds."""
        return self.before(last) - self.before(first)
