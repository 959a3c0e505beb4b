"""What machine instructions mean for races."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ttanalyze.disassembly.decode import Text, parsed
from ttanalyze.verbs.race.exact.model import ALL_LANES, Access, Operation, Scope, Space, Sync

NUMBER = re.compile(r"0x[0-9a-f]+$")
SPACES = {"G": Space.GLOBAL, "S": Space.SHARED, "": Space.GENERIC, "SM": Space.SHARED}
MEMORY = re.compile(r"(LD|ST|ATOM|RED)(G|SM|S|)$")
ACCESSES = {"LD": Access.LOAD, "ST": Access.STORE, "ATOM": Access.ATOMIC, "RED": Access.ATOMIC}
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32, "F16x2": 4}
SCOPES = {"CTA": Scope.BLOCK, "SM": Scope.BLOCK}
# What orders in a way that is not modelled, or reaches memory that no record tells.
UNKNOWN = "WARPGROUPSYNC ARRIVES USYNCS UTCBAR ACQBULK UTMALDG UTMASTG UTMAREDG UBLKCP UBLKRED"
UNKNOWN += " STAS REDAS LDTM STTM UTCHMMA UTCQMMA UTCIMMA UTCOMMA UTCCP UATOMS UTMACMDFLUSH"
ARRIVES, WAITS = "SYNCS.ARRIVE", "SYNCS.PHASECHK"


def of_row(row: Mapping[str, Any]) -> Operation:
    """Returns what an instruction of an instruction table does."""
    file = row.get("file")
    return operation(str(row["sass"]), f"{Path(file).name}:{row['line']}" if file else None)


@lru_cache(1 << 14)
def operation(sass: str, source: str | None = None) -> Operation:
    """Returns what a machine instruction does. source: FILE:LINE."""
    text = parsed(sass.rstrip("; "))
    words = text.mnemonic.split(".")
    return Operation(text.sass, source=source, **(_sync(text, words) or _access(text, words)))


def _sync(text: Text, words: Sequence[str]) -> dict[str, Any]:
    if text.opcode in UNKNOWN.split():
        return {"sync": Sync.UNKNOWN}
    match text.opcode:
        case "BAR":
            return _barrier(text, words)
        case "WARPSYNC":
            members = text.operands[0] if text.operands else "0xffffffff"
            return {"sync": Sync.WARP, "barrier": _number(members)}
        case "NOP":  # what is left of a warp sync that the compiler found the warp to meet at
            return {"sync": Sync.WARP, "barrier": None}
        case "MEMBAR":
            return {"sync": Sync.FENCE, "scope": _scope(words)}
        case "CCTL" if "IVALL" in words:  # the second half of a fence
            return {"sync": Sync.FENCE, "scope": Scope.DEVICE}
        case "UCGABAR_ARV":
            return {"sync": Sync.CLUSTER_ARRIVE}
        case "UCGABAR_WAIT":
            return {"sync": Sync.CLUSTER_WAIT}
        case "SYNCS" if text.mnemonic.startswith(ARRIVES):
            return {"sync": Sync.MBARRIER_ARRIVE, "space": Space.SHARED}
        case "SYNCS" if text.mnemonic.startswith(WAITS):
            return {"sync": Sync.MBARRIER_WAIT, "space": Space.SHARED}
        case "DEPBAR":
            return {"sync": Sync.COPY_WAIT}
    return {}


def _barrier(text: Text, words: Sequence[str]) -> dict[str, Any]:
    operands = [operand for operand in text.operands if not operand.lstrip("!").startswith("P")]
    return {
        "sync": Sync.BARRIER_ARRIVE if "ARV" in words else Sync.BARRIER,
        "barrier": _number(operands[0]) if operands else 0,
        "count": _number(operands[1]) if len(operands) > 1 else 0,
    }


def _number(text: str) -> int | None:
    return int(text, 16) & ALL_LANES if NUMBER.match(text) else None


def _scope(words: Sequence[str]) -> Scope:
    return next((SCOPES[word] for word in words if word in SCOPES), Scope.DEVICE)


def _access(text: Text, words: Sequence[str]) -> dict[str, Any]:
    if text.opcode == "LDGSTS":
        size = next((WIDTHS[word] for word in words if word in WIDTHS), 4)
        return {"access": Access.STORE, "space": Space.SHARED, "size": size, "copy": True}
    found = MEMORY.match(text.opcode)
    if found is None:
        return {}
    matrix = found[2] == "SM"
    access = ACCESSES[found[1]]
    return {
        "access": access,
        "space": SPACES[found[2]],
        "size": 16 if matrix else next((WIDTHS[word] for word in words if word in WIDTHS), 4),
        "strong": access == Access.ATOMIC or "STRONG" in words,
        "returns": found[1] != "RED",
        "scope": _scope(words),
    }
