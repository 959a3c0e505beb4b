"""Records the program again, with more epochs where two runs first differ, down to one call."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.util.own_process import own_command
from ttanalyze.verbs.check import difference
from ttanalyze.verbs.check.difference import RESULT, Difference, Proof, Zoomed
from ttanalyze.verbs.check.session import PLAIN, Session, Settings, epochs_of_user
from ttanalyze.verbs.check.spacing import SPACING, launch_seqs
from ttanalyze.verbs.race import Pair
from ttanalyze.verbs.race.pairs import find as unordered_pairs
from ttanalyze.verbs.record.series import Recording

ROUNDS, ROUNDS_OF_USER = (
    2,
    3,
)  # of two recordings: enough for 10^7 launches, and at epochs of the user
EPOCHS = 2048  # of a recording that looks at many launches
EACH = SPACING * 5 // 4  # launches with an epoch after each; epochs of several threads overlap
TIMES = 20  # that a launch is repeated
LITTLE = 1 << 30  # bytes of contents that a recording stores with the epochs of many launches
REPLAYABLE = {"replayable": True, "max_per_kernel": "0", "cpu_callstack": "auto"}


def rounds(settings: Settings) -> int:
    """Returns how many rounds find the call. The last one may need only one recording.

    Args:
        settings: What to check.
    """
    return ROUNDS if epochs_of_user(settings) is None else ROUNDS_OF_USER


def zoom(session: Session, found: Difference) -> Zoomed:
    """Looks closer until one call is left.

    Raises:
        Error: A recording failed.
    """
    out = Zoomed(found)
    for number in range(1, rounds(session.settings) + 1):
        if out.found.divergence is None or (out.found.stretch is not None and out.fine):
            return out
        window = _window(out.found)
        if out.found.calls <= 1 or (out.fine and window.single):
            _look(session, out, number)
            return out
        contents = "changed" if window.each and _little(out.found) else "none"
        finer = _pair(session, number, PLAIN | {"epoch": window.triggers, "contents": contents})
        if finer is not None:
            out.found, out.agreed, out.fine = finer, False, window.each
            continue
        out.agreed = True
        out.pair = _unordered(out.found)
        if out.pair is not None:
            return out
    return out


def _pair(session: Session, number: int, options: dict[str, Any]) -> Difference | None:
    """The first difference of two recordings with these options."""
    session.ahead({f"zoom-{number}{side}": options for side in "ab"})
    runs = [session.sound(session.record(f"zoom-{number}{side}", **options)).run for side in "ab"]
    report = difference.compare(runs[0], runs[1])
    return None if report is None else difference.first(session, report)


# ---- where to look ----


@dataclass(frozen=True)
class Window:
    """Numbers of launches, first to last."""

    first: int
    last: int

    @property
    def single(self) -> bool:
        return self.last - self.first <= 1

    @property
    def each(self) -> bool:
        """Whether an epoch after each launch is not too many."""
        return self.last - self.first <= EACH

    @property
    def triggers(self) -> str:
        if self.each:
            return f"launch,memcpy,@{self.first}-{self.last}"
        step = -(-(self.last - self.first) // EPOCHS)
        return f"launch:{step},@{self.first}-{self.first + step * EPOCHS}"


def _window(found: Difference) -> Window:
    """From the last epoch without the difference to the first with it, in both runs."""
    ends = []
    for side in (0, 1):
        seqs = launch_seqs(found.side(side))
        ends.append(np.searchsorted(seqs, found.window(side), "right"))
    first, last = np.stack(ends).T
    return Window(int(first.min()), int(last.max()))


# ---- what is there ----


def _unordered(found: Difference) -> Pair | None:
    """Two calls that reach the memory and that nothing orders."""
    assert found.divergence is not None
    d = found.divergence
    pairs = unordered_pairs(found.side(0), d.region_a, d.equal_a, d.epoch_a)
    return pairs[0] if pairs else None


def _little(found: Difference) -> bool:
    """Whether contents after each call of the window take little space."""
    assert found.divergence is not None
    epochs = found.side(0).epochs
    changed = int(epochs["bytes_changed"][found.divergence.epoch_a])
    return int(epochs["bytes_read"].max()) + found.calls * changed <= LITTLE


def _look(session: Session, out: Zoomed, number: int) -> None:
    """Repeats the launch that is suspected; else records contents of the memory around the call, if
    no recording has them and one round is enough. Of a graph, finds the node.
    """
    suspect, d = difference.culprit(out.found), out.found.divergence
    assert d is not None
    result = suspect is not None and difference.kind_of(out.found, suspect) == RESULT
    launch = suspect.kind if suspect is not None and result else None
    seq = suspect.seq_a or 0 if suspect is not None else 0
    place = int(np.searchsorted(launch_seqs(out.found.side(0)), seq, "right"))
    here = f"@{place}-{place}"
    try:
        if launch == "launch":
            options = {**REPLAYABLE, "epoch": here}
            recording = session.record(f"zoom-{number}a", **options)
            out.proof = _proof(session, session.sound(recording))
        elif launch == "graph-launch":
            options = {**PLAIN, "contents": "changed", "epoch": f"{here};graph-node:."}
            out.looked = _pair(session, number, options)
            if out.looked is not None and out.looked.divergence is not None:
                out.node = out.looked.divergence.epoch_label
        elif number == 1:
            options = {**PLAIN, "contents": "changed", "control": f"regions={d.region_a}"}
            options["epoch"] = _window(out.found).triggers
            out.looked = _pair(session, number, options)
    except Error as e:
        session.say(f"contents of the difference were not recorded: {e}")


def _proof(session: Session, recording: Recording) -> Proof | None:
    """Whether the recorded launch gives other results when it is repeated. In a process of its own,
    as the launch may fail.
    """
    command = own_command("prove", str(recording.run))
    command += ["--times", str(TIMES), "--json", "--quiet"]
    command += ["--sim"] if session.settings.sim else []
    session.say(f"repeating the launch {TIMES} times")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        return None
    varied = {}
    for launch in json.loads(done.stdout)["launches"]:
        for one in launch["variations"]:
            if at := one["widest"]["bytes"]:
                varied[one["region"]] = at["first"], at["count"]
    return Proof(str(recording.run), varied)
