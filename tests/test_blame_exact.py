"""`blame --exact`: the instruction and the thread that wrote, from a trace of the launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from ttanalyze.errors import Error
from ttanalyze.verbs.blame import find_target
from ttanalyze.verbs.blame.exact import Exact, exact
from ttanalyze.verbs.blame.show_exact import exact_text

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
TRACED = ("--epoch", "launch", "--params", "--kind", "values")
U32 = tt.values.parse("u32")


def traced(folder: Path, built: Path, *options: str) -> Path:
    program = support.build_program("recorder_writers", built)
    words: list[str | Path] = ["instrument", "--sim", "-o", folder / "run", *options, "--", program]
    assert support.ttanalyze(*words, environment=SIM).status == 0
    return folder / "run"


@pytest.fixture(scope="module")
def writers(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return traced(tmp_path_factory.mktemp("writers"), built, *TRACED)


@pytest.fixture(scope="module")
def replayable(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replayable")
    program = support.build_program("recorder_single_launches", built)
    environment = support.recording(SIM, folder / "run", replayable="1")
    assert support.run([program], environment, cwd=folder).status == 0
    return folder / "run"


def found(run: Path, region: int = 0, **place: Any) -> Exact:
    target = find_target(tt.open(run).process(0), region, type=U32, **place)
    return exact(tt.blame(target))


def values(run: Path, **place: Any) -> list[tuple[object, object]]:
    (launch,) = found(run, **place).launches
    assert not launch.missing and not launch.doubts and not launch.replayed
    return [(item(one.before), item(one.after)) for one in launch.writes]


def item(data: bytes | None) -> object:
    return None if data is None else U32.listed(data)[0]


def test_writes_of_a_thread_are_in_order_with_their_lines(writers: Path) -> None:
    assert values(writers, element=1) == [(16, 5), (5, 9)]
    (launch,) = found(writers, element=1).launches
    assert [one.text for one in launch.writes] == [
        "st.global.u32 [%rd1+4], 5",
        "st.global.u32 [%rd1+4], 9",
    ]
    assert [one.line for one in launch.writes] == ["writers.cu:7", "writers.cu:8"]
    assert {(one.block, one.thread) for one in launch.writes} == {((0, 0, 0), (0, 0, 0))}


def test_atomic_operations_have_what_they_found_and_left(writers: Path) -> None:
    assert values(writers, element=3) == [(16, 19), (19, 23)]


def test_a_byte_shows_in_its_item(writers: Path) -> None:
    assert values(writers, element=4) == [(16, 0xFF10)]


def test_order_of_blocks_and_lanes_is_not_told(writers: Path) -> None:
    (launch,) = found(writers, element=0).launches
    assert len(launch.writes) == 64 and not any(one.ordered or one.last for one in launch.writes)
    assert {one.before for one in launch.writes} == {None}
    lanes = found(writers, element=2)
    assert not any(one.ordered for one in lanes.launches[0].writes)
    target = find_target(tt.open(writers).process(0), 0, element=2, type=U32)
    assert "note: writes in unknown order: " in exact_text(lanes, target, 0)


def test_no_launch_wrote(writers: Path) -> None:
    """A fill did, between the epochs of two launches."""
    answer = found(writers, element=5)
    assert not answer.found and not answer.unclear
    assert [one.call for one in answer.others] == ["cuMemsetD32_v2"]
    done = support.ttanalyze("blame", writers, "-r", "0", "--offset", "20", "--exact")
    assert done.status == 1 and "reader: no write (traced)" in done.stdout
    assert "not searched, because they are no launches: call " in done.stdout


def test_incomplete_trace_is_not_taken(built: Path, tmp_path: Path) -> None:
    run = traced(tmp_path, built, "--epoch", "launch", "--kind", "values", "--blocks", "1")
    answer = found(run, element=1)
    assert answer.unclear and not answer.launches
    assert "no usable trace" in next(iter(answer.untraced.values()))
    done = support.ttanalyze("blame", run, "-r", "0", "--offset", "4", "--exact")
    assert done.status == 2 and "was not searched: " in done.stdout


@pytest.mark.parametrize("region", ["0", "words"])
def test_launch_is_replayed_and_traced(replayable: Path, region: str) -> None:
    """Variables have other addresses in a replay."""
    words: list[str | Path] = [
        "blame",
        replayable,
        "-r",
        region,
        "--dtype",
        "u32",
        "--element",
        "2",
        "--exact",
    ]
    done = support.ttanalyze(*words, "--sim", "--json", environment=SIM)
    assert done.status == 0, done.stderr
    (launch,) = json.loads(done.stdout)["exact"]["launches"]
    assert launch["replayed"] and not launch["missing"] and not launch["doubts"]
    (write,) = launch["writes"]
    assert write["thread"] == [2, 0, 0] and write["text"].startswith("st.global.u32 [%rd1], ")
    assert write["after"] == ([32] if region == "words" else [43])
    if region == "words":
        assert write["before"] == [30]


def test_watch_names_the_instruction(replayable: Path) -> None:
    words: list[str | Path] = [
        "blame",
        replayable,
        "-r",
        "0",
        "--dtype",
        "u32",
        "--watch",
        "==44",
        "--exact",
    ]
    done = support.ttanalyze(*words, "--sim", environment=SIM)
    assert done.status == 0 and "block 0, thread 3: " in done.stdout and "→ 44" in done.stdout


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"offset": 0, "count": 1025}, "--exact takes at most 4,096 bytes, not 4,100"),
        ({"element": 8}, "no launch made the change of epoch 0: only call 8 "),
    ],
)
def test_wrong_use_is_named(replayable: Path, place: dict[str, int], message: str) -> None:
    target = find_target(tt.open(replayable).process(0), 3, type=U32, **place)
    with pytest.raises(Error, match=message):
        exact(tt.blame(target))


def test_sim_needs_exact(replayable: Path) -> None:
    done = support.ttanalyze("blame", replayable, "-r", "0", "--sim")
    assert done.status == 2 and done.stderr == "ttanalyze: --sim needs --exact\n"


def test_kernels_of_a_graph_are_searched_from_the_last_node(built: Path, tmp_path: Path) -> None:
    graph = support.build_examples(built / "examples") / "graph"
    given = ("instrument", "--sim", "--kind", "values", "--epoch", "graph", "-o", tmp_path / "run")
    assert support.ttanalyze(*given, "--", graph, environment=SIM).status == 0
    result = found(tmp_path / "run", region=1, offset=64)
    assert [one.kernel for one in result.launches] == ["energy", "step", "step"]
    (write,) = result.launches[-1].writes
    (change, *_) = tt.blame(find_target(tt.open(tmp_path / "run").process(0), 1, 64)).changes[::-1]
    assert write.after is not None and write.after[:1] == change.after and write.block == (0, 0, 0)
    assert "order of its nodes" in result.launches[-1].doubts[0] and not result.unclear
