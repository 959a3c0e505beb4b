"""Values that are made at their first use, exactly once. Other threads wait meanwhile.

functools.cached_property and functools.cache may make a value in several threads, and all but the
last are collected while they are in use.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class once_property(Generic[T]):  # noqa: N801
    """A property whose value is made once, as a decorator."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, of: Any, owner: type | None = None) -> T:
        with self._lock:
            if self._name not in of.__dict__:
                of.__dict__[self._name] = self._make(of)
        return of.__dict__[self._name]


def once(make: Callable[P, T]) -> Callable[P, T]:
    """Makes a function run once for each of its arguments, as a decorator."""
    made: dict[Any, T] = {}
    lock = threading.RLock()

    @functools.wraps(make)
    def get(*args: P.args, **named: P.kwargs) -> T:
        key = args, *named.items()
        with lock:
            if key not in made:
                made[key] = make(*args, **named)
            return made[key]

    return get
