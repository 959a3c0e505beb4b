"""The instructions that wrote bytes, from the trace of a launch.

If the run has no trace of the launch, the launch is replayed, and accesses to these bytes alone are
traced.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core.values import Type
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout, open_run
from ttanalyze.format.contents import read
from ttanalyze.format.process import Process
from ttanalyze.traces.accesses import accesses, untold
from ttanalyze.traces.coverage import missing
from ttanalyze.traces.instructions import instructions_of
from ttanalyze.verbs.blame.changes import Blame, Change
from ttanalyze.verbs.blame.suspects import Suspect
from ttanalyze.verbs.blame.target import Target
from ttanalyze.verbs.blame.writes import Write, fits, followed
from ttanalyze.verbs.replay.plan import plan
from ttanalyze.verbs.retrace import own_traces, traced_launch

CATEGORY = "memory"
TRACED = {"TT_INSTRUMENT": "values", "TT_INSTRUMENT_CATEGORY": CATEGORY}
LARGEST = 4096  # bytes of a target
TRIES = 8  # launches that are replayed


@dataclass
class LaunchWrites:
    """The writes of a launch to a target.

    Attributes:
        seq: The sequence number of the launch.
        kernel: The mangled name.
        grid, block: Sizes.
        machine: Numbers of instructions are of machine code, not lines of PTX.
        replayed: The trace is that of a replay.
        writes: The writes, in the order of the trace.
        missing: What the trace lacks.
        doubts: What else is uncertain.
    """

    seq: int
    kernel: str
    grid: list[int]
    block: list[int]
    machine: bool = False
    replayed: bool = False
    writes: list[Write] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@dataclass
class Exact:
    """The writers of the latest change of a target.

    Attributes:
        launches: The launches whose traces were searched, the latest first. The first one that
            changed the target is the last in the list.
        untraced: Why other launches were not searched, by sequence number.
        others: Calls that are no launches, and may have made the change as well.
    """

    launches: list[LaunchWrites] = field(default_factory=list)
    untraced: dict[int, str] = field(default_factory=dict)
    others: list[Suspect] = field(default_factory=list)

    @property
    def found(self) -> bool:
        return any(one.writes for one in self.launches)

    @property
    def unclear(self) -> bool:
        """Whether writes may be missing."""
        return bool(self.untraced) or any(one.missing for one in self.launches)

    def as_dict(self, kind: Type | None) -> dict[str, Any]:
        """Returns an object for JSON. Values are lists of items of the type, or hexadecimal
        bytes.
        """
        launches = [asdict(one) for one in self.launches]
        for write in (write for launch in launches for write in launch["writes"]):
            for name in ("before", "after"):
                data = write[name]
                if data is not None:
                    write[name] = data.hex() if kind is None else kind.listed(data)
        untraced = [{"seq": seq, "reason": why} for seq, why in self.untraced.items()]
        others = [asdict(one) for one in self.others]
        return {"launches": launches, "untraced": untraced, "others": others}


def exact(found: Blame, sim: bool = False) -> Exact:
    """Finds the instructions that made the latest change of a target.

    Args:
        found: What `blame` found.
        sim: Whether to replay on the simulator.

    Raises:
        Error: Nothing changed, the target is too large, or no launch can have made the change.
    """
    target = found.target
    size = target.stop - target.start
    if size > LARGEST:
        raise Error(
            f"--exact takes at most {LARGEST:,} bytes, not {size:,}: use --offset, --element and "
            "--count"
        )
    changes = [change for change in found.changes if change.after != change.before]
    if not changes:
        raise Error(f"region {target.region} has no change in these epochs")
    change = changes[-1]
    listed = change.suspects.listed
    launches = [one for one in listed if one.kind == "launch" or _graph_traces(target, one)]
    launches.sort(key=lambda one: -one.seq)
    out = Exact(others=[one for one in listed if one not in launches])
    if not launches:
        calls = ", ".join(f"call {one.seq} ({one.call or one.kind})" for one in out.others)
        why = (
            f"only {calls} may have made it" if calls else "no call is known that may have made it"
        )
        raise Error(f"no launch made the change of epoch {change.epoch}: {why}")
    for suspect in launches[:TRIES]:
        try:
            for made in _launches(target, change, suspect, sim, len(listed) == 1):
                out.launches.append(made)
                if any(one.changes for one in made.writes):
                    return out
        except FormatError:
            raise
        except Error as e:
            out.untraced[suspect.seq] = str(e)
    out.untraced |= {one.seq: "too many launches" for one in launches[TRIES:]}
    return out


def _graph_traces(target: Target, suspect: Suspect) -> list[int]:
    """Returns the traced kernels of a launch of a graph, by their index in `process.traced`."""
    if suspect.kind != "graph-launch":
        return []
    return own_traces(target.process, suspect.seq, "values", CATEGORY)


def _launches(
    target: Target, change: Change, suspect: Suspect, sim: bool, alone: bool
) -> Iterator[LaunchWrites]:
    """Yields what a launch wrote; of a graph, its kernels from the last to the first node.

    alone: no other call may have made the change.
    """
    process, seq = target.process, suspect.seq
    kernels = _graph_traces(target, suspect)
    for index in reversed(kernels):
        head = process.traced[index]
        name = process.kernel(int(head["function"])) or ""
        out = LaunchWrites(seq, name, head["grid"].tolist(), head["block"].tolist())
        if len(kernels) > 1:
            out.doubts.append("kernels of a graph are taken in the order of its nodes")
        yield _search(target, out, (None, None), _own_trace(target, index))
    if kernels:
        return
    out = LaunchWrites(seq, suspect.kernel or "", suspect.grid or [], suspect.block or [])
    before, after = _around(target, seq)
    if alone:
        before, after = before or change.before, after or change.after
    yield _search(target, out, (before, after), _trace(target, seq, sim))


def _search(
    target: Target,
    out: LaunchWrites,
    around: tuple[bytes | None, bytes | None],
    trace: contextlib.AbstractContextManager[tuple[Process, int, int, str]],
) -> LaunchWrites:
    """Adds the writes in a trace. around: the contents before and after the launch."""
    process, (before, after) = target.process, around
    with trace as (of, index, base, doubt):
        out.replayed = of is not process
        out.doubts += [doubt] if doubt else []
        code = instructions_of(open_run(of.path.parent), of, int(of.traced["function"][index]))
        out.machine = not code.ptx
        # Of a replay, only addresses of the target were traced.
        lacks = [line for line in missing(of, index) if not (out.replayed and "addresses" in line)]
        out.missing = lacks + untold(code)
        out.doubts += [code.note] if code.note else []
        window = base, base + target.stop - target.start
        stores = accesses(of, index, code, window, out.missing)
    for number in sorted({store.instruction.number for store in stores}):
        if (several := code.by_number[number].statements) > 1:
            out.doubts.append(f"line {number} has {several} statements that one record may mean")
    out.writes = followed(target, stores, before, after)
    if after is not None and not out.missing and not fits(target, out.writes, before, after):
        out.doubts.append("after the launch the memory has other contents than these writes leave")
    return out


def _around(target: Target, seq: int) -> tuple[bytes | None, bytes | None]:
    """Returns the contents of a target right before and after a launch, None where unknown."""
    try:
        planned = plan(target.process, seq)
    except FormatError:
        raise
    except Error:
        return None, None
    epochs = (None if planned.prepare else planned.before, planned.after)
    out: list[bytes | None] = []
    for epoch in epochs:
        contents = None
        if epoch is not None:
            with contextlib.suppress(Error):
                part = target.region, target.start, target.stop
                contents = read(target.process, epoch, *part).tobytes()
        out.append(contents)
    return out[0], out[1]


def _begin(target: Target) -> int:
    """Returns the address of the target."""
    regions = target.process.regions
    birth = regions.birth[regions.rows(np.array([target.region]))[0]]
    return int(birth["base"]) + target.start


@contextlib.contextmanager
def _own_trace(target: Target, index: int) -> Iterator[tuple[Process, int, int, str]]:
    """Yields what `_trace` does, for a trace of the run."""
    yield target.process, index, _begin(target), ""


@contextlib.contextmanager
def _trace(target: Target, seq: int, sim: bool) -> Iterator[tuple[Process, int, int, str]]:
    """Yields the process whose trace has a launch, the index there, the address of the target, and
    a doubt.
    """
    process, regions = target.process, target.process.regions
    birth = regions.birth[regions.rows(np.array([target.region]))[0]]
    begin = _begin(target)
    if own := own_traces(process, seq, "values", CATEGORY):
        yield process, own[0], begin, ""
        return
    last = begin + target.stop - target.start - 1
    window = {"TT_INSTRUMENT_ADDRESSES": f"{begin:#x}:{last:#x}"}
    # The driver chooses where variables of modules are.
    fixed = birth["kind"] != layout.REGION_KINDS.index("global")
    for more in [window, {}] if fixed else [{}]:
        with tempfile.TemporaryDirectory(prefix="ttanalyze-blame-") as folder:
            found = traced_launch(process, seq, Path(folder), TRACED | more, sim)
            if found.refusal is not None:
                raise Error(f"launch {seq} was not traced: {found.refusal}")
            moved = found.moved.get(target.region)
            if moved is None or not more:
                at = begin if moved is None else moved + target.start
                yield found.process, 0, at, found.doubt
                return
