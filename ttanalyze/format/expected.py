"""Manifests as tables, for comparisons."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ttanalyze.errors import FormatError
from ttanalyze.format import layout, manifest
from ttanalyze.format.files import check_version, parsed_json, read_text
from ttanalyze.format.layout import Array
from ttanalyze.format.manifest_digests import Taken, take
from ttanalyze.schemas import document_faults
from ttanalyze.util.remote import place


@dataclass(frozen=True)
class ExpectedProcess:
    """One process of a manifest.

    rank: None if the manifest does not say it. Lists of epochs have one item per epoch. region,
    epoch, digest: one row per digest, by epoch.
    """

    index: int
    rank: int | None
    regions: manifest.Regions
    triggers: list[str]
    labels: list[str | None]
    flags: list[list[str]]
    region: Array
    epoch: Array
    digest: Array

    @property
    def flag_bits(self) -> Array:
        """The flags of each epoch as in a tt_epoch. Unknown names are ignored."""
        known = layout.EPOCH_FLAGS
        sets = {frozenset(them) for them in self.flags}  # of millions, most are the same few
        bits = {them: sum(known.get(name, 0) for name in them) for them in sets}
        return np.array([bits[frozenset(them)] for them in self.flags], "u4")


def load(path: str | os.PathLike[str]) -> list[ExpectedProcess]:
    """Reads a manifest. Raises FormatError if the file is none."""
    file = place(path)
    text = read_text(file)
    taken = take(text)
    if taken is not None:
        try:
            return parse(parsed_json(file, text), path, taken)
        except (FormatError, _MisplacedError):
            text = read_text(file)  # the places of errors are those of the whole
    return parse(parsed_json(file, text), path)


def parse(
    value: Mapping[str, Any], path: str | os.PathLike[str], taken: Taken | None = None
) -> list[ExpectedProcess]:
    """Returns the processes of a parsed manifest.

    path: its name in errors. taken: the digests whose numbers are in their places.
    """
    if value.get("format") != manifest.HEAD["format"]:
        raise FormatError(path, "format", f"expected {manifest.HEAD['format']!r}")
    check_version(path, "version", value.get("version"))
    for key in ("block_size", "digest"):
        if value.get(key) != manifest.HEAD[key]:
            raise FormatError(path, key, f"expected {manifest.HEAD[key]!r}")
    digests = _Digests(taken)
    try:
        processes = [_process(item, digests) for item in _list(value, "processes")]
        digests.finish()
    except _BadError as e:
        where, reason = next(document_faults("manifest", dict(value)), (e.where, e.reason))
        raise FormatError(path, where or "the whole", reason) from None
    if len({p.index for p in processes}) != len(processes):
        raise FormatError(path, "processes", "a process is listed twice")
    return sorted(processes, key=lambda p: p.index)


class _BadError(Exception):
    """A fault that the schema does not find."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason


class _MisplacedError(Exception):
    """Digests that were taken out of a text are not those of its epochs, in order."""


def _list(value: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = value.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _BadError(key, "expected a list of objects")
    return items


def _process(value: dict[str, Any], digests: _Digests) -> ExpectedProcess:
    index = value.get("process")
    if type(index) is not int or not 0 <= index <= layout.NO_ID:
        raise _BadError("process", "expected a process number")
    rank = value.get("rank")
    if rank is not None and (type(rank) is not int or not 0 <= rank <= layout.NO_ID):
        raise _BadError(f"process {index}, rank", "expected a rank")
    regions = _regions(_list(value, "regions"), f"process {index}")
    epochs = _list(value, "epochs")
    if not _good_epochs(epochs):
        raise _BadError(f"process {index}, epochs", "their numbers are not consecutive")
    ids, values, counts = digests.of([epoch["digests"] for epoch in epochs], f"process {index}")
    return ExpectedProcess(
        index,
        rank,
        regions,
        [epoch["trigger"] for epoch in epochs],
        [epoch.get("label") for epoch in epochs],
        [epoch["flags"] for epoch in epochs],
        ids,
        np.repeat(np.arange(len(epochs), dtype="u4"), counts),
        values,
    )


def _regions(items: list[dict[str, Any]], where: str) -> manifest.Regions:
    members = [[item.get(key, ...) for item in items] for key in manifest.Regions._fields]
    if not _good_regions(*members):
        raise _BadError(where, "a region is damaged")
    ids, kind, label, size, born, died = members
    numbers = np.array(ids, "u4")
    order = np.argsort(numbers, kind="stable")
    twice = numbers[order][1:] == numbers[order][:-1]
    if twice.any():
        at = int(order[1:][twice].min())
        raise _BadError(f"{where}, regions[{at}]", f"region {ids[at]} is listed twice")
    ends = [layout.NO_EPOCH if epoch is None else epoch for epoch in died]
    return manifest.Regions(
        numbers[order],
        np.array(kind, object)[order],
        np.array(label, object)[order],
        np.array(size, "u8")[order],
        np.array(born, "u4")[order],
        np.array(ends, "u4")[order],
    )


def _types(values: Iterable[Any]) -> set[type]:
    """Checks the types of a million values with one look each. Details are found only after a
    failure.
    """
    return set(map(type, values))


def _good_regions(
    ids: list[Any],
    kind: list[Any],
    label: list[Any],
    size: list[Any],
    born: list[Any],
    died: list[Any],
) -> bool:
    ends = [epoch for epoch in died if epoch is not None]
    limits = (
        (ids, layout.NO_ID),
        (size, (1 << 64) - 1),
        (born, layout.NO_ID),
        (ends, layout.NO_ID),
    )
    return _types(chain(kind, label)) <= {str, type(None)} and all(
        _types(values) <= {int} and min(values, default=0) >= 0 and max(values, default=0) <= most
        for values, most in limits
    )


def _good_epochs(epochs: list[dict[str, Any]]) -> bool:
    def column(key: str) -> list[Any]:
        return [epoch.get(key) for epoch in epochs]

    flags = column("flags")
    return (
        column("epoch") == list(range(len(epochs)))
        and _types(column("trigger")) <= {str}
        and _types(column("label")) <= {str, type(None)}
        and all("label" in epoch for epoch in epochs)
        and _types(flags) <= {list}
        and _types(chain.from_iterable(flags)) <= {str}
        and _types(column("digests")) <= {dict, int}
    )


class _Digests:
    """Gives the digests of epochs, where they stand in them or where they were taken out."""

    def __init__(self, taken: Taken | None) -> None:
        self._taken = taken
        self._objects = self._rows = 0  # of `taken`, those before the next epoch

    def of(self, parts: list[Any], where: str) -> tuple[Array, Array, Array]:
        """Returns region ids and digests of epochs, and the number that each has."""
        if self._taken is None:
            if not _types(parts) <= {dict}:
                raise _BadError(where, "the digests of an epoch are not an object")
            return *_digests(parts, where), np.array([len(d) for d in parts], "i8")
        numbers = np.array([-1 if part == {} else part for part in parts], "i8")
        there = np.flatnonzero(numbers >= 0)
        first, rows = self._objects, self._rows
        self._objects += len(there)
        if not np.array_equal(numbers[there], np.arange(first, self._objects)):
            raise _MisplacedError
        counts = np.zeros(len(parts), "i8")
        counts[there] = self._taken.counts[first : self._objects]
        self._rows += int(counts.sum())
        of = slice(rows, self._rows)
        return self._taken.region[of], self._taken.digest[of], counts

    def finish(self) -> None:
        """Raises _MisplacedError if a digest is left over."""
        if self._taken is not None and self._objects != len(self._taken.counts):
            raise _MisplacedError


def _digests(parts: list[dict[str, Any]], where: str) -> tuple[Array, Array]:
    """Returns region ids and digests of all epochs as arrays."""
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
