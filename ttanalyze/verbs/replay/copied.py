"""Copies of regions in device memory."""

from __future__ import annotations

from collections.abc import Iterable

from ttanalyze._cuda import ffi
from ttanalyze.gpu.memory import DeviceBuffer
from ttanalyze.gpu.rebuild.replay_context import ReplayContext
from ttanalyze.gpu.work import Copy

SHARE = 0.5  # of the free memory, at most


class Copied:
    """A copy of some regions, by row."""

    def __init__(self, replay_context: ReplayContext, rows: Iterable[int]) -> None:
        """Raises DriverError if memory is short."""
        self._replay_context = replay_context
        sizes = {row: int(replay_context.process.regions.size[row]) for row in rows}
        self._sizes = {row: size for row, size in sizes.items() if size}
        self._at: dict[int, int] = {}
        total = sum(self._sizes.values())
        if not total:
            return
        self._buffer = DeviceBuffer(total, replay_context.device)
        to = self._buffer.address
        for row, size in self._sizes.items():
            self._at[row] = to
            self._copy(to, replay_context.addresses.now(row), size)
            to += size
        replay_context.device.stream.synchronize()

    @classmethod
    def if_room(cls, replay_context: ReplayContext, rows: list[int]) -> Copied | None:
        """Makes a copy, None if there is little room."""
        wanted = sum(int(replay_context.process.regions.size[row]) for row in rows)
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        with replay_context.device.use() as driver:
            driver.call("cuMemGetInfo_v2", free, total)
        return cls(replay_context, rows) if wanted <= free[0] * SHARE else None

    def where(self, row: int) -> int | None:
        """Returns the address of the copy of a region, None if there is none."""
        return self._at.get(row)

    def put_back(self, rows: Iterable[int] | None = None) -> None:
        """Copies regions back in the device's stream, by default all."""
        for row in self._at if rows is None else rows:
            if row in self._at:
                self._copy(self._replay_context.addresses.now(row), self._at[row], self._sizes[row])

    def _copy(self, to: int, source: int, size: int) -> None:
        device = self._replay_context.device
        Copy(to, source, size).submit(device, device.stream.handle)
