"""Traces of recorded launches: the one in the run, or that of a replay under the recorder."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import open_run
from ttanalyze.format.instruction_traces import kind_number
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.traces.coverage import missing, refused
from ttanalyze.util.own_process import own_command
from ttanalyze.verbs.record.run import default_out, note, record
from ttanalyze.verbs.replay.plan import Plan, plan

DIFFERS = 1  # the status of a replay that leaves other memory than the recording
ANSWER = re.compile(rb"^\{.*^\}", re.M | re.S)
OTHER_MEMORY = "the replay left other memory than the recorded launch"


def own_traces(process: Process, seq: int, kind: str, category: str) -> list[int]:
    """Returns the kernels of a launch with a complete trace, by their index in `process.traced`.

    Args:
        process: The process.
        seq: The sequence number of the launch, perhaps of a graph.
        kind: The kind of records that is needed.
        category: The instructions that are needed.
    """
    chosen = str(process.info.get("options", {}).get("TT_INSTRUMENT_CATEGORY", ""))
    if chosen and category not in chosen.split(","):
        return []
    heads = process.traced
    good = (heads["seq"] == seq) & (heads["refused"] == 0)
    good &= heads["kinds"] >> kind_number(kind) & 1 != 0
    return [index for index in np.flatnonzero(good).tolist() if not missing(process, index)]


@dataclass(frozen=True)
class Retraced:
    """A replay under the recorder.

    Attributes:
        out: Its run directory.
        status: Its exit status.
        outcome: What `replay` says of the launch, {} if it says nothing.
        said: What else it said.
    """

    out: Path
    status: int
    outcome: dict[str, Any]
    said: str

    @property
    def moved(self) -> dict[int, int]:
        """Regions of the recorded process that were at other addresses, with these."""
        return {int(region): address for region, address in self.outcome.get("moved", {}).items()}

    @property
    def doubt(self) -> str:
        """What is doubtful about the trace, "" if nothing is."""
        if self.outcome.get("status") == "unchecked":
            return f"the replay was not compared with the recording: {self.outcome['reason']}"
        return OTHER_MEMORY if self.status == DIFFERS else ""

    @property
    def failure(self) -> str | None:
        """Why the launch was not replayed, None if it was."""
        if self.status in (0, DIFFERS) or self.outcome.get("status") == "unchecked":
            return None
        return self.outcome.get("reason") or self.said or f"status {self.status}"

    @property
    def refusal(self) -> str | None:
        """Why the launch was not traced, None if it was."""
        try:
            return refused(self.process, self.process.traced[0])
        except Error as e:
            return str(e)

    @functools.cached_property
    def process(self) -> Process:
        """The process of the replay, whose trace has this launch alone.

        Raises:
            Error: There is no trace.
        """
        found = [one for one in open_run(self.out).processes if len(one.traced)]
        if not found:
            raise Error(f"{self.out}: the replay left no trace")
        return found[0]


def traced_launch(
    process: Process, seq: int, folder: Path, variables: Mapping[str, str], sim: bool
) -> Retraced:
    """Replays a launch and traces it.

    Args:
        process: The process that recorded the launch.
        seq: The sequence number of the launch.
        folder: An empty folder for the run of the replay.
        variables: What is traced: variables of the recorder.
        sim: Whether to replay on the simulator.

    Raises:
        Error: The launch cannot be replayed or traced.
    """
    where = f"{process.path}: launch {seq}"
    try:
        planned = plan(process, seq)
    except FormatError:
        raise
    except Error as e:
        raise Error(f"{where} has no usable trace: {e}") from None
    done = retrace(planned, folder / "run", variables, sim=sim)
    if done.failure is not None:
        raise Error(f"{where} cannot be replayed: {done.failure}")
    return done


def retrace(
    planned: Plan,
    out: Path | None,
    variables: Mapping[str, str],
    *,
    sim: bool,
    force: bool = False,
    more: Sequence[str] = (),
) -> Retraced:
    """Replays a launch under the recorder. The run says which launch it is a replay of.

    Args:
        planned: The launch.
        out: The run directory. Default: a name made of that of the recorded run.
        variables: What is traced: variables of the recorder.
        sim: Whether to replay on the simulator.
        force: Whether to replace an existing run directory.
        more: Options of `replay`.

    Raises:
        Error: The recording cannot begin.
    """
    process, seq = planned.process, planned.seq
    run = process.path.parent
    out = out or default_out(f"{run.absolute().name}-launch{seq}")
    line = own_command("replay", str(run), "--process", str(process.index))
    line += ["--launch", str(seq), "--json", *(["--sim"] if sim else []), *more]
    before = (step.what for step in planned.prepare)
    names = [process.kernel(what.function) for what in before if isinstance(what, Launch)]
    given = {
        **variables,
        "TT_INSTRUMENT_KERNEL": f"^{re.escape(planned.kernel)}$",
        "TT_INSTRUMENT_LAUNCH": str(names.count(planned.kernel) + 1),
    }
    with tempfile.TemporaryFile() as output:
        done = record(line, out, given, sim=sim, force=force, output=output)
        output.seek(0)
        said = output.read()
    found = ANSWER.search(said)
    launches = orjson.loads(found[0])["launches"] if found else []
    rest = ANSWER.sub(b"", said).decode(errors="replace").strip()
    made = Retraced(done.out, done.status, launches[0] if launches else {}, rest)
    origin = {"run": str(run.absolute()), "process": process.index, "launch": seq}
    note(done.out, {"replay": {**origin, "moved": made.outcome.get("moved", {})}})
    return made
