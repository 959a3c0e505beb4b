"""Delay configurations: which kernel instructions and calls are delayed, and how long.

The recorder writes delays.json for each process that had delays. `record --delay-load` reads such a
file. The schema is schemas/delay_config.json.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout, statuses
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.files import read_json
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.schemas import document_faults
from ttanalyze.util.arguments import checked

NAME = "delays.json"
DELAYED = layout.constant("TT_EVENTF_DELAYED") | layout.constant("TT_EVENTF_DELAYED_STREAM")
LAUNCH = KIND["launch"]


@checked
@dataclass(frozen=True)
class Config:
    """A delay configuration.

    Attributes:
        document: The contents of the file.

    Example:
        >>> config = tt.delays.of_run("delayed")
        >>> len(config.kernels), config.count_on()
        (1, (0, 0))
    """

    document: dict[str, Any]

    @property
    def kernels(self) -> dict[str, Any]:
        """The delays in kernels, by kernel name and checksum."""
        return self.document["kernels"]

    @property
    def launches(self) -> dict[str, Any]:
        """The delayed calls, by stream and number."""
        return self.document.get("launches", {})

    def count_on(self) -> tuple[int, int]:
        """Returns the number of active delays in kernels and the number of delayed calls."""
        kernels = self.kernels.values()
        points = [p for k in kernels for p in k["instrumentation_points"].values()]
        return sum(p["on"] for p in points), sum(c["on"] for c in self.launches.values())

    def to_json(self) -> str:
        """Returns the document as indented JSON."""
        return orjson.dumps(self.document, option=orjson.OPT_INDENT_2).decode() + "\n"


@checked
def read(path: str | os.PathLike[str]) -> Config:
    """Reads a delay configuration.

    Args:
        path: The file.

    Raises:
        Error: The file cannot be read.
        FormatError: The file does not follow the schema.

    Example:
        >>> text = '{"version": "1.0", "delay_ns": 500, "mode": "random", "kernels": {}}'
        >>> _ = Path("delays.json").write_text(text)
        >>> tt.delays.read("delays.json").count_on()
        (0, 0)
    """
    path = Path(path)
    document = read_json(path)
    for where, reason in document_faults("delay-config", document):
        raise FormatError(path, where or "the whole", reason)
    return Config(document)


@checked
def of_process(process: Process) -> Config | None:
    """Returns the delays of a recorded process, None if it was recorded without delays.

    Each delayed call gets its sequence number, name and kernel, if the run has all of these calls.

    Args:
        process: The process.

    Raises:
        FormatError: The file does not follow the schema.

    Example:
        >>> tt.delays.of_process(tt.open("run1").processes[0]) is None  # nothing was delayed
        True
    """
    path = process.path / NAME
    if not path.exists():
        return None
    config = read(path)
    _name_calls(config, process)
    return config


@checked
def of_run(source: Run | str | os.PathLike[str]) -> Config:
    """Returns the delays of all processes of a run.

    Args:
        source: A run or its path.

    Raises:
        Error: The run was recorded without delays, or was killed before it wrote them.
        FormatError: A file does not follow the format.

    Example:
        >>> [kernel["kernel_name"] for kernel in tt.delays.of_run("delayed").kernels.values()]
        ['add']
    """
    run = source if isinstance(source, Run) else Run(Path(source))
    found = [config for process in run.processes if (config := of_process(process)) is not None]
    if not found:
        over = all(process.info.get("status") in statuses.OVER for process in run.processes)
        why = "recorded without delays" if over else "killed before its delays were written"
        raise Error(f"{run.path}: {why}")
    whole = dict(found[0].document)
    for part in ("kernels", "launches"):
        whole[part] = {k: v for config in found for k, v in config.document.get(part, {}).items()}
    return Config(whole)


def _name_calls(config: Config, process: Process) -> None:
    """Adds sequence number, name and kernel to the delayed calls, if the run has all of them."""
    late: dict[int, list[Any]] = {}
    for records in process.events_by_seq():
        for event in records[records["flags"] & np.uint32(DELAYED) != 0]:
            what = {"seq": int(event["seq"]), "call": process.call(int(event["call"]))}
            if event["kind"] == LAUNCH and event["id"] != layout.NO_ID:
                what["kernel_name"] = process.kernel(int(event["id"]))
            late.setdefault(int(event["stream"]), []).append(what)
    streams: dict[int, list[Any]] = {}
    for call in config.launches.values():
        streams.setdefault(call["stream"], []).append(call)
    for stream, calls in streams.items():
        if len(calls) == len(late.get(stream, [])):
            calls.sort(key=lambda call: call["number"])
            for call, what in zip(calls, late[stream], strict=True):
                call |= {k: v for k, v in what.items() if v is not None}
                call["process"] = process.index
