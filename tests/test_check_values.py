"""The values check of `ttanalyze check`, on written runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests import support
from tests.rundir import Writer
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.verbs.check import check, values
from ttanalyze.verbs.check.session import Session, Settings
from ttanalyze.verbs.record.series import Recording


class Recorded:
    """A session that has one recording."""

    settings = Settings(("true",), quick=True)

    def __init__(self, run: Path) -> None:
        self.recording = Recording(run, 0, run / "log", 0)

    def record(self, name: str, **options: object) -> Recording:
        return self.recording

    def plain(self) -> Recording:
        return self.recording


def test_values_are_not_clean_if_all_epochs_were_refused(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(256))
    w.epoch("sync", "refused")
    w.close()
    outcome = values.examine(cast("Session", Recorded(run_path)))
    assert (outcome.status, outcome.findings) == ("not covered", [])
    assert "no contents" in outcome.reason


def test_overflow_of_f16_in_a_pool_comes_before_its_conversion(run_path: Path) -> None:
    """Two f16 tensors of a pool in turn, next to f32 and f64, until one of them overflows."""
    w, random = Writer(run_path), np.random.default_rng(2)
    start = random.standard_normal(4096).astype("f4")
    x = (start + 1).astype("f2")
    w.born(0, bytes(2 * BLOCK_SIZE))
    w.write(0, 8192, start.tobytes())
    w.write(0, 24576, start.astype("f2").tobytes())
    w.epoch("sync", "full")
    overflow = None
    for step in range(1, 21):
        with np.errstate(over="ignore"):
            x *= np.float16(3)
        w.write(0, 40960 * (step % 2), x.tobytes())
        w.epoch("sync")
        if overflow is None and np.isinf(x).any():
            overflow = step, int(np.isinf(x).sum())
    w.write(0, 8192, x.astype("f8").tobytes())
    w.epoch("sync")
    w.close()
    outcome = values.examine(cast("Session", Recorded(run_path)))
    (finding,) = outcome.findings
    assert overflow is not None and f"{overflow[1]} item" in finding.summary
    assert (finding.details["epoch"], finding.details["dtype"]) == (overflow[0], "f16")


def test_first_nan_is_found_if_few_epochs_have_contents(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of 40 steps writes a NaN in step 27. Contents of five epochs fit."""
    monkeypatch.setattr(values, "MOST", 5 * 4096)
    one, nan = 0x3F800000, 0x7FC00000
    steps = [f"w:0:{64 * i}:8:{nan if i == 27 else one} s" for i in range(40)]
    program = support.build_program("recorder_out_of_bounds", built)
    command = [str(program), "a:4096", "w:0:0:1024:1065353216", "s", *" ".join(steps).split()]
    report = check(Settings(tuple(command), sim=True), tmp_path / "out", ["values"])
    (finding,) = report.findings
    assert finding.call is not None and finding.kind == "computed"
    assert (finding.memory is not None and finding.memory.first) == 27 * 64
    launches = json.loads((tmp_path / "out" / "values.settings").read_text())
    assert launches["TT_CONTENTS"] == "every:10"
    kept = [path.name for path in (tmp_path / "out").glob("values-1*.status")]
    assert "values-1-1.status" in kept
