"""What PTX statements mean for races. The simulator traces them by the line of the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttanalyze.code.pointers import split_operands
from ttanalyze.code.ptx_statements import Statement
from ttanalyze.verbs.race.exact.model import ALL_LANES, Access, Operation, Scope, Space, Sync

TYPE = re.compile(r"[a-z]+?(\d+)(x2)?$")
NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)U?$")
STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}
SPACES = {"global": Space.GLOBAL, "shared": Space.SHARED, "shared::cta": Space.SHARED}
SPACES |= {"shared::cluster": Space.SHARED}
OTHER_SPACES = {"param", "local", "const", "param::entry", "param::func"}
SCOPES = {"cta": Scope.BLOCK, "cluster": Scope.CLUSTER}
# What orders in a way that is not modelled, or reaches memory that no record tells.
UNKNOWN = (
    *("cp.async.mbarrier", "red.async", "st.bulk", "multimem"),
    *("tcgen05", "wgmma", "griddepcontrol", "tensormap"),
)
ACCESSES = {"ld": Access.LOAD, "ldu": Access.LOAD, "st": Access.STORE, "ldmatrix": Access.LOAD}
ACCESSES |= {"stmatrix": Access.STORE, "atom": Access.ATOMIC, "red": Access.ATOMIC}


def operation(line: Sequence[Statement]) -> Operation:
    """Returns what the statements of a line of PTX do."""
    made = [_operation(one) for one in line]
    telling = [one for one in made if one.access != Access.NONE or one.sync != Sync.NONE]
    if len(telling) > 1:
        text = "; ".join(one.text for one in line)
        return Operation(text, sync=Sync.UNKNOWN, source=made[0].source)
    return (telling or made)[0]


def _operation(one: Statement) -> Operation:
    source = f"{Path(one.source[0]).name}:{one.source[1]}" if one.source else None
    words = one.mnemonic.split(".")
    made = _sync(one.mnemonic, words, one.operands) or _access(words)
    return Operation(one.text, source=source, **made)


def size_register(text: str) -> int:
    """Returns the row of the register that has the size of a copy, among those in a trace."""
    operands = split_operands(text[text.index("[") :])
    names = list(dict.fromkeys(re.findall(r"%\w+", " ".join(operands[:2]))))
    return sum(2 if name.startswith("%rd") else 1 for name in names)  # rows of 4 bytes


def _scope(words: Sequence[str], otherwise: Scope = Scope.DEVICE) -> Scope:
    return next((SCOPES[word] for word in words if word in SCOPES), otherwise)


def _number(text: str) -> int | None:
    return int(text.rstrip("U"), 0) & ALL_LANES if NUMBER.match(text) else None


def _sync(name: str, words: Sequence[str], operands: Sequence[str]) -> dict[str, Any]:
    if name.startswith(UNKNOWN):
        return {"sync": Sync.UNKNOWN}
    match words[0]:
        case "bar" | "barrier" if "warp" in words:
            return {"sync": Sync.WARP, "barrier": _number(operands[0]) if operands else None}
        case "barrier" if "cluster" in words:
            if "relaxed" in words:
                return {"sync": Sync.UNKNOWN}
            return {"sync": Sync.CLUSTER_WAIT if "wait" in words else Sync.CLUSTER_ARRIVE}
        case "bar" | "barrier":
            return _barrier(words, operands)
        case "membar" | "fence":
            if "proxy" in words or "mbarrier_init" in words:
                return {"sync": Sync.NONE}
            return {"sync": Sync.FENCE, "scope": _scope(words)}
        case "mbarrier":
            return _mbarrier(words)
        case "st" if "async" in words:
            return {**_access(words), "copy": True, "sync": Sync.MBARRIER_ARRIVE}
        case "cp" if "wait_group" in words or "wait_all" in words:
            return {} if "read" in words else {"sync": Sync.COPY_WAIT}
        case "cp" if "async" in words and words[-1] != "commit_group" and "prefetch" not in words:
            return _copy(words, operands)
    return {}


def _copy(words: Sequence[str], operands: Sequence[str]) -> dict[str, Any]:
    """A copy whose size is in a register or in a tensor map has size 0."""
    to = next((SPACES[word] for word in words if word in SPACES), Space.GENERIC)
    tensor, reduces = "tensor" in words, "reduce" in words
    if (len(operands) < 3 and not tensor) or (reduces and to != Space.GLOBAL):
        return {"sync": Sync.UNKNOWN}
    size = 0 if tensor else _number(operands[2]) or 0
    access = Access.ATOMIC if reduces else Access.STORE
    made = {"access": access, "space": to, "size": size, "copy": True, "strong": reduces}
    if "mbarrier::complete_tx::bytes" in words:
        made["sync"] = Sync.MBARRIER_ARRIVE
    return made


def _barrier(words: Sequence[str], operands: Sequence[str]) -> dict[str, Any]:
    if "red" in words:  # its result comes first, its predicate last
        operands = operands[1:-1]
    arrives = "arrive" in words
    return {
        "sync": Sync.BARRIER_ARRIVE if arrives else Sync.BARRIER,
        "barrier": _number(operands[0]) if operands else 0,
        "count": _number(operands[1]) if len(operands) > 1 else 0,
    }


def _mbarrier(words: Sequence[str]) -> dict[str, Any]:
    space = next((SPACES[word] for word in words if word in SPACES), Space.GENERIC)
    if "test_wait" in words or "try_wait" in words:
        return {"sync": Sync.MBARRIER_WAIT, "space": space}
    if "arrive" in words or "arrive_drop" in words:
        return {"sync": Sync.MBARRIER_ARRIVE, "space": space}
    return {"sync": Sync.NONE}


def _access(words: Sequence[str]) -> dict[str, Any]:
    access = ACCESSES.get(words[0])
    if access is None or OTHER_SPACES.intersection(words):
        return {}
    both = "acq_rel" in words
    return {
        "access": access,
        "space": next((SPACES[word] for word in words if word in SPACES), Space.GENERIC),
        "size": 16 if "matrix" in words[0] else _size(words),
        "strong": access == Access.ATOMIC or bool(STRONG.intersection(words)),
        "release": both or "release" in words,
        "acquire": both or "acquire" in words,
        "returns": words[0] != "red",
        "scope": _scope(words),
    }


def _size(words: Sequence[str]) -> int:
    """Returns the bytes that a thread accesses."""
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    found = TYPE.match(words[-1])
    bits = int(found[1]) * (2 if found[2] else 1) if found else 32
    return count * max(bits // 8, 1)
