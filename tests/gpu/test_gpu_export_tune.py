"""On a GPU: launches as programs of their own, and other configurations of them."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import support

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()
HERE = Path(__file__).parent
KERNELS = ("strided", "sums", "follow", "reversed", "single", "clustered", "together")


def has(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Launches of a program that nvcc compiles, with PTX beside the code for the device."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    folder = tmp_path_factory.mktemp("export_kernels")
    code = ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]
    command = ["nvcc", *code, "-o", str(folder / "export_kernels"), str(HERE / "export_kernels.cu")]
    done = support.run(command, BARE)
    assert done.status == 0, done.stderr
    return record(folder / "run", ".", folder / "export_kernels")


def record(run: Path, kernel: str, *command: str | Path) -> Path:
    options = ("--replayable", "--max-per-kernel", "1", "--kernel", kernel)
    done = support.ttanalyze("record", *options, "-o", run, "--", *command)
    assert done.status == 0, done.stdout + done.stderr
    return run


def exported(run: Path, kernel: str, folder: Path) -> Path:
    """A launch's folder, built."""
    options = ("--kernel", kernel, "-o", folder, "--python", "--max-size", "1G")
    done = support.ttanalyze("export", run, *options)
    assert done.status == 0, done
    made = support.run(["make", "-s", "-C", folder, "CFLAGS=-O1 -Wall -Wextra -Werror"], BARE)
    assert made.status == 0, made.stderr
    return folder


def reproduce(folder: Path, *options: str) -> str:
    done = support.run([folder / "reproduce", *options], BARE)
    assert done.status == 0, done
    assert done.stdout.endswith(": as recorded\n")
    return done.stdout


def test_replay_repeats_all_launches(recorded: Path) -> None:
    """Clusters and cooperative launches among them."""
    done = support.ttanalyze("replay", recorded, "--kernel", ".", "--json")
    found = json.loads(done.stdout)["launches"]
    assert len(found) >= len(KERNELS)
    assert {one["status"] for one in found} == {"same"}, found


# ---- changed launches ----


def seq_of(run: Path, kernel: str) -> str:
    found = json.loads(support.ttanalyze("launches", run, "--kernel", kernel, "--json").stdout)
    return str(found["kernels"][0]["launches"][0]["seq"])


@pytest.mark.parametrize("kernel", KERNELS)
def test_launch_with_constants_and_fewer_registers_is_as_recorded(
    recorded: Path, kernel: str
) -> None:
    launch = seq_of(recorded, rf"^(_Z\d+)?{kernel}")
    changes = ("--specialize", "all", "--maxregs", "64")
    done = support.ttanalyze("replay", recorded, "--launch", launch, *changes, "--json")
    (found,) = json.loads(done.stdout)["launches"]
    assert done.status == 0 and found["status"] == "same", found


def test_other_sizes_bounds_and_code_are_measured(recorded: Path, tmp_path: Path) -> None:
    of = ("replay", recorded, "--launch", seq_of(recorded, "strided"))
    code = tmp_path / "kernel.ptx"
    assert support.ttanalyze(*of, "--dump-ir", code).status == 0
    for changes in (
        ("--block", "256"),
        ("--block", "64", "--launch-bounds", "64,8"),
        ("--code", code, "--grid", "132"),
    ):
        done = support.ttanalyze(*of, *changes, "--times", "5", "--json")
        (found,) = json.loads(done.stdout)["launches"]
        assert done.status == 0 and len(found["times"]["runs"]) == 5, found


# ---- export ----


@pytest.mark.parametrize("kernel", KERNELS)
def test_exported_nvcc_kernel_runs(recorded: Path, tmp_path: Path, kernel: str) -> None:
    folder = exported(recorded, rf"^(_Z\d+)?{kernel}", tmp_path / "out")
    assert reproduce(folder, "--times", "5").startswith("5 times: median ")


@pytest.mark.skipif(not has("cuda.bindings"), reason="needs cuda-python")
@pytest.mark.parametrize("kernel", ["strided", "clustered", "reversed"])
def test_exported_script_reproduces_the_launch(recorded: Path, tmp_path: Path, kernel: str) -> None:
    folder = exported(recorded, kernel, tmp_path / "out")
    done = support.run([sys.executable, folder / "reproduce.py", "--times", "3"], BARE)
    assert done.status == 0, done
    assert done.stdout.endswith(": as recorded\n")


@pytest.mark.skipif(not (has("torch") and has("triton")), reason="needs PyTorch and Triton")
def test_exported_framework_kernels_run(tmp_path: Path) -> None:
    names = ("layer_norm", "gated_add", "softmax")
    case = (sys.executable, HERE / "framework_kernels.py")
    run = record(tmp_path / "run", "|".join(names), *case)
    for name in names:
        folder = exported(run, name, tmp_path / name)
        assert reproduce(folder, "--times", "5").startswith("5 times: median ")


# ---- tune ----


def tune(run: Path, out: Path, *options: str | Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    done = support.ttanalyze("tune", run, "-o", out, "--json", *options)
    assert done.status == 0, done
    with out.open(newline="") as file:
        return json.loads(done.stdout), list(csv.DictReader(file))


def test_tune_verifies_other_sizes_of_a_grid_stride_kernel(recorded: Path, tmp_path: Path) -> None:
    grids = ("--blocks", "32,128,1024,4096", "--grids", "total,264")
    said, found = tune(recorded, tmp_path / "out.csv", "--kernel", "strided", *grids)
    assert len(found) == 8  # of which one is as recorded
    for row in found:
        fits = row["block"] != "4096"
        assert row["verified"] == ("yes" if fits else "no"), row
        assert bool(row["error"]) != fits
    assert said["gain"] > 1.1, said  # 64 blocks of 128 threads leave much of the GPU idle
    print(said["recorded"], said["best"], said["gain"])


def test_tune_rejects_other_block_sizes_of_a_fixed_kernel(recorded: Path, tmp_path: Path) -> None:
    options = ("--kernel", "sums", "--blocks", "128,256,512")
    said, found = tune(recorded, tmp_path / "out.csv", *options)
    assert {row["block"]: row["verified"] for row in found} == {
        "128": "no",
        "256": "yes",
        "512": "no",
    }
    assert said["best"]["block"] == [256, 1, 1]


SOURCE = """
extern "C" __global__ void strided(const float *p, float *q, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		q[i] = BODY;
}
"""


def test_tune_checks_other_code(recorded: Path, tmp_path: Path) -> None:
    bodies = {
        "good.cu": "fmaf(sqrtf(p[i]), 3.0f, 1.0f)",
        "wrong.cu": "p[i]",
        "fatal.cu": "*(float *)(p[i] > 9 ? 8ull : (unsigned long long)(p + i))",
    }
    named: list[str | Path] = []
    for name, body in bodies.items():
        (tmp_path / name).write_text(SOURCE.replace("BODY", body))
        named += ["--code", tmp_path / name]
    options = ("--maxregs", "16,64", "--dtype", "f32", "--tolerance", ",,4")
    _, found = tune(recorded, tmp_path / "out.csv", "--kernel", "strided", *named, *options)
    verified = {(row["code"].partition(":")[0], row["maxregs"]): row["verified"] for row in found}
    assert verified == {
        ("recorded", ""): "yes",
        ("recorded", "16"): "yes",
        ("recorded", "64"): "yes",
        ("good.cu", "16"): "yes",
        ("good.cu", "64"): "yes",
        ("wrong.cu", "16"): "no",
        ("wrong.cu", "64"): "no",
        ("fatal.cu", "16"): "no",
        ("fatal.cu", "64"): "no",
    }
    errors = [row["error"] for row in found if row["code"].startswith("fatal")]
    assert all("CUDA_ERROR_ILLEGAL_ADDRESS" in error for error in errors), errors
