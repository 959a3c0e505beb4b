"""`memcheck`: accesses outside of allocations, from traces of launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import support
from tests.check import corpus
from tests.traced_run import begun
from ttanalyze.traces.instructions import SIMULATOR

SIM = support.simulator_environment()


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    corpus.build(folder)
    return folder / "faults"


def traced(program: Path, run: Path, *words: str, kind: str = "addresses") -> None:
    # Deterministic allocations have room behind them, so that a wrong access does not fail.
    options = ("--deterministic", "--kind", kind, "--cpu-callstack", "backtrace")
    given: list[str | Path] = ["instrument", "--sim", *options, "-o", run, "--", program, *words]
    assert support.ttanalyze(*given, environment=SIM).status == 0


def memcheck(run: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = support.ttanalyze("memcheck", run, "--json", *options)
    return done.status, json.loads(done.stdout)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "what", "access", "count", "distance"),
    [
        ("end_4", "outside", "store", 1, 0),
        ("start_4", "outside", "store", 1, -4),
        ("read_past_end", "outside", "load", 1, 0),
        ("write_after_free", "freed", "store", 1000, 0),
    ],
)
def test_wrong_accesses_are_found_with_their_thread_and_memory(
    name: str, what: str, access: str, count: int, distance: int, faults: Path, tmp_path: Path
) -> None:
    traced(faults, tmp_path / "run", name)
    status, report = memcheck(tmp_path / "run")
    found = [one for launch in report["launches"] for one in launch["found"]]
    one = found[-1]
    assert status == 1 and report["found"]
    assert (one["what"], one["access"], one["count"]) == (what, access, count)
    assert one["distance"] == distance and one["size"] == 4
    assert one["text"].startswith("st." if access == "store" else "ld.")
    assert "faults.c:" in one["allocated"]
    text = support.ttanalyze("memcheck", tmp_path / "run").stdout
    assert "wrong access" in text and f"region {one['region']}" in text
    traced(faults, tmp_path / "fixed", name, "--fixed", kind="values")
    status, report = memcheck(tmp_path / "fixed")
    assert status == 0 and all(launch["accesses"] for launch in report["launches"])


def test_a_launch_without_addresses_is_never_clean(faults: Path, tmp_path: Path) -> None:
    traced(faults, tmp_path / "run", "end_4", kind="opcode")
    done = support.ttanalyze("memcheck", tmp_path / "run")
    assert done.status == 2 and "the trace has no addresses" in done.stdout


def test_a_run_without_traces_says_how_to_make_one(faults: Path, tmp_path: Path) -> None:
    environment = support.recording(SIM, tmp_path / "run")
    assert support.run([faults, "end_4", "--fixed"], environment).status == 0
    done = support.ttanalyze("memcheck", tmp_path / "run")
    assert done.status == 2 and "ttanalyze instrument --kind addresses" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    traced(faults, tmp_path / "traced", "end_4")
    done = support.ttanalyze("memcheck", tmp_path / "traced", "--launch", "1")
    assert done.status == 2 and "launch 1 was not traced" in done.stderr


def test_a_run_cannot_make_us_contact_a_server(faults: Path, tmp_path: Path) -> None:
    traced(faults, tmp_path / "traced", "end_4")
    about = tmp_path / "traced" / "run.json"
    url = "https://127.0.0.1:1/run"
    replay = {"run": url, "process": 0, "launch": 1, "moved": {}}
    about.write_text(json.dumps(json.loads(about.read_text()) | {"replay": replay}))
    done = support.ttanalyze("memcheck", tmp_path / "traced")
    assert done.status == 2 and f"{url}: a URL; put both runs on this machine" in done.stderr


ANY = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry any(.param .u64 p) {
.reg .b64 %rd<3>;
.reg .b32 %r<3>;
st.u32 [%rd1], %r1;
st.global.u32 [%rd1], %r1;
cp.async.ca.shared.global [%r1], [%rd1], 4;
ret;
}
"""
GENERIC, GLOBAL, COPY = 7, 8, 9
MEMORY = 1 << 32


def written(
    path: Path,
    line: int,
    *addresses: int,
    inner: bool = False,
    options: dict[str, str] | None = None,
) -> Path:
    """A launch that accesses 4 bytes at each address, by a lane each, in a run with 256 bytes at
    MEMORY, 64 freed ones behind, and perhaps a region within the first."""
    trace = begun(path, ANY, "any")
    trace.run.born(0, bytes(256), base=MEMORY)
    trace.run.born(1, bytes(64), base=MEMORY + 256)
    trace.run.died(1)
    if inner:
        trace.run.born(2, bytes(16), base=MEMORY + 32)
    trace.launch(kinds=("addresses",))
    lanes = np.zeros(32, "u8")
    lanes[: len(addresses)] = np.array(addresses, "u8")
    trace.addresses(line, lanes, mask=(1 << len(addresses)) - 1)
    trace.end()
    trace.chunk()
    names = {f"TT_INSTRUMENT_{name.upper()}": value for name, value in (options or {}).items()}
    device = {"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}
    trace.run.close(devices=[device], options=names)
    return path


def kinds(run: Path) -> dict[str, int]:
    found = memcheck(run)[1]["launches"][0]["found"]
    return {one["what"]: one["count"] for one in found}


@pytest.mark.parametrize(
    ("line", "addresses", "expected"),
    [
        (GLOBAL, (MEMORY, MEMORY + 252), {}),
        (GLOBAL, (MEMORY + 2,), {"misaligned": 1}),
        (GLOBAL, (MEMORY + 254,), {"freed": 0, "outside": 1}),
        (GLOBAL, (2**64 - 4,), {"outside": 1}),
        (GLOBAL, (MEMORY - 4, MEMORY + 256, MEMORY + 260), {"outside": 1, "freed": 2}),
        (GENERIC, (0,), {"outside": 1}),
        (GENERIC, (0xDEADBEEF00000000,), {"outside": 1}),
        (GENERIC, (0x4000000000000010, 0x5000000000000010), {}),
        (COPY, (0x10,), {}),
    ],
)
def test_each_access_is_judged_by_itself(
    line: int, addresses: tuple[int, ...], expected: dict[str, int], tmp_path: Path
) -> None:
    run = written(tmp_path / "run", line, *addresses)
    assert kinds(run) == {what: count for what, count in expected.items() if count}


def test_regions_may_lie_within_others(tmp_path: Path) -> None:
    run = written(tmp_path / "run", GLOBAL, MEMORY + 32, MEMORY + 100, inner=True)
    assert memcheck(run)[0] == 0


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("option", "value"), [("blocks", "0:1"), ("instructions", "1:7"), ("category", "sync")]
)
def test_part_of_a_launch_is_never_clean(option: str, value: str, tmp_path: Path) -> None:
    run = written(tmp_path / "run", GLOBAL, MEMORY, options={option: value})
    done = support.ttanalyze("memcheck", run)
    assert done.status == 2 and f"{value} were traced" in done.stdout


def test_instructions_that_access_no_memory_need_no_trace(tmp_path: Path) -> None:
    run = written(tmp_path / "run", GLOBAL, MEMORY, options={"category": "memory,sync,tma"})
    assert memcheck(run)[0] == 0
