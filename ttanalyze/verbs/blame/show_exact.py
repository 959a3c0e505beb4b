"""The writes of launches as text."""

from __future__ import annotations

from ttanalyze.code.demangle import demangle, short
from ttanalyze.output import text
from ttanalyze.traces.instructions import described
from ttanalyze.verbs.blame.exact import Exact, LaunchWrites
from ttanalyze.verbs.blame.show import values_text
from ttanalyze.verbs.blame.target import Target
from ttanalyze.verbs.blame.writes import Write

UNKNOWN = "unknown"
UNORDERED = "writes in unknown order: nothing in the trace orders these warps or lanes"


def exact_text(found: Exact, target: Target, limit: int, colour: bool = False) -> str:
    """Returns the writes for a screen. limit: how many of each launch, the last ones; 0: all."""
    demangle([launch.kernel for launch in found.launches])  # all at once: each takes a process
    out: list[str] = []
    for launch in found.launches:
        out += _launch(launch, target, limit, colour)
    untraced = found.untraced.items()
    out += [f"launch {seq} was not searched: {text.printable(why)}" for seq, why in untraced]
    if found.others:
        calls = ", ".join(f"call {one.seq} ({one.call or one.kind})" for one in found.others)
        out.append(f"not searched, because they are no launches: {text.printable(calls)}")
    return "\n".join(out)


def _launch(launch: LaunchWrites, target: Target, limit: int, colour: bool) -> list[str]:
    kernel = text.printable(short(demangle([launch.kernel])[0]))
    how = "replayed and traced" if launch.replayed else "traced"
    count = text.count(len(launch.writes), "write")
    if not launch.writes:
        count = "no write found" if launch.missing else "no write"
    word = text.coloured(count, "green" if launch.writes else "yellow", colour)
    out = [f"launch {launch.seq} of {kernel}: {word} ({how})"]
    out += [f"  not covered: {text.printable(line)}" for line in launch.missing]
    out += [f"  note: {text.printable(line)}" for line in launch.doubts]
    if not all(write.ordered for write in launch.writes):
        out.append(f"  note: {UNORDERED}")
    shown = launch.writes[-limit:] if limit else launch.writes
    if len(shown) < len(launch.writes):
        hidden = len(launch.writes) - len(shown)
        out.append(f"  … {hidden:,} before these (--limit 0 shows all)")
    before = None
    for write in shown:
        if write.number != before:
            out.append(f"  {described(write.text, write.number, write.line, launch.machine)}")
        out.append(f"    {_write(write, target)}")
        before = write.number
    return out


def _write(write: Write, target: Target) -> str:
    block, thread = text.coordinates(write.block), text.coordinates(write.thread)
    old, new = (
        UNKNOWN if one is None else values_text(target.type, one)
        for one in (write.before, write.after)
    )
    size = 1 if target.type is None else target.type.itemsize
    item = f"byte {write.offset:#x}" if target.type is None else f"[{write.offset // size}]"
    where = f" {item}" if target.stop - target.start > size else ""
    left = ", which was left" if write.last else ""
    return f"block {block}, thread {thread}:{where} {old} → {new}{left}"
