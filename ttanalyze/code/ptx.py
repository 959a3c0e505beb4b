"""PTX: checksums and features of kernels in the text that the driver compiles.

Texts that differ in comments, white space, lines for debuggers (`.loc`), the names of labels or the
name of the kernel itself have the same checksum. Functions that a kernel calls count.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Sequence

import xxhash

DEBUG_LINES = re.compile(r"^[ \t]*\.(?:loc|file)\b[^\n]*", re.M)
COMMENT = re.compile(r"//|/\*")
DEFINITION = re.compile(r"\.(?:entry|func)(?![\w$.])")
RESULT = re.compile(r"\s*\(")  # what a function gives back
NAME = re.compile(r"\s*([A-Za-z_$%][\w$]*)")
BRACES = re.compile(r"[{}]")
BEGINNING = re.compile(r"[{;]")
TOKEN = re.compile(r'"[^"\n]*"|[\w$%.]+|\S')


# What begins an instruction on a texture or a surface, and what calls the device's runtime.
VIEWS = {"textures": ("tex.", "tld4.", "txq."), "surfaces": ("suld.", "sust.", "sured.", "suq.")}


def checksums(image: bytes, names: Sequence[str]) -> list[str | None]:
    """Returns for each mangled name 16 hexadecimal digits, None if there is no such kernel."""
    module = _Module(image)

    def checksum(name: str) -> str | None:
        if not module.has(name):
            return None
        reached = module.reached(name)
        code = [module.tokens(name), *(module.tokens(other) for other in sorted(reached - {name}))]
        normal = "\n".join(" ".join(tokens) for tokens in code)
        return f"{xxhash.xxh3_64_intdigest(normal.encode()):016x}"

    return [checksum(name) for name in names]


def uses(image: bytes, name: str) -> tuple[set[str], set[str]] | None:
    """Returns which of VIEWS a kernel and its callees use, and all words of their text, which
    include the functions that they call.

    None if there is no such kernel.
    """
    module = _Module(image)
    if not module.has(name):
        return None
    words = {token for other in module.reached(name) for token in module.tokens(other)}
    views = {kind for kind, begins in VIEWS.items() if any(w.startswith(begins) for w in words)}
    return views, words


def definitions(image: bytes, names: Sequence[str]) -> list[str | None]:
    """The text of each kernel, from `.entry` on; None where there is no such kernel."""
    module = _Module(image)
    return [module.text(name) if module.has(name) else None for name in names]


class _Module:
    """The functions of a text, and the functions that each calls."""

    def __init__(self, image: bytes) -> None:
        text = _without_comments(image.split(b"\0", 1)[0].decode("latin-1"))
        self._definitions = _definitions(DEBUG_LINES.sub("", text))
        self._known: dict[str, list[str]] = {}

    def has(self, kernel: str) -> bool:
        return self._definitions.get(kernel, "").startswith(".entry")

    def text(self, name: str) -> str:
        return self._definitions[name]

    def tokens(self, name: str) -> list[str]:
        if name not in self._known:
            self._known[name] = _tokens(name, self._definitions[name])
        return self._known[name]

    def reached(self, kernel: str) -> set[str]:
        """Returns a kernel and the functions that it can call."""
        reached, unseen = {kernel}, [kernel]
        while unseen:
            called = {t for t in self.tokens(unseen.pop()) if t in self._definitions} - reached
            reached |= called
            unseen += called
        return reached


def _without_comments(text: str) -> str:
    parts, at = [], 0
    while (found := COMMENT.search(text, at)) is not None:
        parts.append(text[at : found.start()])
        line = found[0] == "//"
        end = text.find("\n" if line else "*/", found.end())
        if end < 0:
            return "".join(parts)
        at = end if line else end + 2
        parts.append("" if line else " ")
    return "".join([*parts, text[at:]])


def _definitions(text: str) -> dict[str, str]:
    """Returns the text of each function with a body, by its name."""
    spans = definition_spans(text)
    return {name: text[begin:end] for name, (begin, _, end) in spans.items()}


def definition_spans(text: str) -> dict[str, tuple[int, int, int]]:
    """Returns begin, opening brace and end of each function with a body, by its name.

    text: PTX without comments.
    """
    out: dict[str, tuple[int, int, int]] = {}
    at = 0
    while (found := DEFINITION.search(text, at)) is not None:
        at = found.end()
        if RESULT.match(text, at):
            at = text.find(")", at) + 1
            if not at:
                break
        name = NAME.match(text, at)
        begins = BEGINNING.search(text, at)
        if name is None or begins is None:
            break
        at = begins.end()
        if begins[0] == "{":
            at = _closing(text, begins.start())
            if not at:
                break
            out.setdefault(name[1], (found.start(), begins.start(), at))
    return out


def _closing(text: str, at: int) -> int:
    """Returns the position behind the brace that closes the one at `at`, 0 if none does."""
    depth = 0
    for brace in BRACES.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return 0


def _tokens(name: str, definition: str) -> list[str]:
    """Returns the tokens of a function without its own name, with labels numbered as they
    appear.
    """
    name_pattern = re.compile("^" + re.escape(name) + r"(?=$|_param_)")
    found = [name_pattern.sub("$", token) for token in TOKEN.findall(definition)]
    labels = {token for token, after in itertools.pairwise(found) if after == ":"}
    times = collections.Counter(token for token in found if token in labels)
    numbers: dict[str, str] = {}
    out: list[str] = []
    at = 0
    while at < len(found):
        token = found[at]
        if token in labels and times[token] == 1:  # nothing jumps there, but debuggers do
            at += 2
            continue
        if token in labels:
            token = numbers.setdefault(token, f"$L{len(numbers)}")
        out.append(token)
        at += 1
    return out
