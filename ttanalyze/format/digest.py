"""XXH3 digests of many inputs at once, by the native library where they are short.

All functions raise Error if the package was not built.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from ttanalyze._format import ffi
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.util import libraries

SHORT = 2048  # bytes; xxhash uses wider instructions, which pays for a call for each longer input


def checks_of(records: Array) -> Array:
    """Returns the value that `check` of each record must have: uint64, for tt_event uint32."""
    kind = records.dtype
    assert kind.fields is not None
    check, covered = kind.fields["check"][:2]
    return _digests(records, np.empty(len(records), check), covered)


def wrong_event(slots: Array) -> int | None:
    """Returns the first used slot that does not match its check or is no event."""
    at, kinds = layout.pointer(slots, "void"), len(layout.EVENT_KINDS)
    first = int(libraries.toolkit().tt_wrong_event(at, len(slots), kinds))
    return first if first < len(slots) else None


def digests_of_spans(data: Any, begins: Array, ends: Array) -> Array:
    """Returns XXH3-64 with seed 0 of bytes [begin, end) of data, a buffer, for each pair."""
    raw = memoryview(data).cast("B")
    begins, ends = np.ascontiguousarray(begins, "u8"), np.ascontiguousarray(ends, "u8")
    assert not len(begins) or ((begins <= ends).all() and ends.max() <= len(raw))
    if int((ends - begins).sum()) > SHORT * len(begins):
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return np.array([xxhash.xxh3_64_intdigest(raw[a:b]) for a, b in pairs], "u8")
    out = np.empty(len(begins), "u8")
    spans = [layout.pointer(array) for array in (begins, ends, out)]
    libraries.toolkit().tt_span_digests(ffi.from_buffer(raw), len(begins), *spans)
    return out


def digests_of_pattern(seed: int, bases: Array, sizes: Array) -> Array:
    """Returns the digests of regions that hold the pattern of a seed (fill_pattern.h)."""
    given = [np.ascontiguousarray(array, "u8") for array in (bases, sizes)]
    out = np.empty(len(given[0]), "u8")
    arrays = [layout.pointer(array) for array in (*given, out)]
    libraries.toolkit().tt_pattern_digests(seed, len(out), *arrays)
    return out


def _digests(items: Array, out: Array, covered: int) -> Array:
    items = np.ascontiguousarray(items)
    at, to = layout.pointer(items, "void"), layout.pointer(out)
    if items.dtype == layout.EVENT:
        libraries.toolkit().tt_event_checks(at, len(items), to)
    else:
        libraries.toolkit().tt_digests(at, len(items), items.itemsize, covered, to)
    return out
