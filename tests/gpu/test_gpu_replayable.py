"""On a GPU: launches of frameworks and of plain programs have all that they need to run again."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import compare, record
from ttanalyze.code import uses
from ttanalyze.format import layout
from ttanalyze.format.process import Process

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment(CUBLAS_WORKSPACE_CONFIG=":4096:8")
TORN = layout.LOOSE | layout.REFUSED | layout.DROPPED


def needs(module: str) -> pytest.MarkDecorator:
    found = importlib.util.find_spec(module) is not None
    return pytest.mark.skipif(not found, reason=f"needs {module}")


def image_of(process: Process, function: int) -> tuple[str, bytes]:
    """Why a kernel's image is missing ("nothing": it is not), and the image."""
    at = int(process.functions["module"][process.functions["id"] == function][0])
    of = process.modules[process.modules["id"] == at]
    if not len(of):
        return "no module", b""
    path = process.path / "modules" / f"{int(of['image'][0]):016x}"
    why = str(layout.MISSING[int(of["missing"][0])])
    return why, path.read_bytes() if path.exists() else b""


def lacking(process: Process) -> list[str]:
    """What launches that were recorded so lack, in words."""
    out = []
    for launch in process.launches:
        kernel = process.kernel(int(launch["function"]))
        why, image = image_of(process, int(launch["function"]))
        if why != "nothing" or not image:
            out.append(f"{kernel}: its image: {why}")
        elif kernel and uses(image, kernel) is None:
            out.append(f"{kernel}: it is not in its image")
        for member in ("before", "after"):
            number = int(launch[member])
            if number >= len(process.epochs):
                out.append(f"{kernel}: no epoch {member}")
            elif process.epochs["flags"][number] & TORN:
                out.append(f"{kernel}: the epoch {member} is torn")
    return out


@pytest.mark.parametrize(
    ("script", "least"),
    [
        pytest.param("train_replayable.py", 30, marks=needs("torch")),
        pytest.param("triton_case.py", 3, marks=needs("triton")),
        pytest.param("cupy_case.py", 5, marks=needs("cupy")),
    ],
)
def test_frameworks_record_replayable_launches(script: str, least: int, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / script)]
    bare = support.run(command, BARE, timeout=300)
    assert bare.status == 0, bare.stderr
    path = tmp_path / "run"
    compare(script, bare, record(command, BARE, path, "--replayable", "--max-per-kernel", "1"))
    process = tt.open(path).processes[0]
    assert lacking(process) == []
    assert len(process.launches) == len(set(process.launches["function"].tolist())) >= least


@pytest.fixture(scope="module")
def reaches(tmp_path_factory: pytest.TempPathFactory) -> Process:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    folder = tmp_path_factory.mktemp("reaches")
    program = folder / "reaches"
    source = HERE / "memory_access.cu"
    subprocess.run(["nvcc", "-arch=sm_90", str(source), "-o", str(program)], check=True)
    bare = support.run([program], BARE)
    assert bare.status == 0, bare.stdout
    compare("reaches", bare, record([str(program)], BARE, folder / "run", "--replayable"))
    return tt.open(folder / "run").processes[0]


def launch_of(process: Process, name: str, which: int = 0) -> np.void:
    found = [
        launch
        for launch in process.launches
        if f"{len(name)}{name}" in (process.kernel(int(launch["function"])) or "")
    ]
    record: np.void = found[which]
    return record


def used_by(process: Process, name: str) -> set[str] | None:
    function = int(launch_of(process, name)["function"])
    kernel = process.kernel(function)
    assert kernel is not None
    return uses(image_of(process, function)[1], kernel)


def test_replayable_run_is_complete(reaches: Process) -> None:
    assert lacking(reaches) == []


def test_textures_and_surfaces_are_recorded(reaches: Process) -> None:
    kinds = {
        name: [layout.VIEW_KINDS[v["kind"]] for v in reaches.kept.views(launch_of(reaches, name))]
        for name in ("plain", "textured", "surfaced")
    }
    assert "texture" in kinds["textured"]
    assert "surface" in kinds["surfaced"]
    assert kinds["plain"] == []


def test_only_textures_that_kernels_use_are_recorded(reaches: Process) -> None:
    """A parameter that equals the handle of a texture is not one: the code uses no textures."""
    found = {
        name: used_by(reaches, name)
        for name in ("plain", "textured", "number", "surfaced", "printing", "allocating")
    }
    assert found == {
        "plain": set(),
        "textured": {"textures"},
        "number": set(),
        "surfaced": {"surfaces"},
        "printing": {"printf"},
        "allocating": {"heap"},
    }


def test_launch_settings_are_recorded(reaches: Process) -> None:
    launch = launch_of(reaches, "shared_much")
    found = {
        (layout.SETTING_KINDS[s["what"]], int(s["number"])): int(s["value"])
        for s in reaches.kept.settings(launch)
    }
    assert (found["attribute", 8], found["attribute", 9]) == (100000, 50)
    assert {("limit", 0), ("limit", 1), ("limit", 2), ("priority", 0), ("cache", 1)} <= set(found)
    clustered = reaches.kept.attributes(launch_of(reaches, "clustered"))
    assert {4, 6} <= set(clustered["id"].tolist())


def test_epochs_contain_module_variables(reaches: Process) -> None:
    run = tt.open(reaches.path.parent)
    labels = run.regions.set_index("label")
    first = launch_of(reaches, "plain")
    for name, dtype, expected in (("counter", "i4", [7]), ("weights", "f4", [1, 2, 3, 4])):
        region = int(labels.loc[name, "region"])
        found = run.read(epoch=int(first["before"]), region=region, dtype=dtype)
        assert found.tolist() == expected
