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
from ttanalyze.code import demangle
from ttanalyze.errors import Error
from ttanalyze.gpu import Device, driver, simulator
from ttanalyze.gpu.driver import DriverError
from ttanalyze.gpu.module import Function, Module
from ttanalyze.gpu.rebuild.replay_context import ReplayContext
from ttanalyze.verbs.diff import parse_types
from ttanalyze.verbs.replay import Replay
from ttanalyze.verbs.replay.compare import check_regions, parse_tolerances
from ttanalyze.verbs.replay.run import SAME, Outcome, begun, is_lost, verify
from ttanalyze.verbs.tune.space import CACHES, Configuration

MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
MAX_REGISTERS, OPTIMIZATION_LEVEL = 0, 7  # CU_JIT_…


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
        self._replay = Replay(process, job["launch"], self._device)
        self._replay_context: ReplayContext = self._replay.replay_context
        self._types = parse_types(job["dtype"]) if job["dtype"] else {}
        self._tolerances = parse_tolerances(job["tolerance"])
        check_regions(process, self._types, self._tolerances)
        self._loaded: Any = (job["image"], None, None)
        self._module: Module | None = None

    def ready(self) -> dict[str, Any]:
        """Returns the properties of the device."""
        with self._device.use() as calls:
            handle = calls.get("cuDeviceGet", "CUdevice", self._device.ordinal)
            major, minor = (
                int(calls.get("cuDeviceGetAttribute", "int", number, handle))
                for number in (MAJOR, MINOR)
            )
        return {"device": self._device.name, "architecture": 10 * major + minor}

    def attempt(self, image: str, of: Configuration) -> dict[str, Any]:
        """Tries one configuration. image: the file with the code."""
        try:
            self._load(image, of)
            function = self._replay.function
            with self._device.use() as calls:
                cache = CACHES[of.cache or "none"]
                calls.call("cuFuncSetCacheConfig", function.handle, cache)
            work = self._replay.work.changed(grid=of.grid, block=of.block, shared_mem=of.shared)
            self._replay.restore()
            self._replay.submit(work=work)
            self._device.synchronize()
            outcome = begun(self._replay.plan)
            findings = self._replay.compare()
            verify(outcome, self._replay, findings, self._types, self._tolerances)
            if outcome.status != SAME:
                return {"verified": False, "error": _differs(outcome)}
            times = self._replay.time(self._job["times"], self._job["flush_l2"], work)
        except DriverError as e:
            return {"verified": False, "error": str(e), "lost": is_lost(self._device)}
        except Error as e:
            return {"verified": False, "error": str(e)}
        milliseconds = (times.median / 1e3, times.least / 1e3, times.spread / 1e3)
        return {"verified": True, "error": "", "times": milliseconds}

    def _load(self, image: str, of: Configuration) -> None:
        """Replaces the recorded code by that of the configuration."""
        wanted = image, of.maxregs, of.opt_level
        if wanted == self._loaded:
            return
        self._loaded = None
        if self._module is not None:
            self._module.unload()
        path = Path(image)
        asked = {MAX_REGISTERS: of.maxregs, OPTIMIZATION_LEVEL: of.opt_level}
        options = {number: value for number, value in asked.items() if value is not None}
        self._module = Module(path.read_bytes(), self._device, path.name, options)
        function = _find(self._module, self._replay.kernel)
        self._replay_context.replace(self._replay.launch.function, function, self._module)
        self._replay = Replay(
            self._replay.process, self._replay.seq, replay_context=self._replay_context
        )
        self._loaded = wanted


def _find(module: Module, kernel: str) -> Function:
    """Returns the kernel that replaces the recorded one: of the same name, mangled or in the
    source, or the only one.

    Raises Error if it is ambiguous.
    """
    found = module.get(kernel)
    if found is not None:
        return found
    names = module.names
    (wanted,) = map(demangle.short, demangle.demangle([kernel]))
    shorts = map(demangle.short, demangle.demangle(names))
    same = [name for name, one in zip(names, shorts, strict=True) if one == wanted]
    for some in (same, names):
        if len(some) == 1:
            return module.function(some[0])
    raise Error(f"{module.name}: no single kernel {wanted} among {', '.join(names) or 'none'}")


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
