"""Traces of recorded launches: the one in the run, or that of a replay under the recorder."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import open_run
from ttanalyze.format.instruction_traces import kind_number
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.traces.coverage import missing
from ttanalyze.verbs.record.run import Recorded, record
from ttanalyze.verbs.replay.plan import Plan, plan

DIFFERS = 1  # the status of a replay that leaves other memory than the recording
ANSWER = re.compile(rb"^\{.*^\}", re.M | re.S)
OTHER_MEMORY = "the replay left other memory than the recorded launch"


def own_trace(process: Process, seq: int, kind: str, category: str) -> int | None:
    """Returns the index of a launch in `process.traced`, if it has a complete trace.

    Args:
        process: The process.
        seq: The sequence number of the launch.
        kind: The kind of records that is needed.
        category: The instructions that are needed.
    """
    chosen = str(process.info.get("options", {}).get("TT_INSTRUMENT_CATEGORY", ""))
    if chosen and category not in chosen.split(","):
        return None
    heads = process.traced
    good = (heads["seq"] == seq) & (heads["refused"] == 0)
    good &= heads["kinds"] >> kind_number(kind) & 1 != 0
    found = [index for index in np.flatnonzero(good).tolist() if not missing(process, index)]
    return found[0] if found else None


@dataclass(frozen=True)
class Retraced:
    """The trace of a replay.

    Attributes:
        process: The process of the replay, whose trace has this launch alone.
        moved: Regions of the recorded process at other addresses in the replay, with these.
        doubt: What is doubtful about it, "" if nothing is.
    """

    process: Process
    moved: Mapping[int, int]
    doubt: str


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
    with open(folder / "output", "w+b") as output:
        done = retrace(planned, folder / "run", variables, sim=sim, more=["--json"], output=output)
        output.seek(0)
        said = output.read()
    found = ANSWER.search(said)
    outcome = orjson.loads(found[0])["launches"][0] if found else {}
    if done.status not in (0, DIFFERS) or not done.processes:
        lines = said.decode(errors="replace").split("\n") if not found else []
        why = outcome.get("reason") or "".join(lines[-2:]) or f"status {done.status}"
        raise Error(f"{where} cannot be replayed: {why}")
    of = open_run(folder / "run").process(0)
    if not len(of.traced):
        raise Error(f"{where}: its replay left no trace")
    moved = {int(region): address for region, address in outcome.get("moved", {}).items()}
    return Retraced(of, moved, OTHER_MEMORY if done.status == DIFFERS else "")


def retrace(
    planned: Plan,
    out: Path | None,
    variables: Mapping[str, str],
    *,
    sim: bool,
    more: Sequence[str] = (),
    output: BinaryIO | None = None,
) -> Recorded:
    """Replays a launch under the recorder.

    Args:
        planned: The launch.
        out: The run directory.
        variables: What is traced: variables of the recorder.
        sim: Whether to replay on the simulator.
        more: Options of `replay`.
        output: A file for the output of the replay. Default: the standard output.

    Raises:
        Error: The recording cannot begin.
    """
    process = planned.process
    line = [sys.executable, "-m", "ttanalyze", "replay", str(process.path.parent)]
    line += ["--process", str(process.index), "--launch", str(planned.seq)]
    line += [*(["--sim"] if sim else []), *more]
    before = (step.what for step in planned.prepare)
    names = [process.kernel(what.function) for what in before if isinstance(what, Launch)]
    given = {
        **variables,
        "TT_INSTRUMENT_KERNEL": f"^{re.escape(planned.kernel)}$",
        "TT_INSTRUMENT_LAUNCH": str(names.count(planned.kernel) + 1),
    }
    return record(line, out, given, sim=sim, output=output)
