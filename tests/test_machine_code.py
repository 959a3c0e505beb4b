"""Machine code that a program loads while its kernels are to be late: what the driver is given.

The driver is one that loads machine code and runs none (recorder_machine_code_lib).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import ttanalyze as tt
from tests import support
from tests.test_kernel_checksums import entry, fatbin, lz4
from tests.test_sass_patch import Elf, check_detours
from ttanalyze.code import fatbin as fatbins

pytestmark = pytest.mark.native

CUBIN = Path(__file__).parent / "data" / "sass" / "patch_90a.cubin"
ANOTHER, OWN = "another image, CUDA_SUCCESS", "its own image, CUDA_SUCCESS"
REFUSED = "another image, CUDA_ERROR_INVALID_IMAGE"
Load = Callable[..., list[str]]


@pytest.fixture
def load(built: Path, tmp_path: Path) -> Load:
    """Loads images, recorded; gives what is said. tmp_path/taken has what the driver was given."""
    program = support.build_program("recorder_machine_code", built)
    taken = tmp_path / "taken"
    taken.mkdir()

    def run(*images: str, delay: int = 2000, refuses: bool = False) -> list[str]:
        options = {"epoch": "none", "delay": str(delay), "delay_seed": "3"}
        environment = support.recording(
            support.simulator_environment(TAKEN=str(taken)), tmp_path / "run", **options
        )
        done = support.run([program, *images], environment | ({"REFUSES": "1"} if refuses else {}))
        assert done.status == 0, done
        return (done.stdout + done.stderr).splitlines()

    return run


def taken(folder: Path) -> list[bytes]:
    """In the order in which the driver was given them."""
    paths = sorted((folder / "taken").iterdir(), key=lambda path: int(path.name))
    return [path.read_bytes() for path in paths]


def in_fatbin(path: Path) -> Path:
    """The cubin in each form that there is, and code that no device here takes."""
    cubin = CUBIN.read_bytes()
    image = fatbin(
        entry(cubin),
        entry(lz4(cubin), flags=0x2000, size=len(cubin)),
        entry(zstandard.compress(cubin), flags=0x8000, size=len(cubin)),
        entry(CUBIN.with_name("patch_80.cubin").read_bytes(), arch=80),
        entry(b".version 8.0\n.target sm_80\n", kind=1, arch=80),
    )
    path.write_bytes(image)
    return path


def test_driver_loads_delayed_code(load: Load, tmp_path: Path) -> None:
    fat = in_fatbin(tmp_path / "fat")
    plain = ("data", "options", "library", "preserved", "file", "library-file", "odd")
    ways = [f"{way}={CUBIN}" for way in plain]
    fat_ways = [f"{way}={fat}" for way in ("data", "fatbin", "library", "wrapped", "file")]
    said = load(*ways, *fat_ways, f"ptx={CUBIN}")
    number = len(ways) + len(fat_ways) + 1
    assert sum(line.endswith(ANOTHER) for line in said) == number
    assert sum(line.endswith("-> CUDA_SUCCESS") for line in said) == number
    assert "preserved: 1" in said
    compiled = said.index("cuLinkCreate_v2: 1 options")
    assert said[compiled + 1] == "cuLinkAddData_v2: PTX 1, 0 bytes left out"

    late, *images = taken(tmp_path)
    old, new = Elf(CUBIN.read_bytes()), Elf(late)
    kernels = json.loads((tmp_path / "run" / "p0" / "delays.json").read_text())["kernels"]
    for kernel in kernels.values():
        before, after = (elf.code(kernel["kernel_name"]) for elf in (old, new))
        changed = [a[0] != b[0] for a, b in zip(before, after, strict=False)]
        points = kernel["instrumentation_points"].values()
        assert {16 * i for i, c in enumerate(changed) if c} == {p["pc"] for p in points if p["on"]}
        check_detours(90, before, after)
    assert len(kernels) > 1 and late != CUBIN.read_bytes()

    for image in (*images[: len(ways) - 1], images[-1]):
        assert image == late
    for image in images[len(ways) - 1 : -1]:
        *codes, text = fatbins.entries(image)
        assert [code.contents == late for code in codes] == [True] * 3
        assert text.kind == 1
    kept = {path.read_bytes() for path in (tmp_path / "run" / "p0" / "modules").iterdir()}
    assert {CUBIN.read_bytes(), fat.read_bytes()} <= kept and late not in kept


def test_refused_delayed_code_falls_back_to_the_original(load: Load, tmp_path: Path) -> None:
    """The program has its own image then, and room for its log; the run says so."""
    said = load(f"data={CUBIN}", f"options={CUBIN}", f"library={CUBIN}", refuses=True)
    loads = [line.partition(": ")[2] for line in said if " image, CUDA_" in line]
    assert loads == [REFUSED, OWN] * 3
    assert said.count("room for 100 bytes of errors") == 4
    assert sum(line.endswith("-> CUDA_SUCCESS") for line in said) == 3
    (warning,) = tt.open(tmp_path / "run").processes[0].info["warnings"]
    why = "the driver does not load the patched code (CUDA_ERROR_INVALID_IMAGE)"
    assert warning == f"no delays in a module: {why}"
    assert f"ttanalyze: {warning}" in said
    points = json.loads((tmp_path / "run" / "p0" / "delays.json").read_text())["kernels"]
    assert not any(kernel["instrumentation_points"] for kernel in points.values())


def test_driver_gets_the_original_image_without_delays(load: Load, tmp_path: Path) -> None:
    """The very pointer and the very file, and nothing is compiled for it."""
    fat = in_fatbin(tmp_path / "fat")
    ways = [f"{way}={CUBIN}" for way in ("data", "options", "library", "file", "library-file")]
    said = load(*ways, f"fatbin={fat}", f"wrapped={fat}", f"ptx={CUBIN}", delay=0)
    loads = [
        line.partition(": ")[2] for line in said if " image, CUDA_" in line or "the file" in line
    ]
    assert loads == [OWN, OWN, OWN, "the file", "the file", OWN, OWN]
    assert not any("cuLink" in line for line in said)


def test_invalid_modules_are_refused_by_the_driver(load: Load, tmp_path: Path) -> None:
    """Files, and memory with nothing behind it: the driver says what is wrong with them."""
    cubin, fat = CUBIN.read_bytes(), in_fatbin(tmp_path / "fat").read_bytes()
    wrapper = bytes.fromhex("b1436246 01000000") + b"\x01" * 8
    damaged = [b"", cubin[:4], cubin[:64], cubin[:9000], fat[:8], fat[:9000], wrapper, b"\0" * 99]
    damaged.append(cubin[:40] + b"\xff" * 8 + cubin[48:])
    for i, content in enumerate(damaged):
        (tmp_path / str(i)).write_bytes(content)
    files = [(way, i) for i in range(len(damaged)) for way in ("file", "library-file")]
    memory = [("cut", i) for i, content in enumerate(damaged) if len(content) >= 64]
    said = load(*(f"{way}={tmp_path / str(i)}" for way, i in files + memory))
    assert sum(line.endswith(": the file") for line in said) == len(files)
    assert sum("-> CUDA_ERROR_" in line for line in said) == len(files) + len(memory)
