"""Traces of memory accesses and barriers on a GPU, which NVIDIA's Sanitizer API records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests import support
from tests.test_instrument import KIND, STEPS, WARPS, records, traced
from ttanalyze.format import layout
from ttanalyze.verbs.record.run import sanitizer_library

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not sanitizer_library(), reason="nvidia-cuda-sanitizer-api >= 13.5"),
]
BARE = support.bare_environment()


@pytest.fixture(scope="module")
def examples(built: Path) -> Path:
    return support.build_examples(built / "examples")


def instrument(run: Path, command: list[Path | str], *options: str) -> support.Outcome:
    given: list[str | Path] = ["instrument", *options, "-o", run, "--", *command]
    return support.ttanalyze(*given, environment=BARE)


def test_each_access_of_vecadd_is_recorded(examples: Path, tmp_path: Path) -> None:
    bare = support.run([examples / "vecadd"], BARE)
    done = instrument(tmp_path / "run", [examples / "vecadd"], "--kind", "addresses")
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    seen = list(records(tmp_path / "run"))
    accesses = Counter(one.line for one in seen if one.kind == KIND["addresses"])
    assert sorted(accesses.values()) == [WARPS * STEPS] * 3
    ends = [one.numbers for one in seen if one.kind == KIND["end"]]
    assert ends == [(3 * WARPS, 0)] * STEPS


def test_stored_values_are_recorded(examples: Path, tmp_path: Path) -> None:
    given = ("--kind", "values", "--launch", "1")
    assert instrument(tmp_path / "run", [examples / "vecadd"], *given).status == 0
    stores = [one for one in records(tmp_path / "run") if one.kind == KIND["values"]]
    assert len(stores) == WARPS and {one.lanes for one in stores} == {32}
    values = np.frombuffer(b"".join(one.payload[-128:] for one in stores), "<f4")
    assert np.isfinite(values).all() and values.any()


@pytest.mark.parametrize("name", ["graph", "streams", "patching", "training"])
def test_traced_examples_do_the_same(name: str, examples: Path, tmp_path: Path) -> None:
    bare = support.run([examples / name], BARE)
    done = instrument(tmp_path / "run", [examples / name], "--kind", "addresses,opcode")
    assert (done.status, done.stdout) == (bare.status, bare.stdout)


def test_registers_are_refused(examples: Path, tmp_path: Path) -> None:
    done = instrument(tmp_path / "run", [examples / "vecadd"], "--kind", "registers")
    assert done.status == 0 and "on a GPU only the kinds opcode" in done.stderr
    refused = set(traced(tmp_path / "run")["refused"].tolist())
    assert refused == {layout.REFUSED_TRACES.index("code")}
