"""A process that tries configurations one after the other. A crash ends only this process.

It reads requests as lines of JSON from standard input, and writes answers to standard output, where
nothing else is written.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import ttanalyze
from ttanalyze.errors import Error
from ttanalyze.gpu import Device, driver, simulator
from ttanalyze.gpu.driver import DriverError
from ttanalyze.verbs.diff import parse_types
from ttanalyze.verbs.replay import Replay
from ttanalyze.verbs.replay.changes import Changer, architecture
from ttanalyze.verbs.replay.compare import check_regions, parse_tolerances
from ttanalyze.verbs.replay.run import SAME, Outcome, begun, is_lost, verify
from ttanalyze.verbs.tune.space import CACHES, Configuration


class Trier:
    """Tries configurations of a launch.

    job: run, process, launch, image (the file with its code), device, sim, times, flush_l2, dtype,
    tolerance.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        """Raises Error if the launch cannot be repeated."""
        self._job = job
        process = ttanalyze.open(job["run"]).process(job["process"])
        self._device = Device(job["device"], simulator() if job["sim"] else driver())
        self._changer = Changer(Replay(process, job["launch"], self._device))
        self._types = parse_types(job["dtype"]) if job["dtype"] else {}
        self._tolerances = parse_tolerances(job["tolerance"])
        check_regions(process, self._types, self._tolerances)

    def ready(self) -> dict[str, Any]:
        """Returns the properties of the device."""
        return {"device": self._device.name, "architecture": architecture(self._device)}

    def attempt(self, image: str, of: Configuration) -> dict[str, Any]:
        """Tries one configuration. image: the file with the code."""
        try:
            code = None if image == self._job["image"] else Path(image).read_bytes()
            work = self._changer.apply(of.change, code, Path(image).name)
            replay = self._changer.replay
            with self._device.use() as calls:
                cache = CACHES[of.cache or "none"]
                calls.call("cuFuncSetCacheConfig", work.function.handle, cache)
            replay.restore()
            replay.submit(work=work)
            self._device.synchronize()
            outcome = begun(replay.plan)
            findings = replay.compare()
            verify(outcome, replay, findings, self._types, self._tolerances)
            if outcome.status != SAME:
                return {"verified": False, "error": _differs(outcome)}
            times = replay.time(self._job["times"], self._job["flush_l2"], work)
        except DriverError as e:
            return {"verified": False, "error": str(e), "lost": is_lost(self._device)}
        except Error as e:
            return {"verified": False, "error": str(e)}
        milliseconds = (times.median / 1e3, times.least / 1e3, times.spread / 1e3)
        return {"verified": True, "error": "", "times": milliseconds}


def _differs(outcome: Outcome) -> str:
    if outcome.reason:
        return str(outcome.reason)
    names = [
        f"region {d.region}" + (f" ({d.label})" if d.label else "")
        for d in outcome.differences
        if not d.tolerated
    ]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f"the result differs: {', '.join(names[:2])}{more}"


def main() -> None:
    out: TextIO = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print is not for who reads us

    def answer(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=out, flush=True)

    try:
        trier = Trier(json.loads(sys.argv[1]))
        answer(trier.ready())
    except Error as e:
        answer({"failed": str(e)})
        return
    for line in sys.stdin:
        asked = json.loads(line)
        result = trier.attempt(asked["image"], Configuration.of_cells(asked["cells"]))
        answer(result)
        if result.get("lost"):
            os._exit(0)  # nothing of the context works, not even its end


if __name__ == "__main__":
    main()
