"""Traces a recorded launch: replays it under the recorder, instrumented."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ttanalyze.errors import Error
from ttanalyze.format import open_run
from ttanalyze.format.process import Process
from ttanalyze.verbs.race.exact import load
from ttanalyze.verbs.record.run import record

DIFFERS = 1  # the status of a replay that leaves other memory than the recording
OTHER_MEMORY = "the replay left other memory than the recorded launch"


def traced_launch(process: Process, seq: int, folder: Path, sim: bool) -> tuple[Process, str]:
    """Replays a launch and traces it.

    Args:
        process: The process that recorded the launch with --replayable.
        seq: The sequence number of the launch.
        folder: An empty folder for the run of the replay.
        sim: Whether to replay on the simulator.

    Returns:
        The process of the replay, whose trace has this launch alone, and what is doubtful about
        it, "" if nothing is.

    Raises:
        Error: The launch cannot be replayed or traced.
    """
    rows = process.launches[process.launches["seq"] == seq]
    if not len(rows):
        raise Error(
            f"{process.path}: launch {seq} was neither traced (`{load.ADVICE}`) nor recorded with "
            "--replayable"
        )
    kernel = process.kernel(int(rows[0]["function"])) or ""
    line = [sys.executable, "-m", "ttanalyze", "replay", str(process.path.parent)]
    line += ["--process", str(process.index), "--launch", str(seq), *(["--sim"] if sim else [])]
    variables = {
        "TT_INSTRUMENT": load.KINDS,
        "TT_INSTRUMENT_CATEGORY": load.CATEGORIES,
        "TT_INSTRUMENT_KERNEL": f"^{re.escape(kernel)}$",
        "TT_INSTRUMENT_LAUNCH": "1",
    }
    with open(folder / "output", "w+b") as output:
        done = record(line, folder / "run", variables, sim=sim, output=output)
        output.seek(0)
        said = output.read().decode(errors="replace").strip().splitlines()
    if done.status not in (0, DIFFERS) or not done.processes:
        why = said[-1] if said else f"status {done.status}"
        raise Error(f"{process.path}: launch {seq} cannot be replayed: {why}")
    of = open_run(folder / "run").process(0)
    if not len(of.traced):
        raise Error(f"{process.path}: launch {seq}: its replay left no trace")
    return of, OTHER_MEMORY if done.status == DIFFERS else ""
