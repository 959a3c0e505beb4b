"""Runs in notebooks: the table, the plots, the magic that records a cell, and the examples."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import notebooks, support
from tests.rundir import Writer
from ttanalyze.format.activities import OWN
from ttanalyze.integrations import plots


@pytest.fixture
def weights(run_path: Path) -> tt.Run:
    """A tensor of four items over three epochs, of which the last has lost its contents."""
    w = Writer(run_path)
    w.born(0, np.array([1, 2, 3, 4], "<f4").tobytes(), label="pool")
    w.name(0, 0, 8, "layer.weight", "f32")
    launch = w.event("launch", "cuLaunchKernel", id=0)
    w.activity("launch", launch, 1000, 3000, "_Z3addPfS_i")
    w.activity("copy", launch, 4000, 9000, stream=17)
    w.activity("launch", launch, 5000, 6000, "tt_capture_digest", flags=OWN)
    w.epoch("sync", "full")
    w.write(0, 0, np.array([np.nan, 6], "<f4").tobytes())
    w.epoch("sync")
    w.write(0, 0, np.array([7], "<f4").tobytes())
    w.epoch("sync", "dropped")
    w.died(0)
    w.close()
    return tt.open(run_path)


def test_values_of_a_tensor_over_epochs(weights: tt.Run) -> None:
    figure = weights.plot.values("layer.weight")
    assert figure.layout.title.text == "layer.weight as f32: 1 epoch without contents"
    found = {trace.name: list(trace.y) for trace in figure.data}
    assert found["max"][:2] == [2.0, 6.0] and np.isnan(found["max"][2])
    assert found["min"][:2] == [1.0, 6.0]
    assert found["nan"] == [0, 1, 0] and "inf" not in found
    assert list(weights.plot.values("pool", dtype="u8").data[0].y[:1]) == [128]


def test_memory_changes_and_timeline(weights: tt.Run) -> None:
    memory = weights.plot.memory()
    assert list(memory.data[0].y) == [16, 0]
    assert memory.layout.title.text == "Device memory: peak 16 B"
    (cells,) = weights.plot.changes().data
    assert (list(cells.y), list(cells.x), cells.z.tolist()) == (["0 pool"], [0, 1, 2], [[1, 1, 1]])
    assert (cells.zmin, cells.zmax) == (0, 1)
    bars = weights.plot.timeline().data
    assert {bar.name: (bar.y[0], bar.base[0], bar.x[0]) for bar in bars} == {
        "add": ("stream 1", 0.0, 2.0),
        "copy": ("stream 17", 3.0, 5.0),
    }  # without work of the recorder


def test_plots_say_what_they_leave_out(weights: tt.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_BARS", "MOST_REGIONS", "MOST_EPOCHS"):
        monkeypatch.setattr(plots, name, 1)
    assert weights.plot.timeline().layout.title.text == "GPU work: 2 pieces, the longest 1"
    title = weights.plot.values("layer.weight").layout.title.text
    assert title == "layer.weight as f32: 1 of 3 epochs"


def test_plots_explain_errors(small: Writer, run_path: Path, monkeypatch: Any) -> None:
    run = tt.open(run_path)
    with pytest.raises(tt.Error, match="no region or tensor 'x' in process 0"):
        run.plot.values("x")
    with pytest.raises(tt.Error, match="0: the type of its items is unknown: give dtype"):
        run.plot.values(0)
    with pytest.raises(tt.Error, match="no process 7"):
        run.plot.changes(process=7)
    monkeypatch.setattr(run, "activities", run.activities.iloc[:0])
    with pytest.raises(tt.Error, match="no GPU times: record with --timeline"):
        run.plot.timeline()
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(tt.Error, match=r"plots need plotly: pip install 'ttanalyze\[report\]'"):
        run.plot.memory()


def test_run_is_a_table_in_notebooks(small: Writer, run_path: Path) -> None:
    small.warnings.append("<script>alert(1)</script>")
    small.close()
    shown = tt.open(run_path)._repr_html_()
    assert "<td style='text-align:left;white-space:pre-wrap'>./app --fast" in shown
    assert "&lt;script&gt;alert(1)" in shown and "<script>" not in shown
    run = tt.open(run_path)
    (run_path / "p0" / "functions.bin").write_bytes(b"no")
    assert "functions.bin: offset 2: cut short" in run._repr_html_()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> notebooks.Shell:
    monkeypatch.chdir(tmp_path)
    made = notebooks.Shell()
    made.run("%load_ext ttanalyze")
    return made


@pytest.mark.native
def test_output_of_a_cell_comes_while_it_runs(
    shell: notebooks.Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Screen(io.StringIO):
        def write(self, words: str) -> int:
            if "first" in words:
                (tmp_path / "seen").touch()
            return super().write(words)

    shutil.copy(support.EXAMPLES / "overflow.py", tmp_path)  # imported from where the cell runs
    body = """
import overflow, pathlib, time
print("first é")
while not pathlib.Path("seen").exists():
    time.sleep(0.01)
overflow.main()
raise SystemExit("sorry")
"""
    screen, errors = Screen(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)
    run = shell.run(f"%%ttanalyze mine -q --sim{body}")
    assert screen.getvalue() == "first é\n"
    assert errors.getvalue() == "sorry\nthe cell ended with status 1\n"
    assert shell.user_ns["mine"] is run
    assert run.path == Path("mine.tt")
    assert run.process(0).status == "complete"


@pytest.mark.native
def test_a_cell_without_cuda_leaves_no_run(
    shell: notebooks.Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.run("%%ttanalyze some -q --sim\nprint(6 * 7)") is None
    assert capsys.readouterr() == ("42\n", "ttanalyze: no run, so some is unchanged\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run1 --sim --epok sync", "No such option: --epok"),
        ("a-b", "%%ttanalyze a-b: not the name of a variable; options come after it"),
        ("a -o there", "%%ttanalyze -o: the folder is a.tt; choose another name"),
        ("'a", "No closing quotation"),
    ],
)
def test_wrong_magic_lines_are_explained(
    shell: notebooks.Shell, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert shell.run(f"%%ttanalyze {line}\nprint(1)") is None
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err and "Traceback" not in told.err
    assert set(shell.user_ns) <= {"__builtins__"}


@pytest.mark.native
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda p: p.stem)
def test_example_notebooks_show_their_outputs(path: Path, tmp_path: Path, built: Path) -> None:
    def texts(found: list[dict[str, Any]]) -> list[Any]:
        """What does not depend on times, processes and folders."""
        out = []
        for one in found:
            data = one.get("data", {})
            traces = data.get(notebooks.FIGURE, {}).get("data", [])
            out.append(one.get("text") or data.get("text/plain"))
            out.append([(trace["type"], trace.get("name")) for trace in traces])
            out.append("text/html" in data)
        return out

    with notebooks.workplace(tmp_path, support.build_examples(built / "examples")):
        ran = [
            (cell["outputs"], found)
            for cell, found in notebooks.executed(json.loads(path.read_text()))
        ]
    assert len(ran) >= 5
    for kept, found in ran:
        assert texts(found) == texts(kept)
