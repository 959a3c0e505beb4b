"""Checks the arguments of public functions against their annotations, so that a wrong one ends in
an Error of one line.
"""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, TypeVar, Union, get_args, get_origin

from ttanalyze.errors import Error

F = TypeVar("F", bound=Callable[..., Any])
WORDS: dict[Any, tuple[str, str]] = {
    bool: ("True or False", "booleans"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    Path: ("a path", "paths"),
    os.PathLike: ("a path", "paths"),
    BinaryIO: ("an open binary file", "open binary files"),
    Callable: ("a function", "functions"),
    Mapping: ("a mapping", "mappings"),
    NoneType: ("None", ""),
}
WORDS_BY_NAME = {
    "Run": ("a run (of ttanalyze.open)", "runs (of ttanalyze.open)"),
    "Process": ("a process (of run.process)", "processes (of run.process)"),
}


def checked(function: F) -> F:
    """Returns a function, or changes a class so, that it checks its arguments first."""
    if isinstance(function, type):
        begin = function.__init__  # type: ignore[misc]

        @functools.wraps(begin)
        def made(self: Any, *args: Any, **keywords: Any) -> None:
            bound = bind(function, args, keywords)
            begin(self, *bound.args, **bound.kwargs)

        function.__init__ = made  # type: ignore[misc]
        return function

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        bound = bind(function, args, keywords)
        return function(*bound.args, **bound.kwargs)

    return call  # type: ignore[return-value]


def bind(function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> inspect.BoundArguments:
    """Returns the arguments of a call, with text in place of a Path as one.

    Raises:
        Error: An argument is missing, is unknown, or is not what its annotation says.
    """
    signature, kinds = _known(function)
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as e:
        names = ", ".join(name for name in signature.parameters if name != "self")
        raise Error(f"{function.__name__}: {e}; its arguments: {names}") from None
    for name, given in bound.arguments.items():
        kind = kinds[name]
        if not fits(given, kind):
            raise Error(f"{name}={_short(given)}: expected {_words(kind)}")
        if isinstance(given, str) and Path in (kind, *get_args(kind)):
            bound.arguments[name] = Path(given)
    return bound


@functools.cache
def _known(function: Any) -> tuple[inspect.Signature, dict[str, Any]]:
    """Returns the signature of a function or class and the type of each parameter."""
    signature = inspect.signature(function)
    names = vars(sys.modules[function.__module__])
    kinds = {}
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        several = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        try:
            kind = eval(kind, names) if isinstance(kind, str) else kind
        except NameError:  # known to type checkers alone
            kind = Any
        kinds[name] = Any if several or kind is parameter.empty else kind
    return signature, kinds


def fits(given: Any, kind: Any) -> bool:
    """Whether a value is what a type says. The items of a mapping or an iterator are not checked.

    A number of numpy is a number, text is a path, and an array is a list.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(given, one) for one in inner)
    if origin in (int, float):
        return isinstance(given, Integral if origin is int else Real)
    if origin is bool:
        return isinstance(given, bool) or type(given).__name__ in ("bool_", "bool")
    if origin in (Path, os.PathLike):
        return isinstance(given, (os.PathLike, str) if origin is Path else os.PathLike)
    if origin is BinaryIO:
        return hasattr(given, "write")
    if origin is tuple:
        return (
            isinstance(given, Sequence)
            and not isinstance(given, str)
            and (inner[-1] is Ellipsis or len(given) == len(inner))
            and all(map(fits, given, inner))
        )
    if origin in (Sequence, Iterable, Collection):
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            return False
        return not isinstance(given, Sequence) or all(fits(item, inner[0]) for item in given)
    if origin is Any or not isinstance(origin, type) or getattr(origin, "_is_protocol", False):
        return True  # Any, and what says itself what it needs
    return isinstance(given, origin)


def _short(given: Any) -> str:
    return " ".join(reprlib.repr(given).split())


def _words(kind: Any) -> str:
    alternatives = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if any(get_origin(one) is os.PathLike for one in alternatives):
        alternatives = tuple(one for one in alternatives if one is not str)
    *most, last = dict.fromkeys(map(_words_of, alternatives))
    return f"{', '.join(most)} or {last}" if most else last


def _words_of(kind: Any, several: bool = False) -> str:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is tuple:
        return f"{len(inner)} {_words_of(inner[0], True)}"
    if origin in (Sequence, Iterable, Collection):
        return f"a list of {_words_of(inner[0], True)}"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words_of(one, several) for one in inner)
    name = getattr(origin, "__name__", str(origin))
    named = WORDS.get(origin) or WORDS_BY_NAME.get(name)
    return named[several] if named else f"a {_public(origin)}"


def _public(kind: Any) -> str:
    """Returns the name of a class that users know, such as ttanalyze.export.Needs."""
    from ttanalyze import MODULES

    private = kind.__module__.removeprefix("ttanalyze.")
    for public, module in MODULES.items():
        if f"{private}.".startswith(f"{module}."):
            return f"ttanalyze.{public}.{kind.__name__}"
    return str(kind.__name__)
