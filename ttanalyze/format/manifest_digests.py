"""The digests in a manifest's text, taken out of it before it is parsed.

A recorded manifest has little else. The native library reads it ten times as fast as Python makes
objects of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze._format import ffi
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.util import libraries


@dataclass(frozen=True)
class Taken:
    """The digests of all objects with digests, in the order of the text, and how many each has."""

    region: Array
    digest: Array
    counts: Array


def take(text: bytearray) -> Taken | None:
    """Takes the digests out of a text, in which each object with digests becomes its number.

    Returns None, and leaves the text, if digests are not written as the recorder writes them.
    """
    pairs, objects = (len(text) // layout.constant(f"TT_MANIFEST_{n}") for n in ("PAIR", "OBJECT"))
    region, digest = np.empty(pairs, "u4"), np.empty(pairs, "u8")
    counts, begins, ends = (np.empty(objects, kind) for kind in ("u4", "u8", "u8"))
    columns = [layout.pointer(column) for column in (region, digest, counts, begins, ends)]
    found = ffi.new("struct tt_manifest_digests *", columns)
    with ffi.from_buffer("char[]", text, require_writable=True) as raw:
        left = int(libraries.toolkit().tt_manifest_digests(raw, len(text), found))
    if not left:
        return None
    del text[left:]
    counts = counts[: found.objects].copy()
    total = int(counts.sum())
    return Taken(region[:total].copy(), digest[:total].copy(), counts)
