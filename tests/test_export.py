"""A recorded launch as a program of its own, which is built and run without the package."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Cli, Outcome
from ttanalyze.errors import Error
from ttanalyze.verbs.export.contents import HEAD, PAGE, Pieces

KERNELS = ("scale", "sums", "follow", "reverse", "fill", "poke", "bump")
TOOLKIT = Path("/usr/local/cuda/include/cuda.h")
OWN = support.ROOT / "interpose" / "include"
pytestmark = [pytest.mark.native, pytest.mark.large]


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of launches that need different things, with epochs before and after each."""
    path = tmp_path_factory.mktemp("export") / "run"
    program = support.build_program("recorder_single_launches", built)
    options = ("--sim", "--replayable")
    outcome = support.ttanalyze("record", *options, "-o", path, "--", program)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.split() == list(KERNELS)
    return path


@pytest.fixture(scope="module")
def exported(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each launch, built."""
    folder = tmp_path_factory.mktemp("folders")
    process = tt.open(recorded).processes[0]
    out = {}
    for name in KERNELS:
        out[name] = tt.export(process, folder / name, kernel=f"^{name}$", python=True).folder
        build(out[name])
    return out


def build(folder: Path, *options: str) -> None:
    environment = support.bare_environment()
    flags = "CFLAGS=-O0 -Wall -Wextra -Werror"
    make = ["make", "-s", "-C", str(folder), flags, f"LIBCUDA={support.SIMULATOR}", *options]
    outcome = support.run(make, environment)
    assert outcome.status == 0 and not outcome.stderr, outcome.stderr


def reproduce(folder: Path, *options: str) -> Outcome:
    return support.run([folder / "reproduce", *options], support.simulator_environment())


def run_script(folder: Path) -> Outcome:
    command = [sys.executable, "-m", "tests.cuda_standin", str(folder / "reproduce.py")]
    return support.run(command, support.simulator_environment(), cwd=support.ROOT)


# ---- the program ----


@pytest.mark.parametrize("name", KERNELS)
def test_exported_program_reproduces_the_memory(exported: dict[str, Path], name: str) -> None:
    outcome = reproduce(exported[name], "--times", "2")
    assert outcome.status == 0, outcome
    assert outcome.stdout.startswith("2 times: median ")
    assert outcome.stdout.endswith(f"{name}: as recorded\n")


@pytest.mark.parametrize("name", ["sums", "follow", "fill", "poke", "bump"])
def test_exported_script_reproduces_the_memory(exported: dict[str, Path], name: str) -> None:
    outcome = run_script(exported[name])
    assert (outcome.status, outcome.stdout) == (0, f"{name}: as recorded\n"), outcome.stderr


def test_differing_values_are_shown(exported: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported["scale"], tmp_path / "moved"))
    data = bytearray((folder / "after.bin").read_bytes())
    region, offset, _, length = HEAD.unpack_from(data, 0)
    assert length > 64
    (was,) = struct.unpack_from("<I", data, HEAD.size + 8)
    struct.pack_into("<I", data, HEAD.size + 8, was ^ 1)
    (folder / "after.bin").write_bytes(data)
    at = f"  at {offset + 8:<10} is {was:08x}, was {was ^ 1:08x}\n"
    for outcome in (reproduce(folder), run_script(folder)):
        assert outcome.status == 1, outcome
        assert f"region {region}: 1 of 80000 bytes differ\n{at}" in outcome.stdout
        assert outcome.stdout.endswith("scale: different\n")


def test_errors_of_the_exported_program_are_reported(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    """With what it reads damaged, too, as sanitizers see it."""
    folder = Path(shutil.copytree(exported["scale"], tmp_path / "moved"))
    (folder / "reproduce").unlink()
    build(folder, "CFLAGS=-g -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined")
    outcome = reproduce(folder, "--times", "2")
    assert (outcome.status, outcome.stderr) == (0, ""), outcome
    outcome = reproduce(folder, "--often")
    assert outcome.status == 2 and "usage:" in outcome.stderr
    whole = (folder / "before.bin").read_bytes()
    (folder / "before.bin").write_bytes(whole[:100])
    outcome = reproduce(folder)
    assert (outcome.status, outcome.stderr) == (2, "before.bin: ends too early\n")
    (folder / "before.bin").write_bytes(b"\xff" * 100)
    assert reproduce(folder).stderr == "before.bin: is damaged\n"
    (folder / "params.bin").unlink()
    assert reproduce(folder).stderr == "params.bin: can't be read\n"
    shutil.copy(exported["scale"] / "params.bin", folder)
    (folder / "before.bin").write_bytes(whole)
    (folder / "module.ptx").write_text("nonsense")
    outcome = reproduce(folder)
    assert outcome.status == 2 and "CUDA_ERROR_INVALID_IMAGE" in outcome.stderr


def test_exported_program_builds_with_any_cuda_header(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    """Its own say what a toolkit's do, where they say anything."""
    folder = Path(shutil.copytree(exported["fill"], tmp_path / "moved"))
    headers = [OWN, *([TOOLKIT.parent] if TOOLKIT.exists() else [])]
    for header in headers:
        (folder / "reproduce").unlink()
        build(folder, f"CUDA_INCLUDE={header}")
        assert reproduce(folder).status == 0
    members = ["CUmemAllocationProp.location", "CUmemAllocationProp.win32HandleMetaData"]
    members += ["CUmemAccessDesc.flags", "CUlaunchAttribute.value", "CUlaunchConfig.hStream"]
    members += ["CUlaunchConfig.attrs", "CUlaunchConfig.numAttrs"]
    lines = [f"offsetof({', '.join(member.split('.'))})" for member in members]
    lines += [f"sizeof({name})" for name in sorted({m.split(".")[0] for m in members})]
    source = tmp_path / "layout.c"
    values = ", ".join(lines)
    source.write_text(
        "#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{ size_t n[] = {{{values}}}; fwrite(n, sizeof n, 1, stdout); }}\n"
    )
    said = set()
    for header in (folder / "include", *headers):
        program = tmp_path / "layout"
        command = ["gcc", "-Werror", f"-I{header}", "-o", str(program), str(source)]
        assert support.run(command, support.bare_environment()).status == 0
        said.add(support.run([program], support.bare_environment()).stdout)
    assert len(said) == 1


def test_crashed_launch_crashes_again(built: Path, tmp_path: Path, cli: Cli) -> None:
    """It does so again, and there is nothing to compare."""
    program = support.build_program("recorder_single_launches", built)
    run, out = tmp_path / "run", tmp_path / "out"
    options = ("--sim", "--replayable", "--crash-safe")
    support.ttanalyze("record", *options, "-o", run, "--", program, "crash")
    seq = int(tt.open(run).events.query("kernel == 'poke'")["seq"].max())
    again = support.ttanalyze("replay", run, "--sim", "--launch", str(seq))
    assert again.status == 2 and again.stdout.startswith(f"failed: launch {seq} of poke: ")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in again.stdout
    outcome = cli("export", run, "-o", out, "--launch", str(seq), "--python")
    assert outcome.status == 0, outcome.stderr
    assert "does not compare the result: no epoch has its result" in outcome.stderr
    assert "| compared with | no epoch has its result |" in (out / "README.md").read_text()
    build(out)
    for done in (reproduce(out), run_script(out)):
        assert done.status == 2
        assert "ILLEGAL_ADDRESS" in done.stderr


# ---- what is in it ----


def regions(folder: Path) -> list[str]:
    names: dict[str, object] = {}
    exec((folder / "launch.py").read_text(), names)
    places = names["REGIONS"]
    assert isinstance(places, list)
    return [place[3] for place in places]


def test_reachable_memory_is_exported(exported: dict[str, Path], recorded: Path) -> None:
    own = tt.open(recorded).processes[0].regions
    size = dict(zip(own.id.tolist(), own.size.tolist(), strict=True))
    (large,) = [number for number, bytes_of in size.items() if bytes_of == 1 << 20]
    for name, folder in exported.items():
        assert f"region {large}" not in regions(folder), name
    allocations = [r for r in regions(exported["follow"]) if "(" not in r]
    assert sorted(size[int(r.split()[1])] for r in allocations) == [64, 80000, 80000]
    variables = {r.partition("(")[2] for r in regions(exported["bump"])}
    assert variables == {"counter)", "words)", "step)", "zeros)"}


def test_all_memory_can_be_exported(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    options = ("--kernel", "follow", "-o", tmp_path / "all", "--all-memory", "--json")
    outcome = cli("export", recorded, *options, "--max-size", "64K")
    assert outcome.status == 0, outcome.stderr
    said = json.loads(outcome.stdout)
    assert max(region["size"] for region in said["regions"]) == 1 << 20
    assert said["memory"] > 1 << 20 > said["files"]["before.bin"]
    assert "more than --max-size" in said["notes"][-1]
    build(tmp_path / "all")
    assert reproduce(tmp_path / "all").status == 0


def test_exported_readme_names_the_launch(exported: dict[str, Path]) -> None:
    page = (exported["fill"] / "README.md").read_text()
    assert "| kernel | `fill` |" in page
    assert "8 blocks of 64 threads" in page
    assert "recorder_single_launches" in page and "ttanalyze simulator" in page
    assert "@" not in page.replace("cuda-python", "")
    assert "cooperative" in (exported["fill"] / "launch.h").read_text()


def test_repeated_contents_are_stored_compactly(tmp_path: Path) -> None:
    path = tmp_path / "contents"
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, 3 * PAGE + 100).astype("u1")
    zeros, pattern = np.zeros(1 << 20, "u1"), np.tile(np.arange(8, dtype="u1"), 1 << 18)
    whole = np.concatenate([zeros, noise[: 2 * PAGE], pattern, pattern[::-1], noise])
    with path.open("wb") as file:
        pieces = Pieces(file)
        for at in range(0, len(whole), 65536):
            pieces.add(3, at, whole[at : at + 65536], sparse=True)
        pieces.flush()
    data = path.read_bytes()
    assert len(data) < len(noise) + 2 * PAGE + 1000
    found = np.zeros_like(whole)
    at = 0
    while at < len(data):
        region, offset, size, length = HEAD.unpack_from(data, at)
        part = np.frombuffer(data, "u1", length, at + HEAD.size)
        found[offset : offset + size] = np.resize(part, size)
        assert region == 3 and size
        at += HEAD.size + length
    assert (found == whole).all()


# ---- refusals ----


def test_unsupported_launches_are_refused(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"

    def refused(*options: str) -> str:
        outcome = cli("export", recorded, "-o", out, *options)
        assert outcome.status == 2 and not out.exists()
        assert outcome.stderr.count("\n") == 1
        return outcome.stderr

    assert "--launch N or --kernel REGEX is required" in refused()
    assert "--launch N or --kernel REGEX is required" in refused("--launch", "5", "--kernel", "x")
    assert "no launch of a kernel whose name has 'nothing'" in refused("--kernel", "nothing")
    assert "is not a regular expression" in refused("--kernel", "(")
    assert "is not a launch of a kernel" in refused("--launch", "2")
    assert "no call 100000" in refused("--launch", "100000")
    assert "--max-size much: expected a size" in refused("--kernel", "fill", "--max-size", "much")
    out.mkdir()
    (out / "kept").touch()
    outcome = cli("export", recorded, "-o", out, "--kernel", "fill")
    assert outcome.status == 2 and "export did not create it; choose another name" in outcome.stderr
    outcome = cli("export", recorded, "-o", out, "--kernel", "fill", "--force")
    assert outcome.status == 2 and list(out.iterdir()) == [out / "kept"]
    (out / "kept").unlink()
    link = tmp_path / "link"
    link.symlink_to(out)
    assert cli("export", recorded, "-o", link, "--kernel", "fill").status == 0
    (out / "reproduce").touch()
    outcome = cli("export", recorded, "-o", out, "--kernel", "fill")
    assert outcome.status == 2 and "--force replaces it" in outcome.stderr
    assert cli("export", recorded, "-o", link, "--kernel", "fill", "--force").status == 0
    assert (out / "main.c").exists() and not (out / "reproduce").exists()
    assert sorted(tmp_path.iterdir()) == [link, out]
    outcome = cli("export", recorded, "-o", Path("/"), "--kernel", "fill", "--force")
    assert outcome.status == 2 and "export did not create it" in outcome.stderr


def test_export_of_one_launch_among_others(built: Path, tmp_path: Path, cli: Cli) -> None:
    program = support.build_program("recorder_single_launches", built)
    run = tmp_path / "run"
    options = ("--sim", "--deterministic", "--params", "--epoch", "launch:3")
    assert support.ttanalyze("record", *options, "-o", run, "--", program).status == 0
    outcome = cli("export", run, "-o", tmp_path / "out", "--kernel", "^fill")
    assert outcome.status == 2
    assert (
        "1 other launch was made between epoch 0 and it; record with --replayable" in outcome.stderr
    )
    process = tt.open(run).processes[0]
    seq = int(process.epochs["seq"][1])  # its epoch is the second, and two launches came before
    with pytest.raises(Error, match="2 other launches were"):
        tt.export(process, tmp_path / "out", seq)


def test_run_without_parameters_is_refused(small: Writer, tmp_path: Path, cli: Cli) -> None:
    outcome = cli("export", small.path, "--kernel", ".", "-o", tmp_path / "out")
    assert outcome.status == 2 and outcome.stderr.count("\n") == 1
