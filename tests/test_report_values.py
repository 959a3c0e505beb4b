"""`ttanalyze report --values`: statistics of tensors over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.errors import Error
from ttanalyze.verbs.report import series as module
from ttanalyze.verbs.report.series import Series, series


def floats(*values: float) -> bytes:
    return np.array(values, "f4").tobytes()


@pytest.fixture
def changing(run_path: Path) -> Path:
    """`weights` has a NaN from epoch 2 on; `layer.bias` is the second half of region 1."""
    w = Writer(run_path)
    w.born(0, floats(1, 2, 3, 4), label="weights")
    w.born(1, floats(0, 0, 5, 6))
    w.name(1, 8, 8, "layer.bias", "f32")
    w.epoch("sync", "full")
    w.write(0, 0, floats(-8))
    w.epoch("sync")
    w.write(0, 4, floats(np.nan))
    w.write(1, 8, floats(np.inf))
    w.epoch("sync")
    w.epoch("sync", "refused")
    w.died(1)
    w.epoch("sync")
    w.close()
    return run_path


def one(run: Path, wanted: str) -> Series:
    ((found,),) = series(tt.open(run), [wanted]).values()
    return found


def test_statistics_follow_a_region(changing: Path) -> None:
    found = one(changing, "weights=f32")
    assert (found.name, found.type, found.elements) == ("weights", "f32", 4)
    assert found.epochs == [0, 1, 2, 4]  # epoch 3 has no contents
    assert found.figures["min"] == [1, -8, -8, -8]
    assert found.figures["max"] == [4, 4, 4, 4]
    assert found.figures["mean"] == [2.5, 0.25, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]
    assert found.figures["nan"] == [0, 0, 1, 1]
    assert [sum(counts) for counts in found.figures["counts"]] == [4, 4, 3, 3]


def test_named_tensors_have_a_type_and_an_end(changing: Path) -> None:
    found = one(changing, "layer.bias")
    assert (found.type, found.elements) == ("f32", 2)
    assert found.epochs == [0, 1, 2]
    assert found.figures["inf"] == [0, 0, 1]
    assert found.note == "1 epoch without these contents"


def test_long_runs_are_sampled_and_say_so(changing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES", 32)  # two epochs of 16 bytes
    found = one(changing, "0=f32")
    assert found.epochs == [0, 4]
    assert found.note == "2 of 4 epochs were read"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("weights", "its type is not recorded; use weights=f32"),
        ("weight=f32", "no region or tensor 'weight'"),
        ("weights=f33", "no type 'f33'"),
    ],
)
def test_wrong_tensors_are_one_line(
    cli: Cli, changing: Path, tmp_path: Path, wanted: str, said: str
) -> None:
    outcome = cli("report", changing, "--values", wanted, "-o", tmp_path / "page.html")
    assert outcome.status == 2 and said in outcome.stderr and outcome.stderr.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_a_run_without_processes_has_no_tensors(run_path: Path) -> None:
    Writer(run_path).close()
    with pytest.raises(Error, match="no region 'weights'"):
        series(tt.open(run_path), ["weights=f32"])
