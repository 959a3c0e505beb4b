"""Perturbs a launch so that a dependence on the order of blocks shows: other cache contents, busy
processors, a delayed launch.

Invariant: nothing here reads or writes memory of the launch.
"""

from __future__ import annotations

import random

from ttanalyze._cuda import ffi
from ttanalyze.gpu.device import Stream
from ttanalyze.gpu.digests import HelperKernels
from ttanalyze.verbs.replay.timing import Cache

STREAMS = 2  # that keep processors busy
LONGEST = 200_000  # nanoseconds that a block of ours stays
LATEST = 50_000
WAVES = 4  # of blocks, at most, that each stream asks for at once
SHARED = (0, 16 << 10, 47 << 10)  # bytes of a block: how many fit beside those of the kernel
THREADS = (32, 128, 512)


class Perturber:
    """Does something else before each launch, chosen at random from a seed. simulated: the device
    is the simulator, where a block that stays costs the host's time.
    """

    def __init__(self, kernels: HelperKernels, seed: int, simulated: bool) -> None:
        self._kernels = kernels
        self._device = kernels.device
        self._random = random.Random(seed)
        self._streams = [Stream(kernels.device) for _ in range(STREAMS)]
        self._cache = Cache(kernels.device)
        self._longest, self._latest = (2000, 1000) if simulated else (LONGEST, LATEST)

    def before(self, run: int) -> None:
        """Before a launch in the device's stream; run 0 is left alone."""
        if run == 0:
            return
        if self._random.random() < 0.5:
            self._cache.flush(self._random.randrange(256))
        if self._random.random() < 0.75:
            for stream in self._streams:
                self._occupy(stream)
        if self._random.random() < 0.5:
            self._spin(self._device.stream, 1, 32, 0, self._latest)

    def after(self) -> None:
        """Waits for what was begun."""
        for stream in self._streams:
            stream.synchronize()

    def _occupy(self, stream: Stream) -> None:
        """Blocks that come and go: those of the kernel get the processors in another order."""
        blocks = self._random.randint(1, WAVES * self._kernels.processors)
        threads, shared = self._random.choice(THREADS), self._random.choice(SHARED)
        longest = self._random.randint(self._longest // 20, self._longest)
        self._spin(stream, blocks, threads, shared, longest)

    def _spin(self, stream: Stream, blocks: int, threads: int, shared: int, longest: int) -> None:
        words = 0, longest, self._random.getrandbits(63)
        work = self._kernels.work(self._kernels.spin, blocks, threads, shared, *words)
        work.submit(self._device, int(ffi.cast("uintptr_t", stream.handle)))
