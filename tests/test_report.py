"""The page that `ttanalyze report` makes: what it shows, that it needs nothing, that it is safe."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import pictures, support
from tests.pictures import CHROMIUM
from tests.rundir import Writer, busy_run, partly_read_run, small_run
from tests.support import Cli
from ttanalyze.format.unread import UNREAD
from ttanalyze.verbs.report import report
from ttanalyze.verbs.report.data import document

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&\"'"
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")


def shown(page: Path, width: int = 1366) -> tuple[str, str]:
    """What the browser makes of a page: its elements as text, and what the page's scripts said."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--window-size={width},2000", "--virtual-time-budget=20000", "--v=0"]
    done = subprocess.run(
        [*command, f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(said)


def own_text(page: str) -> str:
    """The page without the library and the packed data."""
    return re.sub(r'<script type="text/plain".*?</script>', "", page, flags=re.DOTALL)


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """vecadd, and vecadd with one element changed."""
    folder = tmp_path_factory.mktemp("report")
    program = support.command("example-vecadd", built)
    runs = folder / "first", folder / "second"
    for run, more in zip(runs, ([], ["--perturb", "5"]), strict=True):
        options = ("--sim", "-q", "--params", "-o", run)
        assert support.ttanalyze("record", *options, "--", *program, *more).status == 0
    return runs


def test_report_writes_a_page(cli: Cli, small: Writer, run_path: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = cli("report", run_path, "-o", page)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"{page}: ")
    assert page.read_text().startswith("<!doctype html>")
    said = json.loads(cli("report", run_path, "-o", page, "--json").stdout)
    assert said == {"page": str(page), "bytes": page.stat().st_size}


def test_errors_are_one_line(cli: Cli, small: Writer, run_path: Path, tmp_path: Path) -> None:
    for arguments in (
        ("report", tmp_path / "nothing"),
        ("report", run_path, "--against", tmp_path / "nothing"),
        ("report", run_path, "-o", tmp_path / "no" / "page.html"),
    ):
        outcome = cli(*arguments)
        assert outcome.status == 2
        assert outcome.stderr.startswith("ttanalyze: ")
        assert outcome.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_missing_library_is_named(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    outcome = cli("report", run_path, "-o", tmp_path / "page.html")
    assert outcome.status == 2
    assert "pip install 'ttanalyze[report]'" in outcome.stderr


def test_page_shows_the_run(recorded: tuple[Path, Path]) -> None:
    told = document(tt.open(recorded[0]))
    (process,) = told["processes"]
    assert process["epochs"]["count"] == 8
    assert process["kernels"]["launches"] == 8
    assert told["hidden"] == 0


def test_unread_memory_is_reported(run_path: Path) -> None:
    partly_read_run(run_path)
    assert f"1 region-epoch uncertain: {UNREAD}" in report(tt.open(run_path))


def test_known_gpu_times_are_shown(run_path: Path) -> None:
    w = small_run(run_path)
    (process,) = document(tt.open(run_path))["processes"]
    times = {kernel["short"]: kernel["gpu_time"] for kernel in process["kernels"]["listed"]}
    assert times == {"add": 500, "scale": 500}
    (w.path / "timeline.bin").unlink()
    (process,) = document(tt.open(run_path))["processes"]
    assert [kernel["gpu_time"] for kernel in process["kernels"]["listed"]] == [None, None]


def test_page_opens_with_the_verdict(recorded: tuple[Path, Path]) -> None:
    """Facts about the recording come last."""
    page = own_text(report(tt.open(recorded[0]), tt.open(recorded[1])))
    order = re.findall(r'<section id="(\w+)-section"', page)
    assert order[:3] == ["verdict", "divergence", "timeline"] and order[-1] == "run"
    assert page.index("different: memory first diverges") < page.index("<h2>Divergence")
    alone = own_text(report(tt.open(recorded[0])))
    assert "The recording is complete: 8 launches and 8 epochs. Nothing is missing." in alone


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"status": "running"}, "The program was killed, or still runs."),
        ({"status": "signal", "reason": "signal 11"}, "The program ended by signal 11."),
        ({"status": "failed", "reason": "disk full"}, "Recording stopped early: disk full."),
        ({"warnings": ["one thing is odd"]}, "The recording is complete, with 1 warning"),
        ({"argv": ["train"]}, "Nothing is missing."),
    ],
)
def test_verdict_says_how_the_recording_ended(
    run_path: Path, members: dict[str, Any], said: str
) -> None:
    small_run(run_path).close(**members)
    page = own_text(report(tt.open(run_path)))
    assert said in page and "2 launches and 5 epochs" in page


def test_verdict_of_a_hang_is_its_crash_report(run_path: Path) -> None:
    w = small_run(run_path)
    call = {
        "seq": 5,
        "kind": "launch",
        "call": "cuLaunchKernel",
        "kernel": "_Z4spinv",
        "grid": [1],
        "block": [32],
    }
    stream = {"context": 0, "stream": 1, "calls": [call], "count": 1}
    hang = {"reason": "hang", "call": "cuCtxSynchronize", "seq": 6, "in_flight": [stream]}
    w.close("timeout", reason="the timeout of 5 s", incidents=[hang])
    page = own_text(report(tt.open(run_path)))
    assert "hang from cuCtxSynchronize (call 6), with work in flight" in page
    assert html.escape("spin<<<1, 32>>> (call 5") in page


def test_run_without_calls_has_an_honest_page(run_path: Path) -> None:
    Writer(run_path).close()
    assert "Nothing was recorded." in own_text(report(tt.open(run_path)))


def test_allocations_and_kernels_name_source_lines(run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "scale")
    w.stack(1, [("load", "/opt/app/data.py", 7), ("<module>", "/opt/app/train.py", 3)])
    w.stack(2, [("step", "/opt/app/train.py", 12)])
    w.born(0, b"some", stack=1)
    for stack in (2, 2, 1):
        w.event("launch", "cuLaunchKernel", id=0, stack=stack)
    w.epoch("sync")
    w.close()
    (process,) = document(tt.open(run_path))["processes"]
    regions = process["regions"]
    assert regions["texts"][regions["site"][0]] == "data.py:7 in load"
    (kernel,) = process["kernels"]["listed"]
    assert kernel["callers"] == [("step (train.py:12)", 2), ("load (data.py:7)", 1)]


def test_timeline_shows_when_the_gpu_worked(run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "scale")
    w.born(0, b"some")
    for begin in (50_000, 90_000):
        seq = w.event("launch", "cuLaunchKernel", id=0)
        w.activity("launch", seq, begin, begin + 7_000, "scale")
    w.close()
    (process,) = document(tt.open(run_path))["processes"]
    lane = process["timeline"]["lanes"][0]
    assert process["timeline"]["timed"]
    assert lane["time"].tolist() == [49_000, 89_000]  # after the first call, at 1,000
    assert lane["length"].tolist() == [7_000, 7_000]
    assert lane["called"].tolist() == [1_000, 2_000]
    assert process["clock"]["span"] == 96_000
    (w.path / "timeline.bin").unlink()
    (process,) = document(tt.open(run_path))["processes"]
    assert process["timeline"]["lanes"][0]["time"].tolist() == [1_000, 2_000]


def test_page_loads_no_external_files(recorded: tuple[Path, Path]) -> None:
    page = own_text(report(tt.open(recorded[0]), tt.open(recorded[1])))
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\(", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy and policy[1].startswith("default-src 'none'")


def test_names_are_escaped(run_path: Path) -> None:
    """Kernels, labels and the command line may be anything."""
    w = small_run(run_path)
    w.function(9, HOSTILE)
    w.event("launch", "cuLaunchKernel", id=9, grid=[1, 1, 1], block=[1, 1, 1])
    w.born(20, bytes(100), label=HOSTILE)
    w.epoch("api", label=HOSTILE)
    w.close(argv=[HOSTILE])
    page = own_text(report(tt.open(run_path), tt.open(run_path)))
    assert "<img" not in page
    assert "document.title='taken'" not in page
    assert "&lt;img</span> <span>src=x</span>" in page
    assert page.count("<script") == 1


def test_page_shows_the_divergence(recorded: tuple[Path, Path]) -> None:
    page = own_text(report(tt.open(recorded[0]), tt.open(recorded[1])))
    assert "different: memory first diverges in epoch 5, region 0 at byte 131072" in page
    assert "<b>c8</b> <b>96</b> <b>b1</b> <b>3d</b> 05" in page
    assert "<b>6c</b> <b>19</b> <b>8b</b> <b>3f</b> 05" in page
    assert "writes there, only in B" in page
    same = own_text(report(tt.open(recorded[0]), tt.open(recorded[0])))
    assert 'class="verdict same"' in same
    assert 'id="divergence-section"' not in own_text(report(tt.open(recorded[0])))


def test_page_size_is_bounded(tmp_path: Path) -> None:
    """However much there is in a run, what lies side by side is put together."""
    from ttanalyze.verbs.report.data import Limits

    run = tt.open(busy_run(tmp_path / "busy", 3000).run)
    whole, less = document(run), document(run, Limits().divided(1 << 17))
    marks = [
        sum(len(lane["time"]) for p in told["processes"] for lane in p["timeline"]["lanes"])
        for told in (whole, less)
    ]
    assert marks[0] > 2 * marks[1] > 0


def test_first_divergence_is_shown_among_many(tmp_path: Path) -> None:
    """The page of two runs that have little in common is hardly larger than that of one."""
    runs = [tt.open(busy_run(tmp_path / str(seed), seed).run) for seed in (1, 2)]
    alone, both = report(runs[0]), report(runs[0], runs[1])
    page = own_text(both)
    assert page.count("What may have written there") <= 1
    assert "<code>ttanalyze diff --all</code> tells of all" in page
    assert len(both) < len(alone) + 100_000
    sections = re.findall(r'<section id="([\w-]+)"', page)
    links = re.findall(r'<a href="#([\w-]+)"', page)
    assert links == sections


@pytest.mark.long
@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_system_theme(
    scheme: str, recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    made = report(tt.open(recorded[0]))
    dark = "matches: " + str(scheme == "dark").lower()
    asked = 'matchMedia("(prefers-color-scheme: dark)")'
    assert asked in made
    page.write_text(made.replace(asked, f"{{ {dark}, addEventListener() {{}} }}"))
    drawn, said = shown(page)
    assert said == ""
    assert f'data-theme="{scheme}"' in drawn


@pytest.mark.long
@needs_chromium
def test_browser_draws_the_page(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(report(tt.open(recorded[0]), tt.open(recorded[1])))
    for width in (1366, 500):
        drawn, said = shown(page, width)
        assert said == ""
        assert 'data-ready="yes"' in drawn
        assert drawn.count("js-plotly-plot") >= 3
        assert re.search(r'<p id="failed"[^>]*hidden', drawn)
        assert ">add</button>" in drawn


@pytest.mark.long
@needs_chromium
def test_browser_runs_no_script_from_a_run(run_path: Path, tmp_path: Path) -> None:
    w = small_run(run_path)
    w.function(9, HOSTILE)
    w.event("launch", "cuLaunchKernel", id=9, grid=[1, 1, 1], block=[1, 1, 1])
    w.epoch("api", label=HOSTILE)
    w.close(argv=[HOSTILE])
    page = tmp_path / "page.html"
    page.write_text(report(tt.open(run_path)))
    drawn, said = shown(page)
    assert 'data-ready="yes"' in drawn
    assert said == ""
    assert "500 ns" in drawn and "GPU time" in drawn
    assert "<title>taken" not in drawn
    assert "<img" not in drawn


@pytest.mark.long
@needs_chromium
@pytest.mark.parametrize("size", pictures.HEIGHTS)
def test_page_looks_as_before(size: str, tmp_path: Path) -> None:
    """At three widths, printed, dark. `python -m tests.pictures` draws what is expected."""
    now = tmp_path / "now.png"
    pictures.draw_report(tmp_path, size, now)
    expected = pictures.FOLDER / f"report-{size}.png"
    mean, clearly = pictures.difference(expected, now)
    assert mean < 2.5 and clearly < 0.03, f"{mean:.2f} of 255, {clearly:.1%} of tiles: {now}"


@needs_chromium
@pytest.mark.long
def test_changed_page_looks_different(tmp_path: Path) -> None:
    """The comparison of pictures sees a section that is missing, and not a moved pixel."""
    expected = pictures.FOLDER / "report-900.png"
    drawn = pictures.read_png(expected)
    tiles = pictures.tiles(drawn)
    moved = pictures.tiles(np.roll(drawn, 1, axis=1))
    missing = pictures.tiles(np.concatenate([drawn[:300], drawn[420:], drawn[300:420]]))
    assert (np.abs(tiles - moved) > 24).mean() < 0.02
    assert (np.abs(tiles - missing) > 24).mean() > 0.03
