"""The tour that `make demo` takes: record, verify, record again, and find where the two part.

Uses a GPU where one works, else the simulator. Every command is shown as it would be typed.
"""

from __future__ import annotations

from examples.demos.common import options, perform, record, say, start, ttanalyze
from ttanalyze.verbs.doctor import checks

PERTURBED_STEP = 5
ASKED = ["--params", "--cpu-callstack", "auto"]  # with them more can be said of who did it


def main() -> None:
    chosen = options(__doc__.splitlines()[0]).parse_args()
    start(chosen)
    usable = chosen.sim or checks.check_driver()[2]
    place = "the simulator" if chosen.sim else "the GPU"
    say(f"Running on {place}." if usable else "Running on the simulator: no usable GPU found.")
    chosen.sim = chosen.sim or not usable
    say()
    say("Record a program that adds vectors, eight steps with a wait after each:")
    first, _ = record(chosen, "first", ASKED, ["vecadd"])
    say("Hash all that was recorded again, and compare it with the manifest:")
    ttanalyze("verify", first)
    say(f"Record it again, with one input element changed before step {PERTURBED_STEP}:")
    second, _ = record(chosen, "second", ASKED, ["vecadd", "--perturb", str(PERTURBED_STEP)])
    say("Where do the two part, and what could have made them?")
    ttanalyze("diff", first, second, "--dtype", "f32", expected=1)
    say(f"The runs are in {chosen.out}/first and {chosen.out}/second. To look into them:")
    say(f"  .venv/bin/ttanalyze info {chosen.out}/first")
    say(
        "  .venv/bin/python -c "
        f"'import ttanalyze as tt; print(tt.open(\"{chosen.out}/first\").epochs)'"
    )


if __name__ == "__main__":
    perform(main)
