"""The statements of PTX functions, with their lines in the text, and source lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ttanalyze.code.pointers import STATEMENT, split_operands
from ttanalyze.code.ptx import definition_spans

IGNORED = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"\n]*)"', re.M)
LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[^\n]*", re.M)
DIRECTIVE = re.compile(r"^[ \t]*\.(?:loc|file)\b[^\n]*", re.M)
DECLARATION = re.compile(r"\.reg\s+((?:\.\w+\s+)+)([^;{}]*);")
DECLARED = re.compile(r"([%\w$]+)(?:<(\d+)>)?")
WORD = re.compile(r"[\w$%]+")


@dataclass(frozen=True)
class Statement:
    """An instruction of PTX.

    Attributes:
        line: Its line in the text, from 1.
        function: The name of its function.
        text: As it is written, in one line.
        predicate: Its guard, such as `@%p1`, or None.
        mnemonic: Such as `ld.global.f32`.
        operands: The operands.
        registers: The type of each register that it names, such as `b64`, by name.
        source: File and line of the program, or None.
    """

    line: int
    function: str
    text: str
    predicate: str | None
    mnemonic: str
    operands: tuple[str, ...]
    registers: dict[str, str]
    source: tuple[str, int] | None


def statements(image: bytes, kernel: str) -> list[Statement] | None:
    """Returns the statements of a kernel and of the functions that it can call, by line.

    None if the text has no such kernel.
    """
    whole = image.split(b"\0", 1)[0].decode("latin-1")
    text = IGNORED.sub(lambda m: m[0] if m[0][0] == '"' else blank(m[0]), whole)
    sources = _Sources(text)
    text = DIRECTIVE.sub(lambda m: blank(m[0]), text)
    spans = definition_spans(text)
    if kernel not in spans or not text.startswith(".entry", spans[kernel][0]):
        return None
    ends = [found.end() for found in re.finditer("\n", text)]
    out: list[Statement] = []
    for name in _reached(text, spans, kernel):
        begin, brace, end = spans[name]
        first = bisect_right(ends, begin)
        out += _of_function(text, name, (brace, end), ends, sources, first)
    return sorted(out, key=lambda one: one.line)


def blank(text: str) -> str:
    """Returns spaces in place of all letters except line ends."""
    return "".join("\n" if letter == "\n" else " " for letter in text)


def _reached(text: str, spans: dict[str, tuple[int, int, int]], kernel: str) -> list[str]:
    """Returns a kernel and the functions that its text names."""
    reached, unseen = [kernel], [kernel]
    while unseen:
        begin, _, end = spans[unseen.pop()]
        words = dict.fromkeys(WORD.findall(text, begin, end))
        new = [word for word in words if word in spans and word not in reached]
        reached += new
        unseen += new
    return reached


class _Sources:
    """The lines of the program that `.loc` names."""

    def __init__(self, text: str) -> None:
        self._files = {int(number): path for number, path in FILE.findall(text)}
        self._lines: list[int] = []
        self._places: list[tuple[int, int]] = []
        line, at = 1, 0
        for found in LOC.finditer(text):
            line += text.count("\n", at, found.start())
            at = found.start()
            self._lines.append(line)
            self._places.append((int(found[1]), int(found[2])))

    def at(self, line: int, first: int) -> tuple[str, int] | None:
        """Returns the place of a line of a function that begins at the line `first`."""
        i = bisect_right(self._lines, line) - 1
        if i < 0 or self._lines[i] < first or not self._places[i][1]:
            return None
        file, number = self._places[i]
        return (self._files[file], number) if file in self._files else None


def _of_function(
    text: str,
    name: str,
    body: tuple[int, int],
    ends: Sequence[int],
    sources: _Sources,
    first: int,
) -> Iterator[Statement]:
    declared = list(DECLARATION.finditer(text, *body))
    types, taken = _Types(), 0
    for found in STATEMENT.finditer(text, *body):
        begin = found.start(3)
        if text[begin - 1] == ".":
            continue
        while taken < len(declared) and declared[taken].start() < begin:
            types.add(declared[taken])
            taken += 1
        line = bisect_right(ends, begin) + 1
        _, guard, mnemonic, rest = found.groups()
        operands = tuple(part for part in split_operands(rest) if part)
        words = dict.fromkeys(WORD.findall(rest))
        registers = {word: kind for word in words if (kind := types.get(word))}
        written = " ".join(text[begin : found.end() - 1].split())
        predicate = "".join(guard.split()) if guard else None
        shown = f"{predicate} {written}" if predicate else written
        source = sources.at(line, first)
        yield Statement(line, name, shown, predicate, mnemonic, operands, registers, source)


def register_types(text: str, begin: int, end: int) -> Callable[[str], str | None]:
    """Returns a function for the type, such as `b64`, of each register of a body of a function."""
    types = _Types()
    for declaration in DECLARATION.finditer(text, begin, end):
        types.add(declaration)
    return types.get


class _Types:
    """The types of declared registers. A name that is declared again has the new type."""

    def __init__(self) -> None:
        self._single: dict[str, str] = {}
        self._many: dict[str, str] = {}

    def add(self, declaration: re.Match[str]) -> None:
        kind = declaration[1].split()[-1].removeprefix(".")
        for name, count in DECLARED.findall(declaration[2]):
            (self._many if count else self._single)[name] = kind

    def get(self, name: str) -> str | None:
        return self._single.get(name) or self._many.get(name.rstrip("0123456789"))
