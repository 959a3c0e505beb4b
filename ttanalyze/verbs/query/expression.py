"""Conditions on the columns of a table, in the syntax of pandas queries.

An expression is evaluated node by node and never run as Python. Nodes that are not listed here are
errors, so a condition can use nothing but its columns. Conditions on texts are evaluated once per
unique text. A missing value is unequal to everything, like NaN.
"""

from __future__ import annotations

import ast
import contextlib
import io
import operator
import re
import tokenize
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.errors import Error
from ttanalyze.format.layout import Array

LONGEST = 10_000  # letters of an expression
COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
TEXT_METHODS: dict[str, Callable[[str, bool], Callable[[str], object]]] = {
    "contains": lambda pattern, regex: re.compile(pattern if regex else re.escape(pattern)).search,
    "match": lambda pattern, _: re.compile(pattern).match,
    "fullmatch": lambda pattern, _: re.compile(pattern).fullmatch,
    "startswith": lambda start, _: lambda text: text.startswith(start),
    "endswith": lambda end, _: lambda text: text.endswith(end),
}
SIGNS = {"=": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}
SETTING = re.compile(r"(\w+)\s*(!=|<=|>=|=|<|>)=?\s*(.*)", re.S)
METHODS = ("isna", "notna", "isin", "between")


@dataclass(frozen=True)
class Numbers:
    """Values of a column or of arithmetic. missing: where there is no value, None if there always
    is one.
    """

    values: Array
    missing: Array | None = None

    @property
    def present(self) -> Array:
        """Where there is a value; NaN is none."""
        there = self.values == self.values
        return np.asarray(there if self.missing is None else there & ~self.missing)


@dataclass(frozen=True)
class Texts:
    """A categorical. The code -1 is a missing text."""

    codes: Array
    texts: list[str]

    def where(self, holds: Callable[[str], object]) -> Array:
        """Returns which texts fulfil a condition."""
        decided = np.array([bool(holds(text)) for text in self.texts] + [False])
        return np.asarray(decided[self.codes])


@dataclass(frozen=True)
class Lists:
    """A column of numpy arrays, such as the addresses of 32 lanes. None is a missing list."""

    rows: list[Array | None]

    def item(self, index: int) -> Numbers | Lists:
        """Returns an item of each list, missing where a list is shorter."""
        found = [None if r is None or not 0 <= index < len(r) else r[index] for r in self.rows]
        if any(isinstance(value, np.ndarray) for value in found):
            return Lists(found)
        missing = np.array([value is None for value in found], bool)
        numbers = [0 if value is None else int(value) for value in found]
        kind = "i8" if max(numbers, default=0) < 1 << 63 else "u8"
        return Numbers(np.array(numbers, kind), missing)

    def having(self, value: int) -> Array:
        """Returns which lists have a number."""
        return np.array([r is not None and bool((r == value).any()) for r in self.rows], bool)

    def equal(self, items: list[Any]) -> Array:
        return np.array([r is not None and r.tolist() == items for r in self.rows], bool)


class Word(str):
    """A value without quotes: a text or a number, as the column is."""


class Expression:
    """Parsed conditions that must all hold. columns: the columns that they name."""

    def __init__(self, texts: Sequence[str], known: Sequence[str], table: str, option: str) -> None:
        """known: the columns of the table. Raises Error if a text is no condition on them."""
        self._known = known
        self._table = table
        bodies = []
        for text in texts:
            self._lead = f"{option} {text}" if len(text) <= 60 else f"{option} {text[:57]}…"
            bodies.append(self._parsed(text))
        self._body = bodies[0] if len(bodies) == 1 else ast.BoolOp(ast.And(), bodies)
        nodes = list(ast.walk(self._body))
        names = [node.id for node in nodes if isinstance(node, ast.Name)]
        for name in names:
            if name not in known:
                raise self._error(f"no column {name}; {table} has: {', '.join(known)}")
        self.columns = list(dict.fromkeys(names))

    def _parsed(self, text: str) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "\d" is a fine pattern
                return ast.parse(_as_python(text), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as e:
            settings = None if isinstance(e, ValueError) else self._settings(text)
            if settings is None:
                raise self._error("not an expression") from None
            return settings

    def _settings(self, text: str) -> ast.expr | None:
        """Returns the condition that `k=v;k>=v` stands for. None if a text is something else."""
        found = [SETTING.fullmatch(part.strip()) for part in text.split(";") if part.strip()]
        compared: list[ast.expr] = []
        for part in found:
            if part is None or len(text) > LONGEST:
                return None
            name, sign, said = part.groups()
            if not said:
                raise self._error(f"{name}{sign} needs a value")
            value: ast.expr = ast.Constant(Word(said.strip("\"'")))
            if said.startswith("["):
                with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    value = ast.parse(said, mode="eval").body
            compared.append(ast.Compare(ast.Name(name), [SIGNS[sign]()], [value]))
        return ast.BoolOp(ast.And(), compared) if compared else None

    def _error(self, reason: str) -> Error:
        return Error(f"{self._lead}: {reason}")

    def rows(self, frame: pd.DataFrame) -> Array:
        """Returns which rows fulfil the condition."""
        try:
            with np.errstate(all="ignore"):
                found = self._value(self._body, frame)
        except (TypeError, ValueError, ArithmeticError, RecursionError, re.error) as e:
            raise self._error(str(e).partition("\n")[0] or type(e).__name__) from None
        return self._condition(found, len(frame))

    # ---- values of nodes ----

    def _value(self, node: ast.AST, frame: pd.DataFrame) -> Any:
        if isinstance(node, ast.Name):
            return column_value(frame[node.id])
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(item, frame) for item in node.elts]
        if isinstance(node, ast.Compare):
            return self._comparison(node, frame)
        if isinstance(node, ast.BoolOp):
            return self._connected(node, frame)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, frame)
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right = (self._value(side, frame) for side in (node.left, node.right))
            return _arithmetic(ARITHMETIC[type(node.op)], left, right)
        if isinstance(node, ast.Call):
            return self._call(node, frame)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            lists = self._value(node.value, frame)
            if isinstance(lists, Lists) and type(node.slice.value) is int:
                return lists.item(node.slice.value)
        raise self._error(f"{ast.unparse(node)[:40]!r} can't be part of a condition")

    def _condition(self, value: Any, rows: int) -> Array:
        if isinstance(value, bool):
            return np.full(rows, value)
        if isinstance(value, Numbers) and value.values.dtype == bool:
            return value.values
        if isinstance(value, np.ndarray) and value.dtype == bool:
            return value
        raise self._error("expected a condition, such as a comparison")

    def _comparison(self, node: ast.Compare, frame: pd.DataFrame) -> Any:
        """Evaluates a chain: a < b < c is a < b and b < c."""
        sides = [self._value(side, frame) for side in (node.left, *node.comparators)]
        out: Any = True
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            if isinstance(right, Lists) and isinstance(op, (ast.In, ast.NotIn)):
                if type(left) is not int:
                    raise self._error("expected a whole number before 'in' and a column of lists")
                found = right.having(left)
                found = ~found if isinstance(op, ast.NotIn) else found
            elif isinstance(left, Lists) and isinstance(right, list):
                found = left.equal(right)
                found = ~found if isinstance(op, ast.NotEq) else found
            elif isinstance(op, (ast.In, ast.NotIn)):
                found = self._is_in(left, right)
                found = ~found if isinstance(op, ast.NotIn) else found
            elif isinstance(right, list) and isinstance(op, (ast.Eq, ast.NotEq)):
                found = self._is_in(left, right)
                found = ~found if isinstance(op, ast.NotEq) else found
            elif type(op) in COMPARISONS:
                found = self._compared(type(op), left, right)
            else:
                raise self._error("'is' is not supported; use ==")
            out = found if out is True else out & found
        return out

    def _compared(self, op: type[ast.AST], left: Any, right: Any) -> Any:
        compare = COMPARISONS[op]
        if isinstance(right, Word) and not isinstance(left, Texts):
            right = self._number(right)
        if isinstance(left, Texts) and isinstance(right, str):
            found = left.where(lambda text: compare(text, right))
            return found | (left.codes < 0) if op is ast.NotEq else found
        if isinstance(right, Texts) and isinstance(left, str):
            found = right.where(lambda text: compare(left, text))
            return found | (right.codes < 0) if op is ast.NotEq else found
        if isinstance(left, Texts) and isinstance(right, Texts) and op in (ast.Eq, ast.NotEq):
            numbers = {text: i for i, text in enumerate(left.texts)}
            codes = np.array([numbers.get(text, -2) for text in right.texts] + [-3])
            return np.asarray(compare(left.codes, codes[right.codes]))
        if any(isinstance(side, (Texts, str)) for side in (left, right)):
            kinds = [isinstance(side, (Texts, str)) for side in (left, right)]
            if not all(kinds):
                raise self._error("a string can not be compared with a number")
        if any(isinstance(side, (Lists, list)) for side in (left, right)):
            raise self._error("compare a list with ==, or its items as in addrs[0] or 5 in addrs")
        values, missing = _both(left, right)
        found = compare(*values)
        if missing is None:
            return found
        return found | missing if op is ast.NotEq else found & ~missing

    def _number(self, word: Word) -> int | float | bool:
        if word.lower() in ("true", "false"):
            return word.lower() == "true"
        for kind in (lambda text: int(text, 0), int, float) if len(word) < 80 else ():
            with contextlib.suppress(ValueError):
                return kind(word)
        raise self._error(f"{word[:40]} is not a number")

    def _is_in(self, value: Any, items: Any) -> Array:
        if not isinstance(items, list):
            raise self._error("expected a list such as [1, 2] after 'in'")
        if isinstance(value, Texts):
            wanted = {item for item in items if isinstance(item, str)}
            return value.where(lambda text: text in wanted)
        if isinstance(value, Numbers) or (isinstance(value, np.ndarray) and value.dtype == bool):
            found = [self._compared(ast.Eq, value, i) for i in items if not isinstance(i, str)]
            rows = value.values if isinstance(value, Numbers) else value
            return np.asarray(np.logical_or.reduce([np.zeros(len(rows), bool), *found]))
        raise self._error("'in' needs a column before it")

    def _connected(self, node: ast.BoolOp, frame: pd.DataFrame) -> Any:
        """Evaluates `and` and `or` of conditions, and `&` and `|` of integers."""
        values = [self._value(part, frame) for part in node.values]
        bitwise = [_is_whole(v) for v in values]
        combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        if any(bitwise):
            if not all(bitwise):
                raise self._error("a number is not a condition; put each side of & and | in ()")
            out = values[0]
            for value in values[1:]:
                out = _arithmetic(combine, out, value)
            return out
        conditions = [self._condition(v, len(frame)) for v in values]
        out = conditions[0]
        for condition in conditions[1:]:
            out = combine(out, condition)
        return out

    def _unary(self, node: ast.UnaryOp, frame: pd.DataFrame) -> Any:
        value = self._value(node.operand, frame)
        if isinstance(node.op, (ast.Not, ast.Invert)):
            return ~self._condition(value, len(frame))
        return _arithmetic(
            operator.sub if isinstance(node.op, ast.USub) else operator.add, 0, value
        )

    # ---- methods ----

    def _call(self, node: ast.Call, frame: pd.DataFrame) -> Any:
        options = {}
        for keyword in node.keywords:
            allowed = keyword.arg in ("regex", "case", "na")
            if not allowed or not isinstance(keyword.value, ast.Constant):
                raise self._error(f"{keyword.arg or '**'} is not a known argument")
            options[keyword.arg] = keyword.value.value
        arguments = [self._value(argument, frame) for argument in node.args]
        function = node.func
        if isinstance(function, ast.Attribute):
            of, name = function.value, function.attr
            if isinstance(of, ast.Attribute) and of.attr == "str" and name in TEXT_METHODS:
                return self._text_method(name, self._value(of.value, frame), arguments, options)
            if name in METHODS and not options:
                return self._method(name, self._value(of, frame), arguments)
        what = ast.unparse(function)[:40]
        known = ", ".join([*(f".{m}()" for m in METHODS), *(f".str.{m}()" for m in TEXT_METHODS)])
        raise self._error(f"unknown function {what}(); known: {known}")

    def _text_method(
        self, name: str, value: Any, arguments: list[Any], options: dict[str | None, Any]
    ) -> Array:
        if not isinstance(value, Texts):
            raise self._error(f".str.{name}() needs a text column")
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise self._error(f".str.{name}() takes one string")
        argument = arguments[0]
        if options.get("case") is False:
            if name in ("startswith", "endswith"):
                raise self._error(f".str.{name}() is always case-sensitive")
            regex = options.get("regex", True)
            argument, options = f"(?i:{argument if regex else re.escape(argument)})", {}
        return value.where(TEXT_METHODS[name](argument, options.get("regex") is not False))

    def _method(self, name: str, value: Any, arguments: list[Any]) -> Array:
        if name in ("isna", "notna") and not arguments:
            if isinstance(value, Texts):
                missing = value.codes < 0
            elif isinstance(value, Numbers):
                none = np.zeros(len(value.values), bool)
                missing = none if value.missing is None else value.missing
            elif isinstance(value, Lists):
                missing = np.array([row is None for row in value.rows], bool)
            else:
                raise self._error(f".{name}() needs a column")
            return missing if name == "isna" else ~missing
        if name == "isin" and len(arguments) == 1:
            return self._is_in(value, arguments[0])
        if name == "between" and len(arguments) == 2:
            low, high = arguments
            above = self._compared(ast.GtE, value, low)
            return np.asarray(above & self._compared(ast.LtE, value, high))
        raise self._error(f".{name}() does not take {len(arguments)} values")


def is_list(column: Any) -> bool:
    """Returns whether a DataFrame's column has lists, or has nothing and could have them."""
    return column.dtype == object and all(
        value is None or isinstance(value, np.ndarray) for value in column
    )


def column_value(column: Any) -> Numbers | Texts | Lists:
    """Returns the values of a DataFrame's column."""
    if is_list(column):
        return Lists(list(column))
    if isinstance(column.dtype, pd.CategoricalDtype):
        return Texts(column.cat.codes.to_numpy(), list(column.cat.categories))
    if isinstance(column.array, pd.arrays.IntegerArray):
        return Numbers(column.to_numpy("i8", na_value=0), column.isna().to_numpy())
    if isinstance(column.array, pd.arrays.BooleanArray):
        return Numbers(column.to_numpy("bool", na_value=False), column.isna().to_numpy())
    return Numbers(column.to_numpy())


def _as_python(text: str) -> str:
    """Replaces &, | and ~ by `and`, `or` and `not`, which bind less tightly in pandas queries."""
    if len(text) > LONGEST:
        raise ValueError
    words = {"&": "and", "|": "or"}
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
        if token.type == tokenize.OP and token.string in words:
            tokens.append((tokenize.NAME, words[token.string]))
        elif token.type in (tokenize.NEWLINE, tokenize.NL):
            continue
        else:
            tokens.append((token.type, token.string))
    return tokenize.untokenize(tokens).strip()


def _is_whole(value: Any) -> bool:
    if isinstance(value, Numbers):
        return value.values.dtype.kind in "iuO"
    return isinstance(value, int) and not isinstance(value, bool)


def _both(left: Any, right: Any) -> tuple[list[Any], Array | None]:
    """Returns the values of two sides, and where either is missing."""
    values, missing = [], None
    for side in (left, right):
        values.append(side.values if isinstance(side, Numbers) else side)
        if isinstance(side, Numbers) and side.missing is not None:
            missing = side.missing if missing is None else missing | side.missing
    return values, missing


def _arithmetic(op: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Calculates, exactly for integers. A division by 0 is missing."""
    if any(isinstance(side, (str, Texts, Lists, list)) for side in (left, right)):
        raise TypeError("arithmetic needs numbers")
    values, missing = _both(left, right)
    if not any(isinstance(value, np.ndarray) for value in values):
        return op(*values)
    if op in DIVISIONS:
        none = np.equal(values[1], 0)
        if none.any():
            some = none if isinstance(values[1], np.ndarray) else np.full(len(values[0]), True)
            missing = some if missing is None else missing | some
            values[1] = np.where(none, 1, values[1])
    if op is not operator.truediv and _is_whole(left) and _is_whole(right):
        kind = _wide_enough(op, *values)
        values = [np.asarray(value, kind) for value in values]
    else:
        wide = [isinstance(value, np.ndarray) and value.dtype == object for value in values]
        values = [v.astype("f8") if w else v for v, w in zip(values, wide, strict=True)]
    return Numbers(op(*values), missing)


def _wide_enough(op: Callable[[Any, Any], Any], left: Any, right: Any) -> str:
    """Returns a type that holds the integers of both sides and the result."""
    (a, b), (c, d) = (
        (int(np.min(side)), int(np.max(side))) if np.size(side) else (0, 0)
        for side in (left, right)
    )
    ends = [a, b, c, d]
    if op in (operator.add, operator.sub, operator.mul):
        ends += [op(x, y) for x in (a, b) for y in (c, d)]
    elif op is operator.floordiv and a < 0:
        ends.append(-a)
    if min(ends) >= -1 << 63 and max(ends) < 1 << 63:
        return "i8"
    return "u8" if min(ends) >= 0 and max(ends) < 1 << 64 else "O"
