"""The results of `blame` and `watch` as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ttanalyze.code.demangle import demangle
from ttanalyze.core.values import Type
from ttanalyze.format.labels import Part
from ttanalyze.format.process import Process
from ttanalyze.format.selection import label_of
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text
from ttanalyze.verbs.blame.changes import Blame, Change, described
from ttanalyze.verbs.blame.condition import Condition
from ttanalyze.verbs.blame.sighting import Watched
from ttanalyze.verbs.blame.suspects import Suspect, Suspects, calls_recorded
from ttanalyze.verbs.blame.target import Target

SHOWN_ITEMS = 4
SHOWN_BYTES = 16
NO_CALLS = "no call can be named: the run recorded no calls"


def blame_text(found: Blame, colour: bool = False) -> str:
    """Returns the changes for a screen, each with the calls that may have written."""
    target = found.target
    span = f"epochs {found.first} to {found.last}" if found.last >= 0 else "no epochs"
    versions = text.count(found.count, "version")
    out = [text.coloured(f"{target_text(target)}: {versions} in {span}", "bold", colour)]
    hidden = found.count - len(found.changes)
    if hidden:
        out.append(f"… {hidden:,} before these (--limit 0 shows all)")
    names = _Names([change.suspects for change in found.changes])
    for change in found.changes:
        where = f"epoch {change.epoch}"
        if change.last > change.epoch:
            where += f" to {change.last}"
        out.append(
            f"{where}  {_epoch(target.process, change.epoch)}: {_change_text(target, change)}"
        )
        out += _suspects(change.suspects, names) if found.events else []
    if any(change.after is None and change.blocks is None for change in found.changes):
        out += _why_gone(target.process)
    out += _unread(found.unread, "epoch")
    return "\n".join(out if found.events else [*out, NO_CALLS])


def sighting_text(
    process: Process,
    condition: Condition,
    target: Target | None,
    seen: Watched,
    colour: bool = False,
) -> str:
    """Returns the result of `watch` for a screen."""
    kind, found = condition.type, seen.sighting
    where = "any region" if target is None else target_text(target)
    watched = f"{text.printable(condition.text)} in {where}"
    if target is None or not target.part:
        watched += f", as {kind.name}"
    out = []
    if found is None:
        out.append(text.coloured(f"{watched}: in no epoch", "bold", colour))
    else:
        when = f"first in epoch {found.epoch} ({_epoch(process, found.epoch)})"
        out.append(text.coloured(f"{watched}: {when}", "bold", colour))
        if found.since is not None:
            out.append(f"not in epoch {found.since}, the previous epoch of its context")
        names, events = _Names([hit.suspects for hit in found.hits]), calls_recorded(process)
        for hit in found.hits:
            label = f" {text.printable(hit.label)!r}" if hit.label else ""
            line = f"region {hit.region}{label}"
            line += f", from {hit.tensor} on: " if hit.tensor is not None else ": "
            if hit.items is None:
                line += "items unknown: the contents are gone"
            elif not hit.items:
                line += "only bytes after the last whole item"
            else:
                pairs = zip(hit.first, kind.texts(hit.data), strict=True)
                items = ", ".join(f"[{i}] {value}" for i, value in pairs)
                more = " …" if hit.items > len(hit.first) else ""
                line += f"{text.count(hit.items, 'item')}: {items}{more}"
            out += [line, *(_suspects(hit.suspects, names) if events else [])]
        if found.hit_count > len(found.hits):
            out.append(f"… and in {found.hit_count - len(found.hits):,} more regions")
        out += [] if events else [NO_CALLS]
    if seen.unseen:
        count = text.count(seen.unseen, "change")
        out.append(f"{count} not checked: the contents are gone")
        out += _why_gone(process)
    region = None if target is None else target.region
    left_out = process.unread.count(0, len(process.epochs) - 1, region)
    out += _unread(left_out, "epoch" if target is not None else "region-epoch")
    word = text.printable(condition.text)
    if seen.unlike:
        which = _regions(process, seen.unlike)
        out.append(f"skipped {which}: contents do not look like {kind.name} (--all searches them)")
    if seen.early:
        which = _regions(process, seen.early)
        out.append(f"skipped items that were {word} before, in {which} (--all shows it)")
    return "\n".join(out)


def _regions(process: Process, numbers: list[int]) -> str:
    """Returns regions in words: "region 3 'rng', 7 and 2 more"."""
    labels = [(number, label_of(process, number)) for number in numbers[:SHOWN_ITEMS]]
    shown = [f"{n} {text.printable(label)!r}" if label else str(n) for n, label in labels]
    more = f" and {len(numbers) - len(shown):,} more" if len(numbers) > len(shown) else ""
    return f"{'region' if len(numbers) == 1 else 'regions'} {', '.join(shown)}{more}"


def _unread(count: int, what: str) -> list[str]:
    if not count:
        return []
    return [f"{text.count(count, what)} not checked: {UNREAD}; a change appears in a later epoch"]


def _why_gone(process: Process) -> list[str]:
    why = process.digests_only
    return [text.printable(why)] if why else []


def target_text(target: Target) -> str:
    """Returns the target in words: a region or a tensor, and the part of it."""
    if target.tensor is not None:
        return _tensor_text(target, target.tensor)
    label = f" {text.printable(target.label)!r}" if target.label else ""
    out = f"region {target.region}{label}"
    if not target.part:
        return out
    kind, length = target.type, target.stop - target.start
    if kind is None:
        what = f"byte {target.start:#x}"
        return f"{out}, {what}" + (f" to {target.stop - 1:#x}" if length > 1 else "")
    index, rest = divmod(target.start, kind.itemsize)
    last = index + length // kind.itemsize - 1
    if rest:
        return (
            f"{out}, {text.count(last - index + 1, kind.name + ' item')} from byte {target.start}"
        )
    return f"{out}, {kind.name} [{index}{f'..{last}' if last > index else ''}]"


def _tensor_text(target: Target, part: Part) -> str:
    where = f"region {target.region} from byte {target.start}"
    first, length = part.within(target.start), target.stop - target.start
    out = text.printable(part.name)
    if length == part.bytes:
        return f"{out} ({text.count(length, 'byte')} of {where})"
    kind = target.type
    if kind is None or first % kind.itemsize:
        last = f" to {first + length - 1}" if length > 1 else ""
        return f"{out}, byte {first}{last} ({where})"
    index, count = first // kind.itemsize, length // kind.itemsize
    return f"{out}, {kind.name} [{index}{f'..{index + count - 1}' if count > 1 else ''}] ({where})"


def _epoch(process: Process, epoch: int) -> str:
    about = described(process, process.epochs[epoch])
    label = about["epoch_label"]
    words = [about["trigger"], *([demangle([label])[0]] if label else []), *about["flags"]]
    return text.printable(" ".join(words))


def _change_text(target: Target, change: Change) -> str:
    if change.blocks is not None:
        what = "first contents" if change.since is None else "changed"
        return f"{what}, {text.count(change.blocks, 'block')}"
    if change.after is None:
        return "may have changed; the contents are gone"
    if change.before is None:
        return f"{values_text(target.type, change.after)} (first contents)"
    if change.before == change.after:
        return f"{values_text(target.type, change.after)} (known again)"
    if len(change.before) == (target.type.itemsize if target.type else 1):
        return (
            f"{values_text(target.type, change.before)} → {values_text(target.type, change.after)}"
        )
    return _items(target.type, change.before, change.after)


def values_text(kind: Type | None, data: bytes) -> str:
    """Returns the first items of some bytes."""
    if kind is None:
        return data[:SHOWN_BYTES].hex(" ") + (" …" if len(data) > SHOWN_BYTES else "")
    some = kind.texts(data[: SHOWN_ITEMS * kind.itemsize])
    return " ".join(some) + (" …" if len(data) > SHOWN_ITEMS * kind.itemsize else "")


def _items(kind: Type | None, before: bytes, after: bytes) -> str:
    """Returns the items that changed."""
    size = kind.itemsize if kind else 1
    old, new = (np.frombuffer(data, "u1").reshape(-1, size) for data in (before, after))
    at = np.flatnonzero((old != new).any(axis=1)).tolist()
    parts = []
    for i in at[:SHOWN_ITEMS]:
        pair = (values_text(kind, data[i * size : (i + 1) * size]) for data in (before, after))
        parts.append(f"[{i}] {' → '.join(pair)}")
    if len(at) == len(old) <= SHOWN_ITEMS:
        return ", ".join(parts)
    return f"{len(at):,} of {len(old):,}: {', '.join(parts)}{' …' if len(at) > SHOWN_ITEMS else ''}"


class _Names:
    """Demangled names of kernels, all requested at once."""

    def __init__(self, found: Iterable[Suspects]) -> None:
        mangled = sorted({s.kernel for suspects in found for s in suspects.listed if s.kernel})
        self._of = dict(zip(mangled, demangle(mangled), strict=True))

    def __getitem__(self, mangled: str) -> str:
        return text.printable(self._of[mangled])


def _suspects(found: Suspects, names: _Names) -> list[str]:
    if not found.count:
        return ["    no recorded call can have written it"]
    lines = [f"    {_suspect(suspect, names)}" for suspect in found.listed]
    rest = found.count - len(found.listed)
    more = [text.count(rest, "more call")] if rest else []
    if found.indirect:
        more.append(f"{text.count(found.indirect, 'launch', 'launches')} given no pointer to it")
    return [*lines, f"    … and {', '.join(more)}"] if more else lines


def _suspect(suspect: Suspect, names: _Names) -> str:
    what: list[Any] = [suspect.call or suspect.kind]
    if suspect.kernel is not None and suspect.grid is not None and suspect.block is not None:
        grid, block = text.extent(suspect.grid), text.extent(suspect.block)
        what = [names[suspect.kernel], f"<<<{grid}, {block}>>>"]
    if suspect.bytes is not None:
        what.append(text.size(suspect.bytes))
    stream = f", stream {suspect.stream}" if suspect.stream else ""
    caller = f", from {text.printable(suspect.caller)}" if suspect.caller else ""
    return f"call {suspect.seq}{stream}: {' '.join(what)} ({suspect.how}){caller}"
