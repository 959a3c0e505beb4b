"""Names the tensors that programs of PyTorch save for the backward pass.

Tensors are read where the nodes of autograd keep them. Nothing is unpacked: hooks of saved tensors
do not run, and nothing is computed again. Needs PyTorch 2.6 or newer.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ttanalyze.integrations.memory_names import NOT_NOW, SAVED, Memory

MEMBER = "_raw_saved_"
MOST = 1 << 16  # nodes that are remembered
LEAF = 1 << 63  # nodes of leaves have higher numbers


class _Call:
    """A running module. first: the number of its first node."""

    __slots__ = ("counts", "first", "name")

    def __init__(self, name: str, first: int) -> None:
        self.name, self.first = name, first
        self.counts: dict[str, int] = {}  # of nodes by operation


class _Thread(threading.local):
    """The running modules of a thread, outermost first, and the numbers of the nodes seen."""

    def __init__(self, seen_by_main: set[int]) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.calls: list[_Call] = []
        self.seen = seen_by_main if is_main else set()


class SavedTensors:
    """Follows the calls of modules. Nodes belong to the innermost module that makes them.

    A thread numbers its nodes in order, so those of a call have numbers from its first on. What a
    module made before it called another is found through the arguments of that call. Nodes of no
    module are found through variables of the program.
    """

    def __init__(self, memory: Memory) -> None:
        torch: Any = sys.modules.get("torch")
        self._memory = memory
        self._seen_by_main: set[int] = set()
        self._here = _Thread(self._seen_by_main)
        self._kinds: dict[type, tuple[str, list[tuple[str, str]]]] = {}
        self._next: Callable[[], int] | None = None
        self._enabled: Callable[[], bool] = bool
        try:
            if hasattr(torch._C._autograd.SavedTensor, "data"):
                self._next = torch.autograd._get_sequence_nr
                self._enabled = torch.is_grad_enabled
        except AttributeError:  # an older version
            pass

    @property
    def readable(self) -> bool:
        """Whether this PyTorch shows what nodes save."""
        return self._next is not None

    def begin(self, name: str, module: Any, given: Iterable[Any]) -> None:
        """Notes that a module runs, as its hook. given: its arguments."""
        if self._next is None or not self._enabled():
            return
        here = self._here
        if here.calls:
            self._find(here.calls[-1], given, here.seen)
        here.calls.append(_Call(name, self._next()))

    def end(self, name: str, output: Iterable[Any]) -> None:
        """Names what a module saved. output: the tensors that it returns."""
        calls = self._here.calls
        if any(call.name is name for call in calls):
            while (call := calls.pop()).name is not name:  # an exception ended it
                continue
            self._find(call, output, self._here.seen)

    def behind(self, name: str, tensor: Any) -> None:
        """Names what nodes of the main thread that belong to no module saved on the way to a tensor
        of a variable. Its own node is the first of its kind.
        """
        if self._next is not None and getattr(tensor, "grad_fn", None) is not None:
            self._find(_Call(f"{name}:saved.", 0), [tensor], self._seen_by_main)

    def _find(self, call: _Call, tensors: Iterable[Any], seen: set[int]) -> None:
        """Names what the new nodes behind tensors save. seen: the numbers of the others."""
        if len(seen) > MOST:
            seen.clear()
        first, found = call.first, {}
        pending = [getattr(tensor, "grad_fn", None) for tensor in tensors]
        while pending:
            node = pending.pop()
            if node is None:
                continue
            number = node._sequence_nr()
            if first <= number < LEAF and number not in seen:
                seen.add(number)
                found[number] = node
                pending += [before for before, _ in node.next_functions]
        for number in sorted(found):
            self._name(call, found[number])

    def _name(self, call: _Call, node: Any) -> None:
        operation, members = self._kinds.get(type(node)) or self._learn(type(node))
        if not members:
            return
        number = call.counts[operation] = call.counts.get(operation, 0) + 1
        path = f"{call.name}{operation}{number if number > 1 else ''}"
        for member, label in members:
            try:
                saved = getattr(node, member)
            except NOT_NOW:  # it is freed
                continue
            each = enumerate(saved) if isinstance(saved, tuple) else (("", saved),)
            for index, one in each:
                self._memory.name(one.data, f"{path}{label}{index}".encode(), SAVED)

    def _learn(self, kind: type) -> tuple[str, list[tuple[str, str]]]:
        """Returns the operation of a kind of nodes, and the members that hold tensors."""
        members = [name for name in dir(kind) if name.startswith(MEMBER)]
        labels = [f".{name.removeprefix(MEMBER)}" for name in members]
        labels = ["." if label == ".tensors" else label for label in labels]
        operation = re.sub(r"Backward\d*$", "", kind.__name__)
        self._kinds[kind] = operation, list(zip(members, labels, strict=True))
        return self._kinds[kind]
