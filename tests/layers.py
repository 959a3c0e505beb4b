"""Layers of a source tree: layers.txt names them, lowest first, and who may use whom follows.

A line of the file is the path of a file or a folder, without suffix, and a sentence. Of several
lines that fit a file, the longest counts. A file uses its own layer and those below it. What lies
in FOLDER/* side by side does not use each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Use:
    """That a file uses another: by an import or an include. Paths are without suffix."""

    user: str
    line: int
    used: str


@dataclass(frozen=True)
class Layer:
    """rank: 0 is the lowest. neighbours: members do not use each other."""

    path: str
    rank: int
    neighbours: bool

    def has(self, path: str) -> bool:
        return path == self.path or path.startswith(self.path + "/")

    def member(self, path: str) -> str:
        return path.removeprefix(self.path + "/").partition("/")[0]


def read(file: Path) -> list[Layer]:
    lines = (line.split() for line in file.read_text().splitlines())
    paths = [words[0] for words in lines if words and words[0] != "#"]
    return [Layer(p.removesuffix("/*"), i, p.endswith("/*")) for i, p in enumerate(paths)]


def faults(layers: Iterable[Layer], uses: Iterable[Use]) -> Iterator[str]:
    """A line for each use of a higher layer or of a neighbour, and for files without a layer."""
    layers = list(layers)
    for use in uses:
        user, used = _layer(layers, use.user), _layer(layers, use.used)
        where = f"{use.user}:{use.line}: {use.used}"
        if user is None or used is None:
            yield f"{where}: {use.user if user is None else use.used} is in no layer"
        elif used.rank > user.rank:
            yield f"{where}: {used.path} is above {user.path}"
        elif used == user and user.neighbours and user.member(use.user) != user.member(use.used):
            yield f"{where}: neighbours in {user.path} do not use each other"


def _layer(layers: list[Layer], path: str) -> Layer | None:
    fitting = [layer for layer in layers if layer.has(path)]
    return max(fitting, key=lambda layer: len(layer.path), default=None)


def cycle(uses: Iterable[Use]) -> list[str]:
    """Files of which each uses the next and the last the first; empty where there are none."""
    graph: dict[str, set[str]] = {}
    for use in uses:
        graph.setdefault(use.user, set()).add(use.used)
    done: set[str] = set()
    for start in sorted(graph):
        found = _walk(graph, start, done)
        if found:
            return found
    return []


def _walk(graph: Mapping[str, set[str]], start: str, done: set[str]) -> list[str]:
    path, rest = [start], [iter(sorted(graph[start]))]
    while path:
        following = next(rest[-1], None)
        if following is None:
            done.add(path.pop())
            rest.pop()
        elif following in path:
            return path[path.index(following) :]
        elif following not in done:
            path.append(following)
            rest.append(iter(sorted(graph.get(following, ()))))
    return []
