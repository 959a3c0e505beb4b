"""XXH3 digests of many short inputs at once, by the native library.

All functions raise Error if the package was not built.
"""

from __future__ import annotations

import numpy as np

from ttanalyze._format import ffi
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.util import libraries


def checks_of(records: Array) -> Array:
    """Returns the value that `check` of each record must have: uint64, for tt_event uint32."""
    kind = records.dtype
    assert kind.fields is not None
    check, covered = kind.fields["check"][:2]
    return _digests(records, np.empty(len(records), check), covered)


def wrong_event(slots: Array) -> int | None:
    """Returns the first used slot that does not match its check or is no event."""
    at, kinds = ffi.cast("void *", slots.ctypes.data), len(layout.EVENT_KINDS)
    first = int(libraries.toolkit().tt_wrong_event(at, len(slots), kinds))
    return first if first < len(slots) else None


def digests_of_words(words: Array) -> Array:
    """Returns XXH3-64 with seed 0 of each uint64 as 8 little-endian bytes: the digest of a region
    of one block.
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
