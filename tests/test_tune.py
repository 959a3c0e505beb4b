"""Configurations of a recorded launch, tried on the simulator: what is fast there says nothing, but
what leaves the recorded memory, and what becomes of the file, is as on a GPU.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import compiler_stand_in, support
from tests.support import Cli
from ttanalyze.code import elf
from ttanalyze.errors import Error, FormatError
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.verbs.replay.changes import parse_three
from ttanalyze.verbs.tune import search
from ttanalyze.verbs.tune.constraints import constraints
from ttanalyze.verbs.tune.space import Configuration, Space, space
from ttanalyze.verbs.tune.table import Row, Table

pytestmark = [pytest.mark.native, pytest.mark.large]
RECORDED = Launch(0, (20, 1, 1), (128, 1, 1), (0, 0, 0), 0, False, b"")


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "run"
    program = support.build_program("recorder_single_launches", built)
    outcome = support.ttanalyze("record", "--sim", "--replayable", "-o", path, "--", program)
    assert outcome.status == 0, outcome.stderr
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# ---- what is to be tried ----


def made(**axes: Any) -> Space:
    return space(RECORDED, **axes)


def test_grids_keep_the_number_of_threads() -> None:
    found = list(made(block=[(64, 1, 1), (96, 1, 1), (1024, 1, 1), (32, 2, 1)]).all())
    assert [c.grid for c in found] == [(40, 1, 1), (27, 1, 1), (3, 1, 1), (80, 1, 1)]
    found = list(made(block=[(64, 1, 1)], grid=["recorded", (7, 1, 1), "total"]).all())
    assert [c.grid for c in found] == [(20, 1, 1), (7, 1, 1), (40, 1, 1)]


def test_unspecified_values_are_as_recorded() -> None:
    (found,) = made(shared=[1024]).all()
    assert found == Configuration("recorded", (128, 1, 1), (20, 1, 1), 1024)
    blocks = [c.block[0] for c in made().all()]
    assert blocks == [32, 64, 128, 256, 512, 1024]
    both = list(made(maxregs=[32, 64], cache=["l1", None]).all())
    assert [(c.maxregs, c.cache) for c in both] == [(32, "l1"), (32, None), (64, "l1"), (64, None)]


def test_large_search_space_is_refused() -> None:
    with pytest.raises(Error, match="give fewer values, or --search optuna"):
        list(made(maxregs=range(1, 256), shared=range(10000)).all())


def test_random_order_is_repeatable() -> None:
    every = list(made(maxregs=range(16, 48), opt_level=range(5)).all())

    def drawn(seed: int, trials: int) -> list[Configuration]:
        where = made(maxregs=range(16, 48), opt_level=range(5))
        return list(search.search("random", where, trials, seed))

    assert drawn(1, 12) == drawn(1, 12) == drawn(1, 200)[:12] != drawn(2, 12)
    assert set(drawn(3, 200)) == set(every) and len(drawn(3, 200)) == len(every) == 160


@pytest.mark.parametrize("text", ["0", "x", "1x2x3x4", "-1", "16x", "1.5", "99999999999"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(Error, match="a size such as 128"):
        parse_three(text, "--blocks")


# ---- the file ----


def test_csv_is_complete_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    table = Table(path, "00ff", "kernel, with a comma", "a device")
    one, other = made(block=[(64, 1, 1)]).all(), made(maxregs=[32], cache=["l1"]).all()
    table.add(Row(next(one), 0.5, 0.25, 0.125, True))
    table.add(Row(next(other), error='no "such" thing, at all'))
    whole = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600  # it tells of the program
    again = Table(path, "00ff", "kernel, with a comma", "a device")
    assert again.rows == table.rows and path.read_bytes() == whole
    for size in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:size])
        found = Table(path, "00ff", "kernel, with a comma", "a device").rows
        assert found == table.rows[: whole[:size].count(b"\n") - 1]
        assert whole.startswith(path.read_bytes()) and path.read_bytes().endswith(b"\n")


def test_csv_of_another_launch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    Table(path, "00ff", "k", "d").add(Row(next(made().all()), 1.0, 1.0, 0.0, True))
    for of in (("00fe", "k", "d"), ("00ff", "other", "d"), ("00ff", "k", "another")):
        with pytest.raises(Error, match=r"of another (launch|kernel|device)"):
            Table(path, *of)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FormatError, match="line 1: not a table of configurations"):
        Table(path, "00ff", "k", "d")
    for other in ("{}", "a,b\n1,2", "launch,kernel,device,code and more"):  # and no line's end
        path.write_text(other)
        with pytest.raises(FormatError, match="line 1: not a table of configurations"):
            Table(path, "00ff", "k", "d")
        assert path.read_text() == other
    good = ",".join(Table(tmp_path / "new.csv", "a", "k", "d").path.read_text().splitlines())
    times = "a,k,d,recorded,64,2,0,,,,nan,1,1,yes,"
    for line in ("a,k,d,recorded,64", "a,k,d,recorded,64,?,0,,,,1,1,1,yes,", times, "\0"):
        path.write_text(f"{good}\n{line}\n")
        with pytest.raises(FormatError, match="line 2"):
            Table(path, "a", "k", "d")


# ---- the search ----


WORDS = ("--sim", "--times", "2", "-o")


@pytest.fixture(scope="module")
def strided(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A kernel that strides through its data, tried with many blocks, and what was said of it."""
    folder = tmp_path_factory.mktemp("strided")
    out, page = folder / "out.csv", folder / "out.html"
    blocks = ("--blocks", "32,100,2048", "--grids", "total,3", "--chart", page, "--json")
    outcome = support.ttanalyze("tune", recorded, *WORDS, out, "--kernel", "^scale$", *blocks)
    assert outcome.status == 0, outcome.stderr
    return out, json.loads(outcome.stdout)


@pytest.mark.long
def test_grid_stride_kernel_verifies_at_other_sizes(strided: tuple[Path, Any]) -> None:
    out, said = strided
    found = rows(out)
    assert [(r["block"], r["grid"]) for r in found] == [
        ("128", "20"),
        ("32", "80"),
        ("100", "26"),
        ("2048", "2"),
        ("32", "3"),
        ("100", "3"),
        ("2048", "3"),
    ]
    for row in found:
        fits = row["block"] != "2048"
        assert row["verified"] == ("yes" if fits else "no")
        assert bool(row["median_ms"]) == fits == (not row["error"])
    assert "CUDA_ERROR_INVALID_VALUE" in found[3]["error"]
    least = min(float(r["median_ms"]) for r in found if r["median_ms"])
    assert said["best"]["median_ms"] == pytest.approx(least, abs=1e-6)
    assert said["gain"] >= 1 and said["tried"] == 7 and len(said["rows"]) == 6


def test_chart_is_written(strided: tuple[Path, Any]) -> None:
    page = strided[0].with_suffix(".html").read_text()
    assert "block 100, grid 26" in page and "block 2048" not in page
    assert "<script" in page and 'src="http' not in page


def test_interrupted_tuning_resumes(
    recorded: Path, strided: tuple[Path, Any], tmp_path: Path, cli: Cli
) -> None:
    out = tmp_path / "out.csv"
    before = strided[0].read_bytes()
    out.write_bytes(before + b"torn,line")
    outcome = cli("tune", recorded, *WORDS, out, "--kernel", "^scale$", "--blocks", "32,100,256")
    assert outcome.status == 0, outcome.stderr
    assert out.read_bytes().startswith(before)
    assert [r["block"] for r in rows(out)[7:]] == ["256"]
    assert "3 configurations, 1 of them new" in outcome.stdout
    assert "best: " in outcome.stdout.splitlines()[-1]
    assert outcome.stdout.count(" recorded\n") == 1  # which was none of those asked for
    other = cli("tune", recorded, *WORDS, out, "--kernel", "^sums$")
    assert other.status == 2 and "of another launch" in other.stderr


def test_fixed_kernel_fails_at_other_block_sizes(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out.csv"
    outcome = cli("tune", recorded, *WORDS, out, "--kernel", "^sums$", "--blocks", "64,128,256")
    assert outcome.status == 0, outcome.stderr
    verified = {row["block"]: row["verified"] for row in rows(out)}
    assert verified == {"64": "no", "128": "yes", "256": "no"}
    assert all("the result differs: region" in r["error"] for r in rows(out)[1:])
    assert "2 configurations can't be used:" in outcome.stdout
    assert "block 64, grid 320 and 1 more: the result differs: region" in outcome.stdout
    assert "best: as recorded" in outcome.stdout


FASTER = """
.version 6.3
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 p, .param .u64 q, .param .u32 n)
{
.reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<6>;
mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
mad.lo.u32 %r1, %r3, %r4, %r5;
mov.u32 %r6, %nctaid.x; mul.lo.u32 %r6, %r6, %r4;
ld.param.u32 %r2, [n]; ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
LOOP: setp.ge.u32 %p1, %r1, %r2;
@%p1 bra DONE;
mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
ld.global.u32 %r8, [%rd4]; mul.lo.u32 %r8, %r8, FACTOR; st.global.u32 [%rd5], %r8;
add.u32 %r1, %r1, %r6;
bra LOOP;
DONE: ret;
}
"""


def test_tune_checks_other_code_and_options(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    compiler_stand_in.use("nvrtc", tmp_path, monkeypatch)
    files = {"good.ptx": "3", "wrong.ptx": "4", "good.cu": "3"}
    for name, factor in files.items():
        (tmp_path / name).write_text(FASTER.replace("FACTOR", factor))
    (tmp_path / "broken.ptx").write_text(".version")
    named = [word for name in [*files, "broken.ptx"] for word in ("--code", tmp_path / name)]
    out = tmp_path / "out.csv"
    options = ("--maxregs", "16,32", "--opt-level", "2", "--cache", "l1")
    outcome = cli("tune", recorded, *WORDS, out, "--kernel", "^scale$", *named, *options)
    assert outcome.status == 0, outcome.stderr
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows(out)[1:]:
        found.setdefault(row["code"].partition(":")[0], []).append(row)
    assert {n: [r["verified"] for r in some] for n, some in found.items()} == {
        "recorded": ["yes", "yes"],
        "good.ptx": ["yes", "yes"],
        "wrong.ptx": ["no", "no"],
        "good.cu": ["yes", "yes"],
        "broken.ptx": ["no", "no"],
    }
    assert {(r["maxregs"], r["opt_level"], r["cache"]) for r in found["good.ptx"]} == {
        ("16", "2", "l1"),
        ("32", "2", "l1"),
    }
    assert "loading broken.ptx" in found["broken.ptx"][0]["error"]


FATAL = """
.version 6.3
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 p, .param .u64 q, .param .u32 n)
{
DO
ret;
}
"""


def test_recorded_configuration_is_tried_again(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    """As there is nothing to compare with where it took too long."""
    of = ("tune", recorded, *WORDS, tmp_path / "out.csv", "--kernel", "^scale$", "--blocks", "64")
    outcome = cli(*of, "--timeout", "1us")
    assert outcome.status == 2
    assert outcome.stderr.endswith("took longer than 1e-06 s; --timeout allows more time\n")
    assert cli(*of).status == 0
    assert [row["verified"] for row in rows(tmp_path / "out.csv")] == ["no", "yes", "yes"]


@pytest.mark.long
def test_failing_configuration_does_not_end_tuning(
    recorded: Path, tmp_path: Path, cli: Cli
) -> None:
    for name, do in {"trap.ptx": "trap;", "loop.ptx": "LOOP: bra LOOP;"}.items():
        (tmp_path / name).write_text(FATAL.replace("DO", do))
    named = [word for name in ("trap.ptx", "loop.ptx") for word in ("--code", tmp_path / name)]
    out = tmp_path / "out.csv"
    blocks = ("--blocks", "32,64", "--timeout", "3", "--trials", "5")
    outcome = cli("tune", recorded, *WORDS, out, "--kernel", "^scale$", *named, *blocks)
    assert outcome.status == 0, outcome.stderr
    found = [(r["code"].partition(":")[0], r["block"], r["error"]) for r in rows(out)]
    assert [one[:2] for one in found] == [
        ("recorded", "128"),
        ("recorded", "32"),
        ("recorded", "64"),
        ("trap.ptx", "32"),
        ("trap.ptx", "64"),
        ("loop.ptx", "32"),
    ]
    assert all("CUDA_ERROR" in one[2] for one in found[3:5])
    assert found[5][2] == "took longer than 3 s"


@pytest.mark.long
def test_tolerance_accepts_differing_values(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "near.ptx").write_text(
        FASTER.replace("mul.lo.u32 %r8, %r8, FACTOR", "mad.lo.u32 %r8, %r8, 3, 1")
    )
    near = ("--code", tmp_path / "near.ptx")
    exact = cli("tune", recorded, *WORDS, tmp_path / "a.csv", "--kernel", "^scale$", *near)
    assert [r["verified"] for r in rows(tmp_path / "a.csv")] == ["yes", "no"], exact.stderr
    allowed = ("--dtype", "u32", "--tolerance", "1")
    cli("tune", recorded, *WORDS, tmp_path / "b.csv", "--kernel", "^scale$", *near, *allowed)
    assert [r["verified"] for r in rows(tmp_path / "b.csv")] == ["yes", "yes"]
    mixed = cli("tune", recorded, *WORDS, tmp_path / "b.csv", "--kernel", "^scale$", *near)
    assert mixed.status == 2 and "or of other --flush-l2, --dtype, --tolerance" in mixed.stderr


@pytest.mark.long
def test_interrupt_keeps_tried_configurations(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "loop.ptx").write_text(FATAL.replace("DO", "LOOP: bra LOOP;"))
    out = tmp_path / "out.csv"
    words = [sys.executable, "-m", "ttanalyze", "tune", str(recorded), "--kernel", "^scale$"]
    words += ["--sim", "--code", str(tmp_path / "loop.ptx"), "--times", "1", "-o", str(out)]
    process = subprocess.Popen(words, cwd=support.ROOT, env=support.bare_environment())
    until = time.monotonic() + 60
    while time.monotonic() < until and (not out.exists() or len(rows(out)) < 1):
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert [r["verified"] for r in rows(out)] == ["yes"]


# ---- optuna ----


class Study:
    """What stands for a study of optuna: proposes what is first over and over."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.wanted: list[dict[str, int]] = []

    def ask(self, axes: dict[str, int]) -> Any:
        first = dict.fromkeys(axes, 0)
        return types.SimpleNamespace(params=self.wanted.pop() if self.wanted else first)

    def enqueue_trial(self, params: dict[str, int]) -> None:
        self.wanted.append(params)

    def tell(self, trial: Any, value: float | None = None, state: Any = None) -> None:
        self.told.append((value, state))


def optuna(study: Study) -> types.ModuleType:
    package = types.ModuleType("optuna")
    space_of = types.SimpleNamespace
    parts = {
        "logging": space_of(WARNING=30, set_verbosity=lambda level: None),
        "samplers": space_of(TPESampler=lambda seed: seed),
        "distributions": space_of(CategoricalDistribution=len, IntDistribution=max),
        "trial": space_of(TrialState=space_of(FAIL="fail", PRUNED="pruned")),
        "create_study": lambda direction, sampler: study if direction == "minimize" else None,
    }
    vars(package).update(parts)
    return package


def searched(of: Space, trials: int | None, seed: int = 0) -> list[Configuration]:
    """What a search tries where all is good that takes at least 32 registers: more are slower."""
    steps = search.search("optuna", of, trials, seed)
    tried = [next(steps)]
    with contextlib.suppress(StopIteration):
        while True:
            registers = tried[-1].maxregs or 0
            good = registers >= 32
            tried.append(steps.send([Row(tried[-1], registers if good else None, verified=good)]))
    return tried


def test_optuna_gets_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study()
    monkeypatch.setitem(sys.modules, "optuna", optuna(study))
    tried = searched(made(maxregs=[16, 32], opt_level=[1, 2, 3]), None)
    assert len(set(tried)) == len(tried) == 6
    told = [one for one in study.told if one != (None, "fail")]  # known already
    assert sorted(told, key=str) == [(32, None)] * 3 + [(None, "pruned")] * 3


def test_optuna_makes_the_requested_trials() -> None:
    pytest.importorskip("optuna")
    of = made(maxregs=range(8, 104), opt_level=[1, 2])
    assert len(set(searched(of, 40))) == 40
    assert searched(of, 12) == searched(of, 12) != searched(of, 12, seed=1)
    every = searched(made(maxregs=range(16, 48), cache=["none", "l1"]), 100)
    assert len(set(every)) == len(every) == 64


def test_missing_optuna_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(Error, match=r"pip install 'ttanalyze\[tune\]'"):
        search.search("optuna", made(), None, 0)


def test_auto_is_optuna_where_not_all_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = made(maxregs=[16, 32]), made(maxregs=range(16, 80))
    there = "optuna" if importlib.util.find_spec("optuna") else "grid"
    assert search.chosen("auto", small, None) == "grid"
    assert search.chosen("auto", large, None) == there
    assert search.chosen("auto", large, 64) == "grid"
    assert search.chosen("random", large, None) == "random"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert search.chosen("auto", large, None) == "grid"


# ---- conditions ----


def test_conditions_limit_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(maxregs=[16, 32, 64], block=[(64, 1, 1), (128, 1, 1), (256, 1, 1)])
    allowed = constraints(["threads * maxregs <= 4096", "block_x != 64 or maxregs == 64"])
    assert allowed is not None
    found = list(search.search("grid", of, None, 0, allowed))
    assert {(c.block[0], c.maxregs) for c in found} == {(256, 16), (128, 16), (128, 32), (64, 64)}
    study = Study()
    monkeypatch.setitem(sys.modules, "optuna", optuna(study))
    steps = search.search("optuna", of, None, 0, allowed)
    tried = [next(steps)]
    with contextlib.suppress(StopIteration):
        while True:
            tried.append(steps.send([Row(tried[-1], 1.0, verified=True)]))
    assert set(tried) == set(found)
    with pytest.raises(Error, match="no column threadz; a configuration has"):
        constraints(["threadz < 3"])


# ---- several devices ----


@pytest.mark.long
def test_devices_share_the_work(recorded: Path, tmp_path: Path) -> None:
    """Each configuration is tried once, by two processes at the same time."""
    out = tmp_path / "out.csv"
    options = ("--kernel", "^scale$", "--blocks", "32,64,96,128", "--launch-bounds", "128/2,256")
    more = ("--specialize", "none,args", "--where", "threads > 32", "--search", "grid")
    line = ("tune", recorded, *WORDS, out, *options, *more, "--device", "0,1", "--json")
    environment = support.simulator_environment(TT_SIM_DEVICES="2")
    done = support.ttanalyze(*line, environment=environment)
    assert done.status == 0, done
    found = rows(out)
    keys = [(r["block"], r["launch_bounds"], r["specialize"]) for r in found[1:]]
    assert len(set(keys)) == len(keys) == 12
    assert {r["verified"] for r in found} == {"yes"}
    assert json.loads(done.stdout)["tried"] == 13
    again = support.ttanalyze(*line, environment=environment)
    assert json.loads(again.stdout)["tried"] == 0 and len(rows(out)) == 13


# ---- refusals ----


def test_unsupported_launches_are_refused(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out.csv"

    def refused(*options: str) -> str:
        outcome = cli("tune", recorded, "-o", out, *options)
        assert outcome.status == 2 and outcome.stderr.count("\n") == 1, outcome
        assert not out.exists()
        return outcome.stderr

    assert "--launch N or --kernel REGEX is required" in refused()
    assert "no launch of a kernel whose name has 'nothing'" in refused("--kernel", "nothing")
    of = ("--kernel", "scale")
    assert "--blocks 0: expected a size" in refused(*of, "--blocks", "64,0")
    assert "--grids x: expected a size" in refused(*of, "--grids", "x")
    assert "--shared 1Q: expected a size" in refused(*of, "--shared", "1Q")
    assert "--maxregs 300: must be numbers from 1 to 255" in refused(*of, "--maxregs", "300")
    assert "--opt-level 5: must be numbers from 0 to 4" in refused(*of, "--opt-level", "5")
    assert "--cache l9: must be one of none, shared, l1, equal" in refused(*of, "--cache", "l9")
    assert "--search well" in refused(*of, "--search", "well")
    assert "needs --dtype" in refused(*of, "--tolerance", "1")
    assert "must end in .html" in refused(*of, "--chart", "x.png")
    assert "--times" in refused(*of, "--times", "0")
    assert "--timeout nan: expected a time" in refused(*of, "--timeout", "nan")
    assert "is not a launch of a kernel" in refused("--launch", "2")


def test_compiled_image_is_tuned(tmp_path: Path) -> None:
    from ttanalyze.verbs.tune.tune import _Images

    path = tmp_path / "image"
    path.write_bytes(elf.MAGIC + bytes(60))
    images = _Images(path, {}, tmp_path, 90)
    plain = made(block=[(64, 1, 1)])
    assert images.limit(plain) == (plain, [])
    with pytest.raises(Error, match="no PTX for this device in the recorded code; give PTX"):
        images.limit(made(maxregs=[32]))
    source = (Path("new.ptx"), b".version 8.0")
    images = _Images(path, {"new.ptx:01": source}, tmp_path, 90)
    limited, notes = images.limit(made(code=["new.ptx:01"], maxregs=[32, 64]))
    assert [(c.code, c.maxregs) for c in limited.all()] == [
        ("recorded", None),
        ("new.ptx:01", 32),
        ("new.ptx:01", 64),
    ]
    assert notes[0].endswith("in the recorded code: tried unchanged")


def test_unverifiable_launch_is_refused(built: Path, tmp_path: Path, cli: Cli) -> None:
    program = support.build_program("recorder_single_launches", built)
    run = tmp_path / "run"
    options = ("--sim", "--deterministic", "--params", "--epoch", "launch:2")
    assert support.ttanalyze("record", *options, "-o", run, "--", program).status == 0
    seq = int(tt.open(run).events.query("kernel == 'follow'")["seq"].iloc[0])
    outcome = cli("tune", run, "--launch", str(seq), "-o", tmp_path / "out.csv")
    assert outcome.status == 2
    assert "its result can't be checked" in outcome.stderr
