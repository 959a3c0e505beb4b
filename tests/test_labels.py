"""Names of parts of allocations: what the recorder writes, what a reader makes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer, seal
from ttanalyze.format import layout
from ttanalyze.format.labels import Part
from ttanalyze.verbs.rewind import rewind, save

SIM = support.simulator_environment()

# Gives the recorder names and prints what they then ought to be.
HEAD = """\
import ctypes, json, os, random, signal, sys, threading, time
cu, me = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
u64 = ctypes.c_uint64
label = me.tt_label_range
label.argtypes = [u64, u64, ctypes.c_char_p, ctypes.c_char_p]
context = ctypes.c_void_p()
def check(result):
    assert result == 0, result
def sync():
    check(cu.cuMemsetD8_v2(p, ctypes.c_ubyte(random.randrange(256)), ctypes.c_size_t(1)))
    check(cu.cuCtxSynchronize())
def alloc(size):
    p = u64()
    check(cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)))
    return p
check(cu.cuInit(0))
check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cu.cuCtxSetCurrent(context))
p = alloc(1 << 20)
base = p.value
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def record(script: str, run: Path, status: int = 0, **options: str) -> str:
    """Runs a script under the recorder; gives what it prints."""
    # Newer versions of Python warn of forks where there are threads, as the driver has.
    quiet = ("-W", "ignore::DeprecationWarning")
    command = [sys.executable, *quiet, "-c", HEAD + script]
    outcome = support.run(command, support.recording(SIM, run, **options))
    assert (outcome.status, outcome.stderr) == (status, "")
    return outcome.stdout


def names(run: Path, epoch: int, region: int = 0) -> list[tuple[int, int, str, int]]:
    """offset, bytes, name and start of the parts of a region."""
    labels = tt.open(run).processes[0].labels
    parts = [labels.part(region, row) for row in labels.parts(region, epoch=epoch)]
    return [(part.offset, part.bytes, part.name, part.start) for part in parts]


# ---- what is written ----

FUZZ = """\
random.seed(7)
size, cells, out = 512, [None] * 512, []
for epoch in range(12):
    for _ in range(random.randrange(60)):
        a, n = random.randrange(size), random.choice([1, 3, 16, 64, 200])
        n = min(n, size - a)
        name = random.choice([None, "a", "b", "c", "longer.name.weight"])
        assert label(base + a, n, name and name.encode(), b"f32" if name == "a" else None) == 0
        for i in range(a, a + n):
            cells[i] = name and [name, i - a, "f32" if name == "a" else None]
    sync()
    out.append(list(cells))
print(json.dumps(out))
"""


@pytest.mark.native
def test_random_names_equal_a_model(run: Path) -> None:
    """Every byte has the name that was given to it last, as it was when the epoch was cut."""
    expected = json.loads(record(FUZZ, run))
    labels = tt.open(run).processes[0].labels
    for epoch, cells in enumerate(expected):
        for offset, cell in enumerate(cells):
            part = labels.at(0, offset, epoch=epoch)
            found = None if part is None else [part.name, part.within(offset), part.type]
            assert found == cell, (epoch, offset)
    # What is the same anyway was not written.
    assert 50 < len(labels) < 360


@pytest.mark.native
def test_repeated_names_are_not_written(run: Path) -> None:
    script = """\
for _ in range(100):
    for i in range(50):
        assert label(base + 4096 * i, 4096, b"layer%d.weight" % i, b"f32") == 0
    assert label(base + (1 << 19), 4096, None, None) == 0
    assert label(base + (1 << 19), 4096, b"", None) == 0
sync()
"""
    record(script, run)
    assert len(tt.open(run).labels) == 50


@pytest.mark.native
def test_names_span_allocations(run: Path) -> None:
    """A name for memory that was mapped in pieces applies to each piece."""
    script = """\
size, at, handle = 2 << 20, u64(), u64()
location = (ctypes.c_int * 2)(1, 0)
class Properties(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int),
                ("location", ctypes.c_int * 2), ("more", ctypes.c_uint64 * 2)]
class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_int * 2), ("flags", ctypes.c_int)]
properties, access = Properties(kind=1, location=location), Access(location, 3)
check(cu.cuMemAddressReserve(ctypes.byref(at), ctypes.c_size_t(2 * size), ctypes.c_size_t(0),
                             u64(0), u64(0)))
for i in range(2):
    check(cu.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties),
                         u64(0)))
    check(cu.cuMemMap(u64(at.value + i * size), ctypes.c_size_t(size), ctypes.c_size_t(0), handle,
                      u64(0)))
check(cu.cuMemSetAccess(at, ctypes.c_size_t(2 * size), ctypes.byref(access), ctypes.c_size_t(1)))
assert label(at.value + size - 1000, 3000, b"wide", b"f32") == 0
check(cu.cuMemcpyHtoD_v2(u64(at.value + size - 1000), (ctypes.c_ubyte * 3000)(*[7] * 3000),
                         ctypes.c_size_t(3000)))
sync()
"""
    record(script, run)
    opened = tt.open(run)
    assert names(run, 0, 1) == [((2 << 20) - 1000, 1000, "wide", 0)]
    assert names(run, 0, 2) == [(0, 2000, "wide", 1000)]
    found = rewind(opened, len(opened.epochs) - 1, ["wide"])
    save(found, run.parent / "wide.npy")
    assert (np.load(run.parent / "wide.npy").view("u1") == np.full(3000, 7)).all()


@pytest.mark.native
def test_invalid_names_are_refused(run: Path) -> None:
    script = """\
assert label(base - (1 << 33), 4096, b"nowhere", None) == -1
assert label(base, 0, b"nothing", None) == -1
assert label(2 ** 64 - 1, 2 ** 64 - 1, b"nothing", None) == -1
assert label(base + (1 << 20) - 16, 2 ** 63, b"end", None) == 0
sync()
"""
    record(script, run)
    assert names(run, 0) == [((1 << 20) - 16, 16, "end", 0)]


@pytest.mark.native
def test_freed_memory_loses_its_names(run: Path) -> None:
    script = """\
q = alloc(4096)
label(q.value, 100, b"old", None)
sync()
check(cu.cuMemFree_v2(q))
q = alloc(4096)
label(q.value + 50, 100, b"new", None)
sync()
"""
    record(script, run)
    assert (names(run, 0, 1), names(run, 1, 1)) == ([(0, 100, "old", 0)], [])
    assert names(run, 1, 2) == [(50, 100, "new", 0)]
    assert tt.open(run).tensors(1)["tensor"].tolist() == ["new"]


@pytest.mark.native
def test_names_from_many_threads(run: Path) -> None:
    """Each names places of its own, again and again, while epochs are cut."""
    script = """\
def work(which):
    for i in range(2000):
        for part in range(4):
            name = b"%d.%d.%d" % (which, part, i % 7)
            assert label(base + which * 4096 + part * 256, 256, name, None) == 0
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
for _ in range(10):
    sync()
for thread in threads:
    thread.join()
sync()
"""
    record(script, run)
    last = len(tt.open(run).epochs) - 1
    expected = [
        (4096 * which + 256 * part, 256, f"{which}.{part}.{1999 % 7}", 0)
        for which in range(8)
        for part in range(4)
    ]
    assert names(run, last) == expected


@pytest.mark.native
def test_names_survive_sigkill(run: Path) -> None:
    """All that was said before an epoch that was committed is there."""
    script = """\
label(base, 100, b"kept", None)
sync()
folder = os.environ["TT_OUT"] + "/p0/epochs.bin"
while os.path.getsize(folder) < 64 + 160:
    time.sleep(0.01)
label(base, 100, b"lost", None)
os.kill(os.getpid(), signal.SIGKILL)
"""
    record(script, run, status=-9)
    assert names(run, 0) == [(0, 100, "kept", 0)]


@pytest.mark.native
def test_naming_does_not_disturb_a_stream_capture(run: Path) -> None:
    """No call of the driver is made: in this mode most would end the capture."""
    script = """\
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
check(cu.cuStreamCreate(ctypes.byref(stream), 1))
check(cu.cuStreamBeginCapture_v2(stream, 0))
check(cu.cuMemsetD8Async(p, ctypes.c_ubyte(1), ctypes.c_size_t(16), stream))
assert label(base, 100, b"static", None) == 0
check(cu.cuStreamEndCapture(stream, ctypes.byref(graph)))
sync()
"""
    record(script, run)
    assert names(run, 0) == [(0, 100, "static", 0)]


@pytest.mark.native
def test_manifests_do_not_contain_names(tmp_path: Path) -> None:
    script = "random.seed(1)\nif {0}: label(base, 100, b'one', None)\nsync()\nsync()\n"
    texts = []
    for i in range(3):
        record(script.format(i % 2), tmp_path / str(i), deterministic="1")
        texts.append((tmp_path / str(i) / "manifest.json").read_bytes())
    assert texts[0] == texts[1] == texts[2]
    assert not (tmp_path / "0" / "p0" / "labels.bin").exists()
    assert tt.open(tmp_path / "1").manifest() == tt.open(tmp_path / "0").manifest()


@pytest.mark.native
def test_naming_in_a_child_or_without_a_recorder(run: Path) -> None:
    script = """\
label(base, 100, b"parent", None)
if os.fork() == 0:
    os._exit(0 if label(base, 100, b"child", None) == -1 else 1)
assert os.wait()[1] == 0
sync()
"""
    record(script, run)
    assert names(run, 0) == [(0, 100, "parent", 0)]
    environment = support.recording(SIM, run)
    del environment["TT_OUT"]
    bare = "assert label(base, 100, b'name', None) == -1\n"
    outcome = support.run([sys.executable, "-c", HEAD + bare], environment)
    assert (outcome.status, outcome.stderr) == (0, "")


# ---- what is read ----


@pytest.fixture
def named(run_path: Path) -> Writer:
    """Two regions, three epochs, names that come and go."""
    w = Writer(run_path)
    w.born(0, bytes(200_000))
    w.born(1, bytes(4096), label="whole")
    w.name(0, 512, 100_000, "layers.0.weight", "f32")
    w.epoch("sync", "full")
    w.name(0, 1024, 512, "scratch")
    w.name(0, 150_000, 10_000, "layers.0:output", "bf16")
    w.name(1, 0, 4096, "layers.1.weight", "i64")
    w.epoch("sync")
    w.name(0, 1024, 512, None)
    w.died(1)
    w.epoch("sync")
    w.close()
    return w


def test_names_per_epoch(named: Writer, run_path: Path) -> None:
    whole = (512, 100_000, "layers.0.weight", 0)
    assert names(run_path, 0) == [whole]
    assert names(run_path, 1) == [
        (512, 512, "layers.0.weight", 0),
        (1024, 512, "scratch", 0),
        (1536, 98_976, "layers.0.weight", 1024),
        (150_000, 10_000, "layers.0:output", 0),
    ]
    assert [name for _, _, name, _ in names(run_path, 2)] == [
        *("layers.0.weight", "layers.0.weight", "layers.0:output")
    ]
    assert (names(run_path, 1, 1), names(run_path, 2, 1)) == (
        [(0, 4096, "layers.1.weight", 0)],
        [],
    )


def test_name_of_a_byte(named: Writer, run_path: Path) -> None:
    labels = tt.open(run_path).processes[0].labels
    part = labels.at(0, 2000, epoch=1)
    assert part == Part(0, 1536, 98_976, "layers.0.weight", 1024, "f32")
    assert part.within(2000) == 2000 - 512
    assert labels.at(0, 1024, epoch=2) is None
    assert labels.at(0, 511, epoch=0) is None and labels.at(0, 100_512, epoch=0) is None
    assert labels.at(9, 0) is None and labels.at(1, 0) is None  # it died
    name = labels.records["seq"][1]
    before, after = (labels.at(0, 1100, seq=int(name) - 1), labels.at(0, 1100, seq=int(name)))
    assert before is not None and before.name == "layers.0.weight"
    assert after is not None and after.name == "scratch"


def test_ranges_of_a_name(named: Writer, run_path: Path) -> None:
    labels = tt.open(run_path).processes[0].labels
    assert [part.offset for part in labels.named("layers.0.weight", 1)] == [512, 1536]
    assert labels.named("scratch") == [Part(0, 1024, 512, "scratch", 0, None)]  # as of epoch 1
    assert labels.named("scratch", 2) == labels.named("scratch", 0) == []
    assert labels.named("layers.1.weight", 2) == labels.named("nothing") == []


def test_name_tables(named: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    assert run.labels["tensor"].isna().tolist() == [False] * 4 + [True]
    assert run.labels["epoch"].tolist() == [0, 1, 1, 1, 2]
    tensors = run.tensors(1)
    assert tensors["tensor"].tolist()[-2:] == ["layers.0:output", "layers.1.weight"]
    assert tensors["type"].tolist()[-2:] == ["bf16", "i64"]
    base = int(run.regions["base"].iloc[0])
    assert (tensors["address"] - base)[:4].tolist() == [512, 1024, 1536, 150_000]
    with pytest.raises(tt.Error, match="no epoch 3"):
        run.tensors(3)
    (run_path / "p0" / "labels.bin").unlink()
    empty = tt.open(run_path)
    assert len(empty.labels) == len(empty.tensors(1)) == 0
    assert empty.labels.columns.tolist() == run.labels.columns.tolist()


def test_million_names(run_path: Path) -> None:
    """As a long training gives them: the same few, again and again."""
    w = Writer(run_path)
    w.born(0, bytes(1 << 20))
    w.epoch("sync", "full")
    w.close()
    count = 300_000
    records = np.zeros(count, layout.LABEL)
    random = np.random.default_rng(3)
    records["offset"] = random.integers(0, 1000, count) * 1024
    records["size"] = 512 << random.integers(0, 2, count)
    records["label"] = random.choice([w.string(f"t{i}") for i in range(100)], count)
    records["type"] = layout.NO_ID
    records["seq"] = np.arange(1, count + 1)
    w.append("labels.bin", seal(records))
    labels = tt.open(run_path).processes[0].labels
    expected = np.full(1 << 20, layout.NO_ID, "u4")
    for record in records[-20_000:]:
        expected[record["offset"] : record["offset"] + record["size"]] = record["label"]
    found = np.full(1 << 20, layout.NO_ID, "u4")
    for part in labels.parts(0, epoch=0):
        found[part["offset"] : part["offset"] + part["bytes"]] = part["label"]
    assert (found == expected).all()
