"""What `race` searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ttanalyze.errors import Error
from ttanalyze.util.arguments import checked

RECORDED = {"TT_PARAMS": "1", "TT_DETERMINISTIC": "1"}
MOST = 0xFFFFFFFF


@checked
@dataclass(frozen=True)
class Settings:
    """What to search.

    Attributes:
        command: The program and its arguments.
        runs: The number of recordings with delays.
        first: The seed of the first one.
        stop: The number of findings after which the search stops, 0 for no limit.
        delay: The delay of instructions in nanoseconds. Every other seed uses ten times as much,
            because the delay that shows a race depends on the work that hides it.
        launch_delay: The delay of calls in nanoseconds, 0 for none.
        record: Further options of `record`, by variable. Without parameters the accesses of
            launches are unknown.
        sim: Whether to use the simulator.
        keep: Whether to keep recordings that do not differ.
        reduce: Whether to find the fewest delays with which a recording still differs.
        confidence: The maximal number of tries of each set of delays.
        tests: The maximal number of tests of the reduction.
        reduce_time: No test of a reduction begins after this many seconds, 0 for no limit.
        jobs: How many runs of the program may have been started at once. All but one are held where
            recording begins, so only what comes before that overlaps.
    """

    command: tuple[str, ...]
    runs: int = 20
    first: int = 1
    stop: int = 1
    delay: int = 10_000
    launch_delay: int = 500_000
    record: Mapping[str, str] = field(default_factory=lambda: dict(RECORDED))
    sim: bool = False
    keep: bool = False
    reduce: bool = True
    confidence: int = 1
    tests: int = 200
    reduce_time: float = 40
    jobs: int = 1

    def __post_init__(self) -> None:
        if not self.command:
            raise Error("expected a program")
        for option, value, least in (
            ("runs", self.runs, 1),
            ("seed", self.first, 0),
            ("stop", self.stop, 0),
            ("confidence", self.confidence, 1),
            ("tests", self.tests, 1),
            ("jobs", self.jobs, 1),
        ):
            if not least <= value <= MOST:
                raise Error(f"--{option} {value}: expected a number from {least} to {MOST}")
        if not self.delay and not self.launch_delay:
            raise Error("--delay 0 and --launch-delay 0: nothing would be delayed")
        if self.jobs > 1 and self.record.get("TT_TIMEOUT"):
            raise Error("--timeout counts the time in which a program is held; omit --jobs")
