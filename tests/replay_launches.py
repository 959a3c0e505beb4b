"""Replays all launches of a run: `python -m tests.replay_launches RUN`.

Runs in a process of its own, on the simulator or on a GPU. Prints a JSON object for each launch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ttanalyze as tt
from ttanalyze.replay import Replay, launches


def replayed(process: Any, seq: int) -> dict[str, Any]:
    try:
        replay = Replay(process, seq)
        replay.restore()
        before = [f.region for f in replay.scene.places.compare(replay._before, replay._before)]
        replay.submit()
        findings = replay.compare() if replay.after is not None else []
    except tt.Error as e:
        return {"refused": str(e)}
    return {
        "kernel": replay.kernel,
        "checked": replay.after is not None,
        "restored": len(before),
        "differ": [f.region for f in findings if not f.same],
        "moved": replay.scene.places.moved,
        "notes": replay.notes,
        "runs": replay.time(2).runs,
    }


if __name__ == "__main__":
    process = tt.open(sys.argv[1]).process(0)
    for event in launches(process):
        print(json.dumps({"seq": int(event["seq"]), **replayed(process, int(event["seq"]))}))
