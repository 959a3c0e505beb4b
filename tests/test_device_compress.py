"""Contents that the device coded: they read like any others, and damage is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import planes, support
from tests.rundir import copy_of
from ttanalyze._format import ffi
from ttanalyze.util import libraries

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
FIRST = 64  # offset of the first contents in a data file
BLOCK = 65536


def kinds() -> dict[str, bytes]:
    """Contents of each kind, by name; some end within a pair, a word or a block."""
    random = np.random.default_rng(5)
    normal = random.normal(size=2500).astype("f4")
    half = (normal.view("u4") >> 16).astype("u2")
    return {
        "f4": normal.tobytes(),
        "f8": random.normal(size=700).tobytes(),
        "bf16": half.tobytes(),
        "positive": np.where(half >> 15, 0, half).astype("u2").tobytes(),
        "bf16 as f4": (half.astype("u4") << 16).tobytes(),
        "indices": random.integers(0, 50000, 600).tobytes(),
        "mask": random.integers(0, 2, 3001).astype("u1").tobytes(),
        "noise": random.bytes(1000),
        "equal": b"\7" * (BLOCK + 513),
        "sparse": bytes(400) + b"\1" + bytes(500),
        **{f"tail {n}": bytes(range(n)) for n in (1, 3, 4, 9, 255)},
    }


PROGRAM = """
import ctypes, sys
from tests.test_device_compress import kinds
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
for data in kinds().values():
    p = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(len(data))) == 0
    assert driver.cuMemcpyHtoD_v2(p, data, ctypes.c_size_t(len(data))) == 0
assert driver.cuCtxSynchronize() == 0
sys.stdout.flush()
if sys.argv[1:] == ["kill"]:
    import os, pathlib, signal
    from tests.recordings import wait_for_epochs
    wait_for_epochs(pathlib.Path(os.environ["TT_OUT"]), 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def record(run: Path, *arguments: str, **options: str) -> int:
    environment = support.recording(SIM, run, compress="device", **options)
    environment["PYTHONPATH"] = str(support.ROOT)
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, env=environment, timeout=60).returncode


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("planes") / "run"
    assert record(run) == 0
    return run


def coded_blocks(run: Path) -> list[tuple[int, int, bytes, bytes]]:
    """Each region's first block: its length, the size of its code, the code and the contents."""
    found = []
    process = tt.open(run).processes[0]
    blocks = process.blocks(0, len(process.epochs))
    for region, data in enumerate(kinds().values()):
        record = blocks[(blocks["region"] == region) & (blocks["block"] == 0)][-1]
        raw = (process.path / f"data-{record['segment']:05d}.bin").read_bytes()
        at, length = int(record["offset"]), int(record["length"])
        size = int.from_bytes(raw[at : at + 4], "little")
        found.append((length, size, raw[at + 4 : at + 4 + size], data[:length]))
    return found


def assert_same(run: Path) -> None:
    opened = tt.open(run)
    last = len(opened.processes[0].epochs) - 1
    for region, (name, data) in enumerate(kinds().items()):
        assert opened.read(last, region).tobytes() == data, name


def test_contents_of_all_kinds_are_restored_exactly(recorded: Path) -> None:
    assert_same(recorded)
    assert tt.verify(tt.open(recorded), recorded / "manifest.json").same


def test_codes_are_small_and_never_longer_than_the_contents(recorded: Path) -> None:
    sizes = {
        name: (length, size)
        for name, (length, size, _, _) in zip(kinds(), coded_blocks(recorded), strict=True)
    }
    assert all(size <= length for length, size in sizes.values())
    ratios = {name: length / size for name, (length, size) in sizes.items()}
    assert ratios["noise"] == 1
    assert ratios["equal"] > 60
    assert ratios["bf16 as f4"] > 2
    assert ratios["bf16"] > 1.2
    assert ratios["positive"] > 1.2
    assert ratios["indices"] > 3
    assert ratios["mask"] > 6
    assert ratios["f4"] > 1.1


def test_program_on_the_format_page_decodes_it(recorded: Path) -> None:
    decode = planes.decoder()
    for length, _, code, contents in coded_blocks(recorded):
        assert decode(code, length) == contents


def test_device_codes_as_the_format_page_says(recorded: Path) -> None:
    """The width is free; with it, the code is determined."""
    for length, size, code, contents in coded_blocks(recorded):
        if size < length:
            assert code == planes.encode(contents, code[0])


@pytest.mark.parametrize("width", [1, 2, 4])
def test_toolkit_and_page_decode_every_width(width: int) -> None:
    decode = planes.decoder()
    for contents in kinds().values():
        code = planes.encode(contents[:BLOCK], width)
        if len(code) == len(contents[:BLOCK]):
            continue
        assert decode(code, len(contents[:BLOCK])) == contents[:BLOCK]
        assert unpack(code, len(contents[:BLOCK])) == contents[:BLOCK]


def unpack(code: bytes, length: int) -> bytes | str:
    out = ffi.new("uint8_t[]", length)
    why = libraries.toolkit().tt_unpack(ffi.from_buffer("uint8_t[]", code), len(code), out, length)
    return ffi.string(why).decode() if why != ffi.NULL else bytes(ffi.buffer(out))


@pytest.mark.parametrize("options", [{"deterministic": "1"}, {"ring_bytes": "256K"}])
def test_modes_that_drain_differently_store_the_same(
    options: dict[str, str], tmp_path: Path
) -> None:
    assert record(tmp_path / "run", **options) == 0
    assert_same(tmp_path / "run")


def test_killed_program_leaves_what_was_committed(tmp_path: Path) -> None:
    assert record(tmp_path / "run", "kill") == -9
    assert_same(tmp_path / "run")


# ---- damage ----


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\xff\xff\xff\xff", "size 4294967295, expected at most 10000"),
        (0, b"\2\0\0\0", "not bit planes: the code has no width"),
        (0, b"\5\0\0\0", "not bit planes: the heads of groups end after the code"),
        (4, b"\3", "not bit planes: the width of elements is not 1, 2 or 4"),
        (9, b"\x3f", "not bit planes: a group has more planes than its elements have bits"),
        (9, b"\1", "not bit planes: the size is not that of its planes"),
    ],
)
def test_damaged_codes_are_an_error(
    recorded: Path, tmp_path: Path, at: int, value: bytes, reason: str
) -> None:
    run = copy_of(recorded, tmp_path / "run")
    process = tt.open(run).processes[0]
    blocks = process.blocks(0, len(process.epochs))
    first = blocks[(blocks["region"] == 0) & (blocks["block"] == 0)][0]
    path = process.path / f"data-{first['segment']:05d}.bin"
    offset = int(first["offset"])
    raw = bytearray(path.read_bytes())
    raw[offset + at : offset + at + len(value)] = value
    path.write_bytes(raw)
    outcome = support.ttanalyze("verify", run)
    assert outcome.status == 2, outcome
    assert outcome.stderr.startswith(f"ttanalyze: {path}: offset {offset}: {reason}")
    assert outcome.stderr.count("\n") == 1


def test_changed_or_truncated_code_never_passes_as_contents() -> None:
    """Whichever byte it is: a reason, or other contents. No byte codes what is after the end."""
    for name, width in (("f4", 4), ("bf16", 2), ("mask", 1)):
        contents = kinds()[name][:2048]
        code = planes.encode(contents, width)
        for at in range(0, len(code), 7):
            changed = code[:at] + bytes([code[at] ^ 0x55]) + code[at + 1 :]
            assert unpack(changed, len(contents)) != contents
            assert isinstance(unpack(code[:at], len(contents)), str)
