"""Measures a launch with events of the driver around it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import DriverError
from ttanalyze.gpu.memory import DeviceBuffer
from ttanalyze.gpu.work import Kernel

if TYPE_CHECKING:
    from ttanalyze.verbs.replay.replay import Replay

L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_…
FLUSHED = 2  # so many times the cache is written
HELD = 400_000  # nanoseconds: longer than it takes to submit a launch and two events


@dataclass(frozen=True)
class Times:
    """The measured times of a launch.

    Attributes:
        runs: The time of each run in microseconds.
        flushed: Whether the L2 cache was flushed before each run.
    """

    runs: list[float]
    flushed: bool

    @property
    def median(self) -> float:
        """The median in microseconds."""
        return statistics.median(self.runs)

    @property
    def least(self) -> float:
        """The shortest time in microseconds."""
        return min(self.runs)

    @property
    def spread(self) -> float:
        """The time between the first and the third quartile in microseconds."""
        if len(self.runs) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.runs, n=4, method="inclusive")
        return third - first

    def as_dict(self) -> dict[str, Any]:
        return {
            "runs": [round(run, 3) for run in self.runs],
            "median_us": round(self.median, 3),
            "min_us": round(self.least, 3),
            "spread_us": round(self.spread, 3),
            "l2_flushed": self.flushed,
        }


class Event:
    """An event of the driver."""

    def __init__(self, device: Device) -> None:
        self._device = device
        with device.use() as driver:
            self._event = driver.get("cuEventCreate", "CUevent", 0)
        self._destroy = device.context.give_back(self, "cuEventDestroy_v2", self._event)

    def record(self) -> None:
        """Records the event in the device's stream."""
        with self._device.use() as driver:
            stream = ffi.cast("CUstream", self._device.stream.handle)
            driver.call("cuEventRecord", self._event, stream)

    def since(self, other: Event) -> float:
        """Waits for the event and returns the microseconds since another event."""
        with self._device.use() as driver:
            driver.call("cuEventSynchronize", self._event)
            call = "cuEventElapsedTime"
            return 1e3 * float(driver.get(call, "float", other._event, self._event))


class Cache:
    """Memory to write so that the L2 cache holds nothing else. Raises DriverError if memory is
    short.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        with device.use() as driver:
            handle = driver.get("cuDeviceGet", "CUdevice", device.ordinal)
            size = int(driver.get("cuDeviceGetAttribute", "int", L2_CACHE_SIZE, handle))
        self._buffer = DeviceBuffer(max(1, FLUSHED * size), device)

    def flush(self, value: int = 0) -> None:
        """Writes the memory in the device's stream."""
        with self._device.use() as driver:
            stream = ffi.cast("CUstream", self._device.stream.handle)
            where, size = self._buffer.address, self._buffer.size
            driver.call("cuMemsetD8Async", where, value, size, stream)


def _hold(replay: Replay) -> Kernel | None:
    """Returns a kernel that keeps the device busy until the launch is submitted.

    Without it the time of the submission would be measured too. None if no kernels of our own may
    run.
    """
    addresses = replay.replay_context.addresses
    if addresses.quiet:
        return None
    return addresses.kernels.work(addresses.kernels.spin, 1, 32, 0, HELD, HELD, 0)


def measure(
    replay: Replay,
    times: int,
    flush_l2: bool,
    work: Kernel | None = None,
    tell: Callable[[int], None] | None = None,
) -> Times:
    """Measures a launch. Replay.time describes the arguments."""
    if times < 1:
        raise Error(f"--times {times}: expected 1 or more")
    cache = Cache(replay.device) if flush_l2 else None
    hold = _hold(replay)
    begin, end = Event(replay.device), Event(replay.device)
    runs = []
    for run in range(times + 1):
        if tell is not None:
            tell(run)
        replay.restore()
        replay.keep()
        if cache is not None:
            cache.flush()
        if hold is not None:
            replay.submit(work=hold)
        begin.record()
        try:
            replay.submit(work=work)
        except DriverError:
            replay.device.stream.synchronize()
            raise
        end.record()
        runs.append(end.since(begin))
    return Times(runs[1:], flush_l2)
