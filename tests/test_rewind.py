"""rewind: memory as it was, in every format, and what its summary says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

import ttanalyze as tt
from tests import rundir, support
from tests.rundir import Writer, busy_run
from tests.support import Cli
from ttanalyze.format import contents, layout
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.verbs import rewind

EPOCH = 40


@pytest.fixture
def busy(run_path: Path) -> Writer:
    return busy_run(run_path, 1, epochs=50)


def tensors(path: Path) -> dict[str, dict[str, Any]]:
    """What the library of the format itself reads."""
    found = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    return {name: dict(tensor) for name, tensor in found}


def name_of(region: int) -> str:
    return f"r{region}" if region < 6 and region % 2 else f"region-{region}"


def test_all_regions_are_written_to_one_file(cli: Cli, busy: Writer, tmp_path: Path) -> None:
    wanted = {name_of(r): memory for r, memory in busy.history[EPOCH].items()}
    assert len(wanted) >= 6
    for name in ("all.npz", "all.safetensors"):
        outcome = cli("rewind", busy.run, "--epoch", EPOCH, "-o", tmp_path / name)
        assert (outcome.stdout, outcome.status) == ("", 0)
    with np.load(tmp_path / "all.npz") as arrays:
        assert {name: arrays[name].tobytes() for name in arrays} == wanted
    found = tensors(tmp_path / "all.safetensors")
    assert {name: bytes(t["data"]) for name, t in found.items()} == wanted
    assert all(t["dtype"] == "U8" for t in found.values())
    head = (tmp_path / "all.safetensors").read_bytes()
    assert int.from_bytes(head[:8], "little") % 8 == 0
    assert [p.name for p in tmp_path.glob(".*")] == [], "no drafts are left"


@pytest.mark.parametrize("region", ["0", "r1", "5"])
def test_one_region_is_written(cli: Cli, busy: Writer, tmp_path: Path, region: str) -> None:
    memory = busy.history[EPOCH][int(region.removeprefix("r"))]
    for name in ("one.bin", "one.npy"):
        out = tmp_path / name
        assert cli("rewind", busy.run, "-e", EPOCH, "-r", region, "-o", out).status == 0
    assert (tmp_path / "one.bin").read_bytes() == memory
    assert np.load(tmp_path / "one.npy").tobytes() == memory
    assert np.load(tmp_path / "one.npy", mmap_mode="r").shape == (len(memory),)


def typed_run(path: Path, dtype: str = "f4") -> Writer:
    w = Writer(path)
    w.born(0, np.arange(24, dtype=dtype).tobytes(), label="x")
    w.born(1, bytes(range(6)), label="y")
    w.epoch("sync", "full")
    w.close()
    return w


@pytest.mark.parametrize(
    ("name", "numpy", "safe"),
    [
        ("f32", "<f4", "F32"),
        ("f64", "<f8", "F64"),
        ("f16", "<f2", "F16"),
        ("bf16", "<u2", "BF16"),
        ("e4m3", "|u1", "F8_E4M3"),
        ("e5m2", "|u1", "F8_E5M2"),
        ("i8", "|i1", "I8"),
        ("u64", "<u8", "U64"),
        ("bool", "|b1", "BOOL"),
        ("c64", "<c8", "C64"),
    ],
)
def test_dtype_is_applied(
    cli: Cli, run_path: Path, tmp_path: Path, name: str, numpy: str, safe: str
) -> None:
    typed_run(run_path)
    memory = np.arange(24, dtype="f4").tobytes()
    for out in ("x.npy", "x.safetensors"):
        command = ("rewind", run_path, "-e", 0, "-r", "x", "--dtype", name, "--shape", "2,-1")
        assert cli(*command, "-o", tmp_path / out).status == 0
    array = np.load(tmp_path / "x.npy")
    count = 96 // array.itemsize
    assert (array.dtype.str, array.shape) == (numpy, (2, count // 2))
    assert array.tobytes() == memory
    tensor = tensors(tmp_path / "x.safetensors")["x"]
    assert (tensor["dtype"], tensor["shape"]) == (safe, [2, count // 2])
    assert bytes(tensor["data"]) == memory


def test_dtype_and_shape_per_region(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    typed_run(run_path)
    out = tmp_path / "all.safetensors"
    options = ["--dtype", "u8", "--dtype", "x=f32", "--shape", "0=2x3x4", "--dtype", "1=i16"]
    outcome = cli("rewind", run_path, "-e", 0, "-o", out, "--json", *options)
    assert json.loads(outcome.stdout) == {
        "run": str(run_path),
        "process": 0,
        "epoch": 0,
        "format": "safetensors",
        "file": str(out),
        "bytes": 102,
        "regions": [
            {"region": 0, "name": "x", "dtype": "f32", "shape": [2, 3, 4], "bytes": 96},
            {"region": 1, "name": "y", "dtype": "i16", "shape": [3], "bytes": 6},
        ],
        "left_out": [],
        "unread": [],
    }
    found = tensors(out)
    assert {n: (t["dtype"], t["shape"]) for n, t in found.items()} == {
        "x": ("F32", [2, 3, 4]),
        "y": ("I16", [3]),
    }


def test_items_are_aligned(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    """Tensors of larger items come first, whatever the order of the regions."""
    w = Writer(run_path)
    for region, size in enumerate((3, 8, 6, 16)):
        w.born(region, bytes([region]) * size)
    w.epoch("sync", "full")
    w.close()
    out = tmp_path / "all.safetensors"
    options = ["--dtype", "u8", "--dtype", "1=f64", "--dtype", "2=f16", "--dtype", "3=f32"]
    assert cli("rewind", run_path, "-e", 0, "-o", out, *options).status == 0
    raw = out.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + size])
    assert head.pop("__metadata__") == {"epoch": "0"}
    for tensor in head.values():
        item = {"U8": 1, "F16": 2, "F32": 4, "F64": 8}[tensor["dtype"]]
        assert tensor["data_offsets"][0] % item == 0
    data = {n: set(raw[8 + size :][slice(*t["data_offsets"])]) for n, t in head.items()}
    assert data == {f"region-{r}": {r} for r in range(4)}


def test_equal_names_stay_distinct(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    w = Writer(run_path)
    labels = ["w", "w", "region-3", None, "__metadata__", "../up\n", "w-0", 'quote"d']
    for region, label in enumerate(labels):
        w.born(region, bytes([region]), label=label)
    w.epoch("sync", "full")
    w.close()
    for name in ("all.npz", "all.safetensors"):
        assert cli("rewind", run_path, "-e", 0, "-o", tmp_path / name).status == 0
    found = {n: bytes(t["data"])[0] for n, t in tensors(tmp_path / "all.safetensors").items()}
    assert sorted(found.values()) == list(range(len(labels)))
    assert found["region-3"] in (2, 3)
    with zipfile.ZipFile(tmp_path / "all.npz") as archive:
        assert archive.testzip() is None
        assert not any("/" in entry or "\n" in entry for entry in archive.namelist())
    with np.load(tmp_path / "all.npz") as arrays:
        assert {name: int(arrays[name][0]) for name in arrays} == found


def test_equal_states_give_equal_files(cli: Cli, busy: Writer, tmp_path: Path) -> None:
    for name in ("npz", "safetensors"):
        a, b = (tmp_path / f"{i}.{name}" for i in range(2))
        assert cli("rewind", busy.run, "-e", EPOCH, "-o", a).status == 0
        assert cli("rewind", busy.run, "-e", EPOCH, "-o", b).status == 0
        assert a.read_bytes() == b.read_bytes()


def test_output_file_is_replaced_atomically(cli: Cli, busy: Writer, tmp_path: Path) -> None:
    out = tmp_path / "old.bin"
    out.write_bytes(b"old")
    path = busy.path / "data-00000.bin"
    raw = bytearray(path.read_bytes())
    for at in range(100, len(raw), BLOCK_SIZE // 2):
        raw[at] ^= 1
    path.write_bytes(raw)
    for name in ("old.bin", "old.npy"):
        outcome = cli("rewind", busy.run, "-e", EPOCH, "-r", "5", "-o", tmp_path / name)
        assert outcome.status == 2
        assert "does not match its digest" in outcome.stderr
        assert outcome.stderr.count("\n") == 1
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir() if p != busy.run) == ["old.bin"]


def test_output_to_pipes_and_devices(busy: Writer) -> None:
    command = [sys.executable, "-m", "ttanalyze", "rewind", str(busy.run), "-e", str(EPOCH)]
    command += ["-r", "5", "--format"]
    for name, rest in (("bin", 0), ("npy", 128)):
        done = subprocess.run(
            [*command, name, "-o", "/dev/stdout"], cwd=support.ROOT, capture_output=True, check=True
        )
        assert done.stdout[rest:] == busy.history[EPOCH][5]
    full = subprocess.run(
        [*command, "bin", "-o", "/dev/full"], cwd=support.ROOT, capture_output=True, text=True
    )
    assert full.returncode == 2
    assert full.stderr == "ttanalyze: /dev/full: No space left on device\n"
    shut = subprocess.run(
        f"{' '.join(command)} bin -o /dev/stdout | true",
        shell=True,
        cwd=support.ROOT,
        capture_output=True,
        text=True,
    )
    assert shut.stderr == ""


def test_interrupt_leaves_no_partial_file(busy: Writer, tmp_path: Path) -> None:
    """Ctrl-C while a file is written: no half of it, no draft, status 130."""
    program = (
        "import signal, sys, time\n"
        "from ttanalyze.format import contents\n"
        "from ttanalyze.cli import main\n"
        "asked = []\n"
        "def interrupt(*given):\n"
        "    asked.append(given)\n"
        "    signal.default_int_handler(*given)\n"
        "real = contents.DataFiles.pieces\n"
        "def slow(self, records):\n"
        "    for piece in real(self, records):\n"
        "        print('piece', flush=True)\n"
        "        while not asked:\n"
        "            time.sleep(0.01)\n"
        "        yield piece\n"
        "signal.signal(signal.SIGINT, interrupt)\n"
        "contents.DataFiles.pieces = slow\n"
        "contents.READ_BLOCKS = 1\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    for name in ("all.npz", "all.safetensors"):
        command = ["rewind", str(busy.run), "-e", str(EPOCH), "-o", str(out / name)]
        child = subprocess.Popen(
            [sys.executable, "-c", program, *command], cwd=support.ROOT, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"piece\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        child.stdout.close()
        assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-e", "0"], "nothing to write; give -o FILE or --summary"),
        (["-e", "0", "-o", "x.txt"], "x.txt: expected .npy, .npz, .bin or .safetensors"),
        (["-e", "0", "-o", "x.npy", "--format", "hdf5"], "no format 'hdf5'"),
        (["-e", "0", "-o", "x.npy"], "x.npy: .npy holds one region, not 2 regions"),
        (["-e", "0", "-o", "x.bin"], "x.bin: .bin holds one region, not 2 regions"),
        (["-e", "9", "-o", "x.npz"], "no epoch 9: process 0 has epochs 0 to 4"),
        (["-e", "-1", "-o", "x.npz"], "no epoch -1"),
        (["-e", "0", "-r", "77", "--summary"], "no region or tensor '77' in process 0"),
        (["-e", "0", "-r", "nobody", "--summary"], "no region or tensor 'nobody' in process 0"),
        (["-e", "0", "-r", "2", "--summary"], "region 2 is not captured"),
        (["-e", "4", "-r", "weights", "--summary"], "region 0 does not exist in epoch 4"),
        (["-e", "1", "-r", "7", "--summary"], "region 7 was not captured up to epoch 1"),
        (["-e", "0", "--process", "3", "--summary"], "no process 3 (there are: 0)"),
        (["-e", "0", "--dtype", "f31", "--summary"], "no type 'f31'"),
        (["-e", "0", "--dtype", "f64", "--summary"], "196708 bytes don't divide into f64 items"),
        (["-e", "0", "--dtype", "u8", "--dtype", "i8", "--summary"], "u8 is given for all"),
        (["-e", "0", "--dtype", "0=u8", "--dtype", "weights=i8", "--summary"], "u8 is given for"),
        (["-e", "0", "--dtype", "8=u8", "--summary"], "region 8 is not selected"),
        (["-e", "0", "--shape", "3", "--summary"], "--shape 3: several regions are selected"),
        (["-e", "0", "-r", "0", "--shape", "7,7", "--summary"], "region 0 has 196,708 items"),
        (["-e", "0", "-r", "0", "--shape", "-1,-1", "--summary"], "region 0 has 196,708 items"),
        (["-e", "0", "-r", "0", "--shape", "-1,0", "--summary"], "region 0 has 196,708 items"),
        (
            ["-e", "0", "-r", "0", "--shape", "a", "--summary"],
            "--shape a: expected numbers such as 64,128",
        ),
        (["-e", "0", "-r", "0", "--dtype", "c128", "-o", "x.safetensors"], "196708 bytes don't"),
        (["-e", "0", "-o", "no/such/x.npz"], "x.npz: directory"),
        (["-o", "x.npz"], "Missing option"),
    ],
)
def test_invalid_arguments_are_errors(
    cli: Cli,
    small: Writer,
    run_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("rewind", run_path, *options)
    assert outcome.status == 2
    assert outcome.stdout == ""
    assert reason in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_safetensors_has_no_complex128(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    typed_run(run_path, "f8")
    out = tmp_path / "x.safetensors"
    outcome = cli("rewind", run_path, "-e", 0, "-r", "x", "--dtype", "c128", "-o", out)
    assert outcome.stderr == "ttanalyze: region 0: safetensors has no type for c128\n"
    assert not out.exists()


def test_uncaptured_regions_are_skipped(cli: Cli, small: Writer, run_path: Path) -> None:
    """Region 7 lives in epoch 1, but its context's first epoch is the second."""
    outcome = cli("rewind", run_path, "-e", 1, "--summary")
    assert outcome.status == 0
    said = "ttanalyze: 1 region left out, which no epoch had captured by then: 7\n"
    assert outcome.stderr == said
    assert "left out" not in outcome.stdout
    assert json.loads(cli("rewind", run_path, "-e", 1, "--summary", "--json").stdout)[
        "left_out"
    ] == [7]


def test_guarded_regions_may_be_uncaptured(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(100))
    w.born(1, bytes(100), captured=False)
    rundir.edit(w.path / "regions.bin", 1, flags=layout.constant("TT_REGIONF_GUARDED"))
    rundir.reseal_records(w.path / "regions.bin")
    w.epoch("sync", "full")
    w.close()
    found = rewind.rewind(tt.open(run_path), 0)
    assert ([part.region for part in found.parts], found.left_out) == ([0], [])


def test_run_without_regions(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    w = Writer(run_path)
    w.epoch("sync", "full")
    w.close()
    out = tmp_path / "none.safetensors"
    assert cli("rewind", run_path, "-e", 0, "-o", out).status == 0
    assert tensors(out) == {}
    assert cli("rewind", run_path, "-e", 0, "--summary").status == 0


# ---- summaries ----


def test_summary_lists_the_regions(cli: Cli, run_path: Path) -> None:
    values = np.linspace(-1, 3, 40_000, dtype="f4")
    values[:7] = np.nan
    values[7:10] = np.inf
    values[10:300] = 0
    w = Writer(run_path)
    w.born(0, values.tobytes(), label="activations")
    w.born(1, bytes(range(200)))
    w.epoch("sync", "full")
    w.close()
    finite = values[np.isfinite(values)].astype("f8")
    command = ("rewind", run_path, "-e", 0, "--summary", "--dtype", "0=f32")
    found = json.loads(cli(*command, "--json").stdout)["regions"]
    assert [r["name"] for r in found] == ["activations", "region-1"]
    first = found[0]
    assert (first["nan"], first["inf"], first["zero"], first["elements"]) == (7, 3, 290, 40_000)
    assert (first["min"], first["max"]) == (finite.min(), 3.0)
    assert first["mean"] == pytest.approx(float(finite.mean()))
    assert sum(first["counts"]) == len(finite)
    assert len(first["edges"]) == len(first["counts"]) + 1
    assert (found[1]["min"], found[1]["max"], found[1]["mean"]) == (0, 199, 99.5)
    shown = cli(*command).stdout.splitlines()
    assert shown[0].split()[:4] == ["region", "name", "type", "items"]
    assert shown[1].split()[:6] == ["0", "activations", "f32", "40,000", f"{finite.min():.6g}", "3"]
    assert len(shown) == 3
    alone = cli(*command, "-r", "0").stdout
    assert alone.count("█") > 40
    assert f"\n{finite.min():.6g} " in alone


def test_summary_and_file_at_once(cli: Cli, busy: Writer, tmp_path: Path) -> None:
    out = tmp_path / "x.bin"
    outcome = cli("rewind", busy.run, "-e", EPOCH, "-r", "0", "--summary", "-o", out)
    assert outcome.status == 0
    assert "region-0" in outcome.stdout
    assert out.read_bytes() == busy.history[EPOCH][0]


# ---- from Python, of real runs, of large ones ----


def test_rewind_from_python(busy: Writer, tmp_path: Path) -> None:
    run = tt.open(busy.run)
    found = rewind.rewind(run, EPOCH, [0, "r1"], dtypes=["1=u8"])
    assert [part.name for part in found.parts] == ["region-0", "r1"]
    assert rewind.save(found, tmp_path / "some.npz") == "npz"
    with np.load(tmp_path / "some.npz") as arrays:
        assert arrays["r1"].tobytes() == busy.history[EPOCH][1]
    done: list[tuple[int, int]] = []
    rewind.save(found, tmp_path / "x", "safetensors", lambda *at: done.append(at))
    assert done[-1] == (found.size, found.size)
    assert [s.elements for s in rewind.summaries(found)] == [part.size for part in found.parts]


@pytest.mark.long
def test_memory_is_bounded(run_path: Path, tmp_path: Path) -> None:
    """A region larger than the memory that may be used goes to every format."""
    w = Writer(run_path)
    w.born(0, np.random.default_rng(1).bytes(96 << 20), label="large")
    w.epoch("sync", "full")
    w.close()
    program = (
        "import resource, sys\n"
        "from ttanalyze.cli import main\n"
        "import ttanalyze.verbs.rewind\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "most = pages * resource.getpagesize() + (88 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    for name in ("x.npy", "x.npz", "x.safetensors"):
        command = ["rewind", str(run_path), "-e", "0", "-o", str(tmp_path / name), "--summary"]
        done = subprocess.run(
            [sys.executable, "-c", program, *command, "--dtype", "f32"],
            cwd=support.ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).stat().st_size > 96 << 20
        (tmp_path / name).unlink()


def test_many_threads_restore_many_blocks(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of several threads come together, wherever contents lie and what is stored once."""
    monkeypatch.setattr(contents, "SHARE_BLOCKS", 3)
    monkeypatch.setattr(contents, "READ_BLOCKS", 2)
    random = np.random.default_rng(2)
    w = Writer(run_path)
    memory = random.bytes(20 * BLOCK_SIZE) + bytes(20 * BLOCK_SIZE) + random.bytes(77)
    w.born(0, memory)
    w.epoch("sync", "full")
    for _ in range(10):
        w.write(0, int(random.integers(0, len(memory) - 100)), random.bytes(100))
        w.epoch()
    w.close()
    found = rewind.rewind(tt.open(run_path), 10)
    for name in ("x.bin", "x.npy", "x.npz", "x.safetensors"):
        rewind.save(found, tmp_path / name)
    wanted = w.history[10][0]
    assert (tmp_path / "x.bin").read_bytes() == wanted
    assert np.load(tmp_path / "x.npy").tobytes() == wanted
    assert bytes(tensors(tmp_path / "x.safetensors")["region-0"]["data"]) == wanted
    rundir.edit(w.path / "blocks.bin", 5, digest=1)
    with pytest.raises(tt.FormatError):
        rewind.save(rewind.rewind(tt.open(run_path), 10), tmp_path / "y.bin")
    assert not (tmp_path / "y.bin").exists()


def test_recorded_training_weights_are_restored(
    cli: Cli, built: Path, run_path: Path, tmp_path: Path
) -> None:
    """What the example's training leaves, as numpy sees it."""
    command = support.command("example-training", built)
    environment = support.recording(support.simulator_environment(), run_path)
    assert support.run(command, environment).status == 0
    run = tt.open(run_path)
    last = len(run.epochs) - 1
    out = tmp_path / "all.npz"
    assert cli("rewind", run_path, "-e", last, "--dtype", "f32", "-o", out).status == 0
    alive = run.regions[(run.regions["born"] <= last) & ~(run.regions["died"] <= last)]
    with np.load(out) as arrays:
        assert len(arrays.files) == len(alive)
        for region in alive["region"]:
            whole = run.read(last, int(region), dtype="f4")
            assert np.array_equal(arrays[f"region-{region}"], whole)
            assert np.isfinite(whole).all()
