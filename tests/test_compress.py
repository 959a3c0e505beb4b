"""Runs whose contents are compressed read like any other; what is wrong with them is told."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import compare, large_contents
from tests.rundir import reseal_header

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
SIZE = 100_000  # of the region that ZEROS fills, and empties in a second epoch
FIRST = 64  # offset of the first contents in a data file

ZEROS = f"""
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, p = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t({SIZE})) == 0
for value in (7, 0):
    assert driver.cuMemsetD8_v2(p, ctypes.c_ubyte(value), ctypes.c_size_t({SIZE})) == 0
    assert driver.cuCtxSynchronize() == 0
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.fixture
def zeros(run: Path) -> Path:
    """A compressed run of two epochs; its one region holds one value throughout."""
    environment = support.recording(SIM, run, compress="1")
    outcome = support.run([sys.executable, "-c", ZEROS], environment)
    assert (outcome.status, outcome.stderr) == (0, "")
    return run


@pytest.mark.parametrize("options", [{}, {"deterministic": "1"}, {"ring_bytes": "2M"}])
def test_contents_are_restored_exactly(options: dict[str, str], built: Path, run: Path) -> None:
    """Noise, which does not get smaller, and the same a second time, which is not stored again."""
    command = [str(support.build_program("recorder_large_epochs", built))]
    bare = support.run(command, SIM)
    assert support.run(command, support.recording(SIM, run, compress="1", **options)) == bare
    opened = tt.open(run)
    assert tt.verify(opened, run / "manifest.json").same
    for epoch, expected in enumerate(large_contents()):
        assert np.array_equal(opened.read(epoch, 0, dtype="u8"), expected)


def test_repeated_data_is_stored_compactly(zeros: Path) -> None:
    opened = tt.open(zeros)
    assert set(opened.read(0, 0).tolist()) == {7}
    assert set(opened.read(1, 0).tolist()) == {0}
    assert opened.epochs["bytes_changed"].tolist()[:2] == [SIZE, SIZE]
    assert 0 < opened.epochs["bytes_stored"].sum() < 1000
    assert (zeros / "p0" / "data-00000.bin").stat().st_size < 1000
    assert opened.processes[0].info["options"]["TT_COMPRESS"] == "1"


def test_compression_does_not_change_the_manifest(zeros: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    support.run([sys.executable, "-c", ZEROS], support.recording(SIM, plain))
    assert tt.verify(tt.open(zeros), plain / "manifest.json", against=tt.open(plain)).same


def test_missing_zstd_stores_contents_uncompressed(run: Path, tmp_path: Path) -> None:
    """A file that is no library stands in its place."""
    (tmp_path / "libzstd.so.1").write_text("")
    environment = support.recording(SIM, run, compress="3")
    environment["LD_LIBRARY_PATH"] = f"{tmp_path}:{environment['LD_LIBRARY_PATH']}"
    outcome = support.run([sys.executable, "-c", ZEROS], environment)
    warning = "libzstd.so.1 not found: contents are stored uncompressed"
    assert outcome.status == 0
    assert outcome.stderr.count("\n") <= 1
    opened = tt.open(run)
    assert opened.warnings == [warning]
    assert set(opened.read(0, 0).tolist()) == {7}
    assert (run / "p0" / "data-00000.bin").stat().st_size > SIZE


@pytest.mark.parametrize("level", ["20", "-1", "fast", "1.5", "devices"])
def test_invalid_levels_are_refused(level: str, built: Path, run: Path) -> None:
    command = support.command("loop_progress", built)
    bare = support.run(command, SIM)
    recorded = support.run(command, support.recording(SIM, run, compress=level))
    compare("loop_progress", bare, recorded)
    assert f"TT_COMPRESS={level}: " in recorded.stderr
    outcome = support.ttanalyze("record", "--sim", "--compress", level, "--", "true")
    assert outcome.status == 2
    assert "expected off, device, or a whole number, at most 19" in outcome.stderr


# ---- damage ----


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\xff\xff\xff\xff", "size 4294967295, expected at most 65536"),
        (0, b"\x00\x00\x00\x00", "not a zstd frame: "),
        (4, b"RUN!", "not a zstd frame: "),
        (9, b"\x42", "not a zstd frame"),
    ],
)
def test_damaged_compressed_contents_are_an_error(
    zeros: Path, at: int, value: bytes, reason: str
) -> None:
    path = zeros / "p0" / "data-00000.bin"
    raw = bytearray(path.read_bytes())
    raw[FIRST + at : FIRST + at + len(value)] = value
    path.write_bytes(raw)
    outcome = support.ttanalyze("verify", zeros)
    assert outcome.status == 2, outcome
    assert outcome.stderr.startswith(f"ttanalyze: {path}: offset {FIRST}: {reason}")
    assert outcome.stderr.count("\n") == 1
    with pytest.raises(tt.FormatError, match=reason):
        tt.open(zeros).read(0, 0)


def test_changed_byte_in_a_frame_never_passes_as_contents(zeros: Path) -> None:
    """Whichever byte it is: an error, or contents that do not have their digest."""
    path = zeros / "p0" / "data-00000.bin"
    good = path.read_bytes()
    for at in range(FIRST, len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        outcomes = set()
        for epoch, value in enumerate((7, 0)):
            try:
                outcomes.add(set(tt.open(zeros).read(epoch, 0).tolist()) == {value})
            except tt.FormatError:
                continue
        assert outcomes <= {True}


def test_unknown_encoding_is_an_error(zeros: Path) -> None:
    path = zeros / "p0" / "data-00000.bin"
    raw = bytearray(path.read_bytes())
    raw[28:32] = (3).to_bytes(4, "little")
    path.write_bytes(raw)
    reseal_header(path)
    outcome = support.ttanalyze("info", zeros)
    assert outcome.stderr == f"ttanalyze: {path}: offset 28: unknown encoding 3\n"
