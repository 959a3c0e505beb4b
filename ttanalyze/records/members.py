"""Members of records, checked. Each function raises Error for a value of another kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ttanalyze.errors import Error
from ttanalyze.records.lines import Wrong

LIMIT = 1 << 63  # of whole numbers
AMOUNTS = {None: "", 3: "three "}


class Source(Protocol):
    """Where records come from."""

    def error(self, number: int, reason: str) -> Error: ...


class Place(NamedTuple):
    """Where a record is, for errors."""

    lines: Source
    number: int

    def error(self, reason: str) -> Error:
        return self.lines.error(self.number, reason)


def typed(place: Place, value: Any, types: Sequence[str], what: str) -> dict[str, Any]:
    """Returns a record of one of these types. what: the name of such a record."""
    if isinstance(value, Wrong):
        raise place.error(value.reason)
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise place.error("not an object with a type")
    if kind not in types:
        raise place.error(f"record type {kind[:40]!r} is not a {what}")
    record: dict[str, Any] = value
    return record


def whole(place: Place, record: Mapping[str, Any], member: str) -> int | None:
    value = record.get(member)
    if value is not None and (type(value) is not int or not -LIMIT <= value < LIMIT):
        raise place.error(f"{member}: expected a whole number")
    return value


def text(place: Place, record: Mapping[str, Any], member: str) -> str | None:
    value = record.get(member)
    if value is not None and not isinstance(value, str):
        raise place.error(f"{member}: expected a string")
    return value


def hexadecimal(place: Place, record: Mapping[str, Any], member: str) -> int | None:
    said = text(place, record, member)
    try:
        value = None if said is None else int(said, 16)
    except ValueError:
        value = -1
    if value is not None and not 0 <= value < LIMIT:
        raise place.error(f"{member}: expected a hexadecimal number")
    return value


def numbers(
    place: Place, record: Mapping[str, Any], member: str, count: int | None, limit: int
) -> list[int]:
    """Returns a list of whole numbers below the limit. count: how many, None for any."""
    value = record.get(member)
    good = isinstance(value, list) and (count is None or len(value) == count)
    if not good or not all(type(v) is int and 0 <= v < limit for v in value or ()):
        raise place.error(f"{member}: expected {AMOUNTS.get(count, f'{count} ')}whole numbers")
    made: list[int] = value or []
    return made
