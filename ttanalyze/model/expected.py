"""A manifest as tables: what verify compares a run with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.errors import FormatError
from ttanalyze.model import layout, manifest
from ttanalyze.model.files import newer, read_json
from ttanalyze.model.layout import Array


@dataclass(frozen=True)
class ExpectedProcess:
    """One process of a manifest. regions: the members of each by id. The epochs' lists have one
    item per epoch. region, epoch, digest: one row per digest, in the order of the epochs.
    """

    index: int
    regions: dict[int, dict[str, Any]]
    triggers: list[str]
    labels: list[str | None]
    flags: list[list[str]]
    region: Array
    epoch: Array
    digest: Array

    @property
    def flag_bits(self) -> Array:
        """The flags of each epoch, as a tt_epoch has them, without names that are not known."""
        known = layout.EPOCH_FLAGS
        return np.array([sum(known.get(n, 0) for n in set(them)) for them in self.flags], "u4")


def load(path: str | os.PathLike[str]) -> list[ExpectedProcess]:
    """Reads a manifest file. Raises FormatError where it isn't one."""
    return parse(read_json(Path(path)), path)


def parse(value: Mapping[str, Any], path: str | os.PathLike[str]) -> list[ExpectedProcess]:
    """The processes of a manifest object; path: what errors call it."""
    if value.get("format") != manifest.HEAD["format"]:
        raise FormatError(path, "format", f"{manifest.HEAD['format']!r} is expected")
    version = value.get("version")
    if not isinstance(version, int) or version != layout.VERSION:
        known = isinstance(version, int)
        raise FormatError(path, "version", newer(int(version or 0)) if known else "no version")
    for key in ("block_size", "digest"):
        if value.get(key) != manifest.HEAD[key]:
            raise FormatError(path, key, f"{manifest.HEAD[key]!r} is expected")
    try:
        processes = [_process(item) for item in _list(value, "processes")]
    except _BadError as e:
        raise FormatError(path, e.where, e.reason) from None
    if len({p.index for p in processes}) != len(processes):
        raise FormatError(path, "processes", "a process is listed twice")
    return sorted(processes, key=lambda p: p.index)


class _BadError(Exception):
    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason


def _list(value: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = value.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _BadError(key, "a list of objects is expected")
    return items


def _number(value: Any, where: str, most: int = layout.NO_ID) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _BadError(where, f"a whole number up to {most} is expected")
    return value


def _text(value: Mapping[str, Any], key: str, where: str) -> str | None:
    text = value.get(key)
    if key not in value or (text is not None and not isinstance(text, str)):
        raise _BadError(f"{where}.{key}", "a string or null is expected")
    return text


def _process(value: dict[str, Any]) -> ExpectedProcess:
    index = _number(value.get("process"), "process")
    regions = {}
    for i, region in enumerate(_list(value, "regions")):
        where = f"process {index}, regions[{i}]"
        number = _number(region.get("id"), f"{where}.id")
        if number in regions:
            raise _BadError(where, f"region {number} is listed twice")
        if "died" not in region:
            raise _BadError(f"{where}.died", "a whole number or null is expected")
        died = region["died"]
        regions[number] = {
            "kind": _text(region, "kind", where),
            "size": _number(region.get("size"), f"{where}.size", (1 << 64) - 1),
            "label": _text(region, "label", where),
            "born": _number(region.get("born"), f"{where}.born"),
            "died": None if died is None else _number(died, f"{where}.died"),
        }
    epochs = _list(value, "epochs")
    for i, epoch in enumerate(epochs):
        _check_epoch(epoch, i, f"process {index}, epochs[{i}]")
    digests = [epoch["digests"] for epoch in epochs]
    ids, values = _digests(digests, f"process {index}")
    counts = np.array([len(d) for d in digests], "i8")
    return ExpectedProcess(
        index,
        regions,
        [epoch["trigger"] for epoch in epochs],
        [epoch.get("label") for epoch in epochs],
        [epoch["flags"] for epoch in epochs],
        ids,
        np.repeat(np.arange(len(epochs), dtype="u4"), counts),
        values,
    )


def _check_epoch(epoch: dict[str, Any], number: int, where: str) -> None:
    if epoch.get("epoch") != number:
        raise _BadError(f"{where}.epoch", f"epoch numbers are consecutive: {number} is expected")
    if not isinstance(epoch.get("trigger"), str):
        raise _BadError(f"{where}.trigger", "a string is expected")
    _text(epoch, "label", where)
    flags = epoch.get("flags")
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise _BadError(f"{where}.flags", "a list of strings is expected")
    if not isinstance(epoch.get("digests"), dict):
        raise _BadError(f"{where}.digests", "an object is expected")


def _digests(parts: list[dict[str, Any]], where: str) -> tuple[Array, Array]:
    """Region ids and digests of all epochs, as arrays."""
    keys = list(chain.from_iterable(parts))
    values = list(chain.from_iterable(part.values() for part in parts))
    names = set(keys)  # of a million keys, most are the same few
    if not all(map(str.isdecimal, names)) or not all(map(str.isascii, names)):
        raise _BadError(where, "a key of digests is not a region id")
    if set(map(type, values)) - {str} or set(map(len, values)) - {16}:
        raise _BadError(where, "a digest is not a string of 16 hexadecimal digits")
    try:
        raw = bytes.fromhex("".join(values))
    except ValueError:
        raw = b""
    if len(raw) != 8 * len(values):
        raise _BadError(where, "a digest is not a string of 16 hexadecimal digits")
    ids = dict(zip(names, map(int, names), strict=True))
    if max(ids.values(), default=0) >= layout.NO_ID:
        raise _BadError(where, "a key of digests is not a region id")
    region = np.fromiter(map(ids.__getitem__, keys), "u4", len(keys))
    return region, np.frombuffer(raw, ">u8").astype("u8")
