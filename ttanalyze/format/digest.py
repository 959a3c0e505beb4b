"""Digests of many short inputs at once, by the native library that also loads contents.

Raise Error where the package was not built.
"""

from __future__ import annotations

import numpy as np

from ttanalyze._format import ffi
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.util import libraries


def checks_of(records: Array) -> Array:
    """What `check` of each record has to be, going by its other members: uint64, of tt_event
    uint32.
    """
    kind = records.dtype
    assert kind.fields is not None
    check, covered = kind.fields["check"][:2]
    return _digests(records, np.empty(len(records), check), covered)


def wrong_event(slots: Array) -> int | None:
    """The first of these slots, of those in use, that does not match its check or is no event."""
    at, kinds = ffi.cast("void *", slots.ctypes.data), len(layout.EVENT_KINDS)
    first = int(libraries.toolkit().tt_wrong_event(at, len(slots), kinds))
    return first if first < len(slots) else None


def digests_of_words(words: Array) -> Array:
    """XXH3-64, seed 0, of each uint64 as 8 little-endian bytes, as uint64: what a region of one
    block has.
    """
    return _digests(words, np.empty(len(words), "u8"), words.itemsize)


def _digests(items: Array, out: Array, covered: int) -> Array:
    items = np.ascontiguousarray(items)
    at, to = ffi.cast("void *", items.ctypes.data), out.ctypes.data
    if items.dtype == layout.EVENT:
        libraries.toolkit().tt_event_checks(at, len(items), ffi.cast("uint32_t *", to))
    else:
        to = ffi.cast("uint64_t *", to)
        libraries.toolkit().tt_digests(at, len(items), items.itemsize, covered, to)
    return out
