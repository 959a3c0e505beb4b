"""Traces of memory accesses and barriers on a GPU, which NVIDIA's Sanitizer API records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
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
    given = ("--way", "sanitizer", "--kind", "registers")
    done = instrument(tmp_path / "run", [examples / "vecadd"], *given)
    assert done.status == 0 and "on a GPU only the kinds opcode" in done.stderr
    refused = set(traced(tmp_path / "run")["refused"].tolist())
    assert refused == {layout.REFUSED_TRACES.index("code")}


def test_loads_by_tensor_maps_say_what_their_map_says(built: Path, tmp_path: Path) -> None:
    """As on the simulator, which has stores and sums besides."""
    command = support.command("tensor_maps", built)
    bare = support.run(command, BARE)
    done = instrument(tmp_path / "run", [*command], "--way", "sanitizer", "--kind", "tma")
    assert (done.status, done.stdout) == (bare.status, bare.stdout)
    shown = support.ttanalyze("query", tmp_path / "run", "--table", "tma", "--format", "json")
    loads = [row for row in json.loads(shown.stdout) if row["does"] == "load"]
    places = [[4, 3], [16, 16], [-4, -2], [100, 0], [4, 3], [4, 3]]
    assert [row["first"] for row in loads] == [place for place in places for _ in range(3)]
    assert [row["swizzle"] for row in loads] == ["NONE", "128B", "NONE"] * 6
    for row in loads:
        assert (row["global_dim"], row["global_strides"]) == ([40, 20], [160])
        assert (row["box_dim"], row["bytes"], row["multicast"]) == ([32, 8], 1024, 0)


@pytest.fixture(scope="module")
def replayable(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replayable")
    command = support.command("recorder_single_launches", built)
    environment = support.recording(BARE, folder / "run", replayable="1")
    assert support.run(command, environment, cwd=folder).status == 0
    return folder / "run"


@pytest.mark.parametrize("region", ["0", "words"])
def test_blame_names_the_instruction_of_a_replayed_launch(replayable: Path, region: str) -> None:
    """Variables have other addresses in a replay."""
    place = ("-r", region, "--dtype", "u32", "--element", "2")
    done = support.ttanalyze("blame", replayable, *place, "--exact", "--json", environment=BARE)
    assert done.status == 0, done.stderr
    (launch,) = json.loads(done.stdout)["exact"]["launches"]
    assert launch["replayed"] and launch["machine"] and not launch["missing"]
    (write,) = launch["writes"]
    assert write["thread"] == [2, 0, 0] and write["text"].startswith("STG.E")
    assert write["after"] == ([32] if region == "words" else [43])


def test_replay_writes_a_traced_run(replayable: Path, tmp_path: Path) -> None:
    events = tt.open(replayable).events.query("kind == 'launch' and kernel == 'fill'")
    given = ("--launch", str(events["seq"].iloc[0]), "--instrument", "addresses,values")
    done = support.ttanalyze("replay", replayable, *given, "-o", tmp_path / "out", environment=BARE)
    assert done.status == 0, done.stderr
    (stores,) = tt.open(tmp_path / "out").trace_records(kinds=["values"])
    assert len(stores) == 8  # 256 threads
    report = support.ttanalyze("memcheck", tmp_path / "out", environment=BARE)
    assert report.status == 0 and "clean" in report.stdout
