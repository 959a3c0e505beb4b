"""The benchmark runs from end to end on the simulator, and its page is made from its results."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import sys
import time
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import figures, plot, readme, report
from bench.bed import PROGRAMS, Bed, ProgramError, Result, by_turns
from bench.figures import MISSED, REACHED, UNJUDGED, Figure, Quantity
from bench.forks import Forks, of_ways
from bench.parts import kernels, llama, programs, traces, training
from bench.run import FORMAT
from tests import support
from ttanalyze.format import layout

RUN: list[str | Path] = [sys.executable, support.ROOT / "bench" / "run.py"]
LAUNCH = layout.EVENT_KINDS.index("launch")
REPORT: list[str | Path] = [sys.executable, support.ROOT / "bench" / "report.py"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all parts, with small sizes."""
    folder = tmp_path_factory.mktemp("bench")
    out = folder / "results.json"
    command = [*RUN, "--sim", "--quick", "--out", out, "--runs", folder / "runs"]
    done = support.run(command, support.bare_environment(), timeout=300)
    assert done.status == 0, done.stderr
    assert "not judged" in done.stdout
    assert not list((folder / "runs").iterdir()), "runs are removed"
    return out


@pytest.mark.long
def test_every_part_is_measured(results: Path) -> None:
    said = report.read(results)
    status = {name: (part["status"], part["why"]) for name, part in said["parts"].items()}
    skipped = {name for name, (it, _) in status.items() if it == "skipped"}
    assert skipped == {"kernels", "coder", "programs", "traces", "training", "llama"}, status
    assert {it for it, _ in status.values()} == {"ok", "skipped"}, status
    found = [figure for part in said["parts"].values() for figure in part["figures"]]
    values = figures.from_json(found)
    on_gpus = {"device-memory", "zones-train", "launch-callback", "launch-timed"}
    expected = {target.name for target in figures.TARGETS if target.part not in skipped} - on_gpus
    assert set(values) == expected
    assert all(math.isfinite(figure.value) for figure in values.values())
    assert said["simulator"] and said["machine"]["cpu"]


@pytest.mark.long
def test_the_page_is_made_from_the_results(results: Path, tmp_path: Path) -> None:
    done = support.run([*REPORT, results, "--docs", tmp_path], support.bare_environment())
    assert done.status == 0, done.stderr
    page = (tmp_path / "performance.md").read_text()
    said = report.read(results)
    assert said["machine"]["cpu"] in page and said["parts"]["drain"]["date"] in page
    for target in figures.TARGETS:
        assert f"| {target.what} |" in page
    assert "<!--" not in page
    plots = sorted((tmp_path / "performance").glob("*.svg"))
    assert [p.stem for p in plots] == [
        *("bytes", "dirty", "epochs", "launches"),
        *("length-memory", "length-time", "regions"),
    ]
    for path in plots:
        assert f"performance/{path.name}" in page
        assert ElementTree.parse(path).getroot().tag.endswith("svg")

    again = support.run([*REPORT, "--docs", tmp_path], support.bare_environment())
    assert again.status == 0, again.stderr
    assert (tmp_path / "performance.md").read_text() == page, "the results are kept beside it"


@pytest.mark.long
def test_later_measurements_are_added_to_the_results(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    shutil.copy(results, out)
    before = report.read(out)["parts"]
    command = [*RUN, "--sim", "--quick", "--out", out, "--runs", tmp_path / "runs"]
    done = support.run([*command, "--parts", "kernels"], support.bare_environment())
    assert done.status == 0 and "kernels: skipped" in done.stderr
    after = report.read(out)["parts"]
    assert {n: p for n, p in after.items() if n != "kernels"} == {
        n: p for n, p in before.items() if n != "kernels"
    }


@pytest.mark.long
def test_failing_part_does_not_stop_the_others(results: Path, tmp_path: Path) -> None:
    assert results.exists(), "so the programs are built"
    out = tmp_path / "results.json"
    environment = support.bare_environment(PATH=str(tmp_path))  # no gcc, no dd
    command = [*RUN, "--sim", "--quick", "--parts", "drain,launches", "--out", out]
    done = support.run([*command, "--runs", tmp_path / "runs"], environment)
    parts = report.read(out)["parts"]
    assert done.status == 1 and parts["drain"]["status"] == "failed"
    assert "dd" in parts["drain"]["why"] and "Traceback" not in done.stderr
    assert parts["launches"]["status"] == "ok"
    page, _ = report.page(report.read(out), "<!-- ways -->", "performance")
    assert re.search(r"^\| LD_PRELOAD \(`preload`\)( \| [\d,]+ ns){4} \|$", page, re.MULTILINE)


def test_unknown_parts_and_files_are_refused(tmp_path: Path) -> None:
    done = support.run([*RUN, "--parts", "kernels,nothing"], support.bare_environment())
    assert done.status == 2 and "no part 'nothing'" in done.stderr
    (tmp_path / "other.json").write_text('{"format": "other"}')
    for name in ("missing.json", "other.json"):
        done = support.run([*REPORT, tmp_path / name, "--docs", tmp_path], {})
        assert done.status == 2 and len(done.stderr.splitlines()) == 1 and name in done.stderr


def test_results_get_verdicts() -> None:
    rate, cost = (next(t for t in figures.TARGETS if t.name == n) for n in ("snapshot", "delta"))
    assert figures.verdict(rate, Figure("snapshot", 0.9), True) == REACHED
    assert figures.verdict(rate, Figure("snapshot", 0.89), True) == MISSED
    assert figures.verdict(cost, Figure("delta", 1.15), True) == REACHED
    assert figures.verdict(cost, Figure("delta", 1.16), True) == MISSED
    assert figures.verdict(cost, Figure("delta", 1.16), False) == UNJUDGED
    assert (
        figures.amount(1234.5, "ns") == "1,234 ns" and figures.amount(9.14, "GB/s") == "9.14 GB/s"
    )


def test_kernel_figures_are_ratios_to_reference_kernels() -> None:
    """From what bench/kernels.cu prints, which runs on GPUs only."""
    ours = {
        "digest_TBps": 4.5,
        "digest_us": 1900.0,
        "full_snapshot_TBps_payload": 2.0,
        "delta_us": {"2%": 2090.0},
        "regions_1000_of_4KiB_to_2MiB": {
            "digest_us": 25.0,
            "read_us": 20.0,
            "MiB": 200.0,
            "one_by_one_us": 6000.0,
        },
    }
    said = {"GiB": 8, "read_TBps": 4.6, "copy_TBps_payload": 2.1, "variants": {"a.ptx": ours}}
    found = {f.target: f for f in kernels.figures([said], [{"int64": 4.0, "int32": 4.2}], None)}
    value = {name: round(figure.value, 3) for name, figure in found.items()}
    assert value["digest-hash"] == round(4.5 / 4.2, 3) and value["digest-read"] == 0.978
    assert value["delta"] == 1.1 and value["digest-many"] == 1.25
    assert value["snapshot"] == 0.952
    assert value["predecessor-snapshot"] == 40_000
    assert value["predecessor-delta"] == round((8 << 30) / 2090 / 1000 / 0.03, 3)
    reads = [Quantity("a plain read", 20.0, "µs"), Quantity("a launch for each", 6000.0, "µs")]
    assert found["digest-many"].peers == reads


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_programs_for_gpus_compile(tmp_path: Path) -> None:
    assert kernels.build(Bed(True, True, tmp_path, tmp_path)).exists()


def epochs_of(cuts: list[int], commits: list[int], size: int) -> layout.Array:
    out = np.zeros(len(cuts), layout.EPOCH)
    out["time_ns"], out["done_ns"] = cuts, commits
    out["bytes_changed"] = out["bytes_stored"] = size
    return out


def test_whether_the_drain_kept_up_is_read_from_the_run() -> None:
    cuts = list(range(0, 100_000_000, 1_000_000))
    prompt = epochs_of(cuts, [c + 500_000 for c in cuts], 1 << 20)
    said: dict[str, Any] = training.keeping_up(prompt, 1 << 30, 100)
    assert said["kept_up"] and said["backlog"] == 1 << 20 and said["late_ms"] == 0.5
    slow = epochs_of(cuts, [2 * c + 500_000 for c in cuts], 1 << 20)
    said = training.keeping_up(slow, 1 << 30, 100)
    assert not said["kept_up"] and said["backlog"] > 40 << 20


def test_a_step_with_an_epoch_is_compared_with_the_turn_before() -> None:
    """The machine may get slower meanwhile."""
    turns = [[20.0, 21.0, 90.0], [21.0, 21.0, 22.0], [30.0] * 3, [33.0] * 3, [40.0] * 3, [40.0] * 3]
    ratio, ours = llama.between_turns(turns)
    assert ratio == 1.0
    assert ours == [Quantity("step", 33.0, "µs"), Quantity("without", 30.0, "µs")]
    assert llama.between_turns(turns[:4])[0] == 1.05


def test_ways_of_a_llama_are_compared_with_bare_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that fails takes no other along."""

    steps = {"bare": 100.0, "events": 101.0, "cupti": 120.0, "gpu_us": 150.0, "stacks_us": 450.0}

    class Asked:
        def __init__(self, name: str) -> None:
            self.name = name
            self.options = None if name in ("bare", *training.PEERS) else llama.WAYS.get(name, {})

        def answer(self, arguments: list[str], _: float = 0) -> Any:
            index = arguments[arguments.index("--slice") + 1].partition("/")[0]
            meeting = Path(arguments[arguments.index("--meeting") + 1])
            (meeting / f"ready-{index}").touch()
            if self.name == "stacks":
                raise ProgramError("stacks: status 1")
            step = steps[self.name]
            return {"slices_us": {"0": [step] * 3, "1": [2 * step, 2 * step, 9.0]}}

        def with_run(self, arguments: list[str], look: Any) -> Any:
            if "--slice" in arguments:
                return look(self.answer(arguments), None)
            if self.name == "digests":
                return [[10.0], [11.0]] * 4, 8
            drain = {"kept_up": True, "bytes_per_step": 1, "late_ms": 1.0, "disk_per_epoch": 1}
            return {"step_us": 900.0 if self.name == "changed" else 300.0, **drain}

    names = ("bare", *llama.WAYS, "digests", *training.PEERS)
    monkeypatch.setattr(llama, "torch_python", lambda bed: "python")
    monkeypatch.setattr(llama, "of_ways", lambda *_: {name: Asked(name) for name in names})
    result = llama.measure(Bed(False, False, tmp_path, tmp_path, time.monotonic() + 600))
    assert result.failed == ["stacks: status 1"]
    found = {figure.target: round(figure.value, 2) for figure in result.figures}
    assert found == {
        "llama-events": 1.01,
        "llama-cupti": 1.2,
        "llama-profiler": 0.8,
        "llama-coded": 3.0,
        "llama-digests": 1.1,
    }


def test_plots_contain_all_points() -> None:
    points = [(10.0**n, 3.0 * 10.0**n) for n in range(3, 8)]
    svg = plot.line_plot("A <title>", "launches", "time", {"one": points}, True, True)
    root = ElementTree.fromstring(svg)
    dots = [c for c in root.iter() if c.tag.endswith("circle") and c.get("r") == "3"]
    at = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in dots]
    assert len(at) == 5 and all(0 < x <= plot.WIDTH and 0 < y < plot.HEIGHT for x, y in at)
    assert sorted(at) == at, "further right"
    assert sorted((y for _, y in at), reverse=True) == [y for _, y in at], "and further up"
    words = [c.text for c in root.iter() if c.tag.endswith("text")]
    assert "A <title>" in words and "10M" in words and "1 ms" in words


def test_whole_programs_are_compared_with_bare_ones() -> None:
    steps = {"sort": {"bare": 100.0, "events": 101.0, "compute-sanitizer": 2500.0}, "jax": {}}
    head, row = programs.rows(steps)
    said = dict(zip(head, row, strict=True))
    assert said["bare step"] == "100 µs" and said["events"] == "1.01\N{MULTIPLICATION SIGN}"
    assert said["compute-sanitizer"] == "25.00\N{MULTIPLICATION SIGN}" and said["touched"] == ""
    here = dict.fromkeys(("cpu", "cores", "system", "kernel", "file_system", "gpu", "driver"), "x")
    part: dict[str, Any] = {"date": "1", "status": "ok", "why": None, "seconds": 1.0, "figures": []}
    part |= {"machine": here, "data": {"step_us": steps, "rows": [head, row]}}
    results: dict[str, Any] = {
        "machine": here,
        "simulator": True,
        "quick": True,
        "parts": {"programs": part},
    }
    page, plots = report.page(results, "<!-- programs -->", "here")
    assert "| sort | 100 µs |" in page and "here/programs.svg" in page
    made = plots["programs.svg"]
    words = [c.text for c in ElementTree.fromstring(made).iter() if c.tag.endswith("text")]
    assert {"sort", "events", "25\N{MULTIPLICATION SIGN}"} <= set(words) and "jax" not in words


def test_traces_have_a_column_for_each_way() -> None:
    data = {
        "slowdown": {"count": {"copy": 1.25}, "sanitizer": {"copy": 113.4}, "tma": {}},
        "varies": {"bare": {"copy": 0.012}, "count": {"copy": 0.03}},
        "bare_us": {"copy": 61.02},
    }
    machine = {"gpu": "NVIDIA H100", "driver": "1", "cpu": "C"}
    data["refused"] = {"count copy, gemm": [0, 9], "sanitizer copy, gemm": [2, 9]}
    part = {"machine": machine, "date": "D", "data": data}
    lines = report._traces({"simulator": False, "parts": {"traces": part}}).splitlines()
    assert lines[0] == "Measured on D: NVIDIA H100, driver 1, C."
    assert lines[2] == "| kernels | bare | count | addresses, Sanitizer API | tma |"
    cells = lines[4].replace("\N{MULTIPLICATION SIGN}", "x")
    assert cells == "| copy of 64 MiB | 61.0 µs ± 1 % | 1.25x ± 3 % | 113x |  |"
    assert lines[6] == "2 of 9 launches of copy, gemm ran without addresses, Sanitizer API."


def test_times_of_traces_are_of_all_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes differ, so no pair of them decides. A way whose runs fail takes no other along."""
    given = {"bare": iter([10.0, 12.0, 11.0]), "heartbeat": iter([22.0, 11.0, 33.0])}
    monkeypatch.setattr(Bed, "answer", lambda *_: {"step": [next(given["bare"])]})

    def traced(_bed: Bed, _result: Result, _load: object, way: str, _line: object) -> traces.Times:
        if way == "count":
            raise ProgramError("count failed")
        return {"step": [next(given[way])]}

    monkeypatch.setattr(traces, "_traced", traced)
    bed, workload = Bed(False, True, tmp_path, tmp_path), traces.Workload(["step"], [])
    result = Result(data={"slowdown": {}, "varies": {}, "bare_us": {}})
    for way in traces.CLOSE * 3:
        result.attempt(partial(traces._time, bed, result, workload, way))
    assert result.data["bare_us"] == {"step": 11.0}
    assert result.data["slowdown"] == {"heartbeat": {"step": 2.0}}
    assert result.data["varies"]["heartbeat"] == {"step": 0.5}
    assert result.failed == ["count failed"] * 3


@pytest.mark.parametrize("late", [True, False])
def test_turns_before_the_end_of_the_time_count(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn in which the time ends does not count. A program that fails before is an error."""
    bed = Bed(True, True, tmp_path, tmp_path)
    made: list[str] = []

    def way(name: str) -> str:
        if len(made) == 5:
            monkeypatch.setattr(Bed, "left", -1.0 if late else 60.0)
            raise ProgramError("no end within 1 s")
        made.append(name)
        return name

    ways = {name: partial(way, name) for name in ("a", "b")}
    if late:
        assert by_turns(bed, 9, ways) == {"a": ["a", "a"], "b": ["b", "b"]}
    else:
        with pytest.raises(ProgramError):
            by_turns(bed, 9, ways)


def test_every_program_has_its_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where one of them hangs: the others have all columns, and rows as soon as they can."""
    shares: dict[str, float] = {}

    class Asked:
        options = None

        def __init__(self, bed: Bed, *_: Any, **more: Any) -> None:
            self.bed, self.name = bed, ""

        def ask(self, arguments: list[str], timeout: float) -> None:
            self.name = arguments[0]

        def let_go_on(self, word: str, until: float) -> None:
            if self.name == "sort":
                raise ProgramError("the bare program: not warm in time: no word why")

        def answered(self, seconds: float) -> Any:
            return {self.name: {"step_us": [100.0]}}

        def answer(self, arguments: list[str], timeout: float) -> Any:
            names = arguments[0].split(",")
            shares.setdefault(names[0], timeout)
            if names == ["sort"]:
                raise ProgramError("python: no end within 1 s")
            return {name: {"step_us": [100.0]} for name in names if name != "sort"}

        def close(self) -> None:
            pass

    bed = Bed(False, False, tmp_path, tmp_path, time.monotonic() + 600)
    ways = dict.fromkeys(("bare", *programs.WAYS), Asked(bed))
    monkeypatch.setattr(programs, "torch_python", lambda bed: "python")
    monkeypatch.setattr(programs, "of_ways", lambda *_: ways)
    monkeypatch.setattr(programs, "Forks", Asked)
    monkeypatch.setattr(Bed, "sanitizer", lambda *_: ["compute-sanitizer"])
    result = programs.measure(bed)
    wanted = [name for name in programs.TORCH if name != "sort"]
    head, *found = result.data["rows"]
    table = {row[0]: row for row in found}
    assert all(name in table and "" not in table[name] for name in wanted), table
    assert "compute-sanitizer" in head and "python: no end within 1 s" in result.failed
    assert any("sort under compute-sanitizer: the bare" in why for why in result.failed)
    assert shares["gemm"] < 110, "a share, not all of it"
    said = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in said][: len(wanted)] == [f"program {n}" for n in wanted]


SERVED = """
import json, sys, time
from deep_stack import launcher
from forked import serve

def main():
    import ctypes
    what = sys.argv[1]
    if what == "fail":
        sys.exit("no such thing")
    if what == "wait":
        print("warm", flush=True)
        what = sys.stdin.readline().strip() or "1"
    while what == "hang":
        time.sleep(1)
    launch = launcher(ctypes.CDLL("libcuda.so.1"))
    for _ in range(int(what)):
        launch()
    print(json.dumps({"imported before": "fractions" in sys.modules}))

serve(main)
"""


def test_ways_run_in_forks_of_processes_that_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bare or recorded. One that fails or hangs takes no other along."""
    script = tmp_path / "served.py"
    script.write_text(SERVED)
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    bed = Bed(True, True, tmp_path, tmp_path, time.monotonic() + 60)
    command: list[str | Path] = [sys.executable, script]
    with contextlib.ExitStack() as stack:
        ways = of_ways(stack, bed, command, {"events": {"epoch": "none"}}, ("fractions", "missing"))
        for count in (3, 5):
            assert ways["bare"].answer([str(count)]) == {"imported before": True}
            launches = ways["events"].with_run(
                [str(count)], lambda _, run: int((run.events["kind"] == LAUNCH).sum())
            )
            assert launches == count
            assert not ways["events"].run.exists(), "a run is removed when it has been looked at"
        with pytest.raises(ProgramError, match="status 1: no such thing"):
            ways["events"].answer(["fail"])
        with pytest.raises(ProgramError, match="bare program: no end within 1 s"):
            ways["bare"].answer(["hang"], 1)
        assert ways["bare"].answer(["1"])
    with pytest.raises(ProgramError, match="its process has ended"):
        ways["bare"].answer(["1"])
    for what in ("1", "wait", "hang"):
        one = Forks(bed, command, ("fractions",), None, once=True)
        seconds = one.ask([what], 20)
        if what == "wait":
            one.let_go_on("warm", time.monotonic() + 20)
        if what == "hang":
            with pytest.raises(ProgramError, match="not warm in time"):
                one.let_go_on("warm", time.monotonic() + 1)
        else:
            assert one.answered(seconds) == {"imported before": True}
        one.close()


def test_pages_are_those_of_the_kept_results() -> None:
    """The README's table and picture as well."""
    docs = support.ROOT / "docs"
    results = report.read(docs / "performance.json")
    words, plots = report.page(results, report.TEMPLATE.read_text(), "performance")
    assert words == (docs / "performance.md").read_text(), "run: python bench/report.py"
    assert plots.keys() == {path.name for path in (docs / "performance").glob("*.svg")}
    front = (support.ROOT / "README.md").read_text()
    assert readme.BEGIN in front and readme.filled(front, results) == front


def test_parts_of_another_machine_are_added(tmp_path: Path) -> None:
    """Each row says where it was measured."""
    here = dict.fromkeys(("cpu", "cores", "system", "kernel", "file_system", "driver"), "x")
    head = {**FORMAT, "simulator": False, "quick": False}
    part = {"date": "2026-11-24", "status": "ok", "why": None, "seconds": 1.0, "data": {"a": 1}}
    for gpu, value in (("H100 80GB", 2.0), ("H200", 3.0)):
        figure = {"target": "race", "value": value, "ours": [], "peers": [], "note": None}
        parts = {"race": {**part, "figures": [figure]}}
        if gpu == "H200":
            parts["patching"] = {**part, "figures": [{**figure, "target": "patch-load"}]}
        said = {**head, "machine": {**here, "gpu": f"NVIDIA {gpu}"}, "parts": parts}
        (tmp_path / f"{gpu}.json").write_text(json.dumps(said))
    docs = tmp_path / "docs"
    command = [
        *REPORT,
        tmp_path / "H200.json",
        "--docs",
        docs,
        "--add",
        tmp_path / "H100 80GB.json",
    ]
    done = support.run(command, support.bare_environment())
    assert done.status == 0, done.stderr
    page = (docs / "performance.md").read_text()
    assert "| 2 s |  | ≤ 60 s | reached | H100, 2026-11-24 |" in page
    assert "| 3 ms |  | ≤ 2 ms | missed | H200, 2026-11-24 |" in page


def test_plot_of_zeros_is_drawn() -> None:
    for log in (False, True):
        svg = plot.line_plot("t", "x", "y", {"none": [(0.0, 0.0)]}, log, log)
        root = ElementTree.fromstring(svg)
        (dot,) = (c for c in root.iter() if c.tag.endswith("circle") and c.get("r") == "3")
        assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == (
            plot.LEFT,
            plot.HEIGHT - plot.BOTTOM,
        )
