"""Encodes a document with numpy arrays for an HTML page: compressed, as base64.

base64 has no meaning in HTML, so the contents of a run cannot act on the page. page/data.js decodes
it. The decompressed layout is the length of the JSON (32-bit little-endian), the JSON, and the
arrays. An array in the JSON is {"$": [offset, count, type, ascending]}; offsets count from the end
of the JSON.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np
import orjson

from ttanalyze.format.layout import Array

LEVEL = 6  # of compression: more takes several times as long and saves a few percent
UNSIGNED = ("u1", "u2", "u4")


def compress(data: bytes) -> str:
    """Returns bytes as text that the page decompresses."""
    return base64.b64encode(gzip.compress(data, LEVEL, mtime=0)).decode()


def pack(document: dict[str, Any]) -> str:
    """Returns the document as text. Its arrays are 1-D, of integers from 0 on or of floats."""
    body = bytearray()
    head = orjson.dumps(_replaced(document, body))
    return compress(len(head).to_bytes(4, "little") + head + body)


def _replaced(value: Any, body: bytearray) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, body) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, body) for item in value]
    if isinstance(value, np.ndarray):
        return {"$": _append(value, body)}
    return value


def _append(values: Array, body: bytearray) -> list[Any]:
    """Appends an array and returns its description.

    Ascending integers are stored as differences, with bytes of the same significance together,
    which compresses best.
    """
    integers = values.dtype.kind in "ub" or (values.dtype.kind == "i" and not (values < 0).any())
    ascending = integers and len(values) > 0 and bool((values[1:] >= values[:-1]).all())
    if ascending:
        values = np.diff(values.astype("u8"), prepend=np.uint64(0))
    largest = int(values.max()) if integers and len(values) else 0
    kind = next((t for t in UNSIGNED if largest < 1 << 8 * int(t[1])), "f8")
    kind = kind if integers else f"f{values.dtype.itemsize}"
    raw = values.astype(f"<{kind}").view("u1").reshape(-1, int(kind[1]))
    at = len(body)
    body += raw.T.tobytes()
    return [at, len(values), kind, ascending]
