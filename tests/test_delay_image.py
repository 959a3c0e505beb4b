"""Delays in machine code: which points have them, that this can be had again, and by what name."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.cutracer_delays import cutracers, cutracers_checksum
from tests.support import Cli
from ttanalyze import code
from ttanalyze.code.cubin import Cubin
from ttanalyze.disassembly import tools

pytestmark = [pytest.mark.native, pytest.mark.large]

DATA = Path(__file__).parent / "data" / "sass"
CUBINS = sorted(DATA.glob("patch_*.cubin"))
SOURCES = ["delay/image.c", "delay/points.c", "options/delay_config.c", "util/json_reader.c"]
SOURCES += [
    "delay/checksum.c",
    "delay/text_checksum.c",
    "sass/cubin.c",
    "sass/code.c",
    "sass/patch.c",
    "sass/rebuild.c",
]
SOURCES += ["sass/blocks.c"]
SOURCES += ["store/disk.c", "store/file.c", "store/folder.c", "util/json_writer.c"]
SOURCES += ["util/clock.c", "options/kernel_filters.c", "options/triggers.c"]


@dataclass(frozen=True)
class Made:
    """image: None where nothing is late."""

    image: bytes | None
    config: dict[str, Any]
    said: str

    def points(self) -> dict[tuple[str, int], dict[str, Any]]:
        return {
            (kernel["kernel_name"], point["pc"]): point
            for kernel in self.config["kernels"].values()
            for point in kernel["instrumentation_points"].values()
        }

    def late(self) -> set[tuple[str, int]]:
        return {where for where, point in self.points().items() if point["on"]}


Put = Callable[..., Made]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("delay") / "harness"
    interpose = support.ROOT / "interpose"
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE=", "-O1", "-g"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [f"-I{interpose}", f"-I{interpose / 'include'}", "-o", str(program), "-pthread"]
    command += [str(support.ROOT / "tests" / "delay_harness.c")]
    subprocess.run([*command, *(str(interpose / name) for name in SOURCES)], check=True)
    return program


@pytest.fixture
def put(harness: Path, tmp_path: Path) -> Put:
    """Puts delays into a cubin."""

    def run(cubin: Path, *, pass_fds: tuple[int, ...] = (), **options: object) -> Made:
        out = tmp_path / "out.cubin"
        out.unlink(missing_ok=True)
        given = {f"TT_{name.upper()}": str(value) for name, value in options.items()}
        done = subprocess.run(
            [harness, cubin, out, tmp_path],
            env={**os.environ, **given},
            pass_fds=pass_fds,
            capture_output=True,
            text=True,
            check=True,
        )
        config = json.loads((tmp_path / "delays.json").read_text())
        return Made(out.read_bytes() if out.exists() else None, config, done.stdout)

    return run


@pytest.mark.long
@pytest.mark.parametrize("cubin", CUBINS, ids=lambda path: path.stem)
def test_random_half_of_the_points_is_delayed(
    cubin: Path, put: Put, cli: Cli, tmp_path: Path
) -> None:
    made = put(cubin, delay=2000, delay_seed=3)
    assert made.image is not None and made.image != cubin.read_bytes()
    points, late = made.points(), made.late()
    assert len(points) / 5 < len(late) < len(points) * 4 / 5
    assert {point["delay"] for point in points.values()} == {2000}
    names = [kernel["kernel_name"] for kernel in made.config["kernels"].values()]
    sums = [kernel["kernel_checksum"] for kernel in made.config["kernels"].values()]
    assert sums == code.checksums(cubin.read_bytes(), names)
    assert cli("validate", tmp_path / "delays.json").status == 0
    assert {"LDG", "STG"} <= {point["sass"] for point in points.values()}

    assert put(cubin, delay=2000, delay_seed=3) == made
    other = put(cubin, delay=2000, delay_seed=4)
    assert other.points().keys() == points.keys() and other.late() != late


def test_delays_from_a_file(put: Put, tmp_path: Path) -> None:
    cubin = next(path for path in CUBINS if "90" in path.stem)
    made = put(cubin, delay=2000, delay_seed=3)
    file = tmp_path / "asked.json"
    file.write_text(json.dumps(made.config))
    again = put(cubin, delay_load=file)
    assert again.image == made.image and again.points() == made.points()

    where = min(made.late())
    for name, pc in made.late() - {where}:
        key = next(k for k, v in made.config["kernels"].items() if v["kernel_name"] == name)
        made.config["kernels"][key]["instrumentation_points"][str(pc)]["on"] = False
    file.write_text(json.dumps(made.config))
    one = put(cubin, delay_load=file)
    assert one.late() == {where} and one.said == ""
    assert one.image is not None and len(one.image) <= len(made.image or b"")

    for kernel in made.config["kernels"].values():
        kernel["kernel_checksum"] = "0" * 16
    file.write_text(json.dumps({**made.config, "kernels": {"k": made.config["kernels"][key]}}))
    none = put(cubin, delay_load=file)
    assert none.image is None and none.config["kernels"] == {}


def test_delays_from_a_file_with_non_ascii_names(put: Put, tmp_path: Path) -> None:
    """Python writes them as escapes, those above U+FFFF as two."""
    cubin, whole = tmp_path / "named.cubin", CUBINS[0].read_bytes()
    for old, new in {b"staged": "é😀", b"scale": "é€"}.items():
        assert old in whole and len(old) == len(new.encode())
        whole = whole.replace(old, new.encode())
    cubin.write_bytes(whole)
    made = put(cubin, delay=2000, delay_seed=3)
    assert {"é😀", "é€"} <= {name for name, _ in made.late()}
    file = tmp_path / "asked.json"
    file.write_text(json.dumps(made.config))
    assert "\\u00e9\\ud83d\\ude00" in file.read_text()
    again = put(cubin, delay_load=file)
    assert again.image == made.image and again.points() == made.points()


def test_kernels_are_selected_by_name(put: Put) -> None:
    cubin = next(path for path in CUBINS if "90" in path.stem)
    every = put(cubin, delay=2000)
    stores = put(cubin, delay=2000, delay_patterns="STG,STS.128")
    assert {point["sass"] for point in stores.points().values()} <= {"STG", "STS"}
    assert stores.late() < every.late()
    assert len(put(cubin, delay=2000, delay_patterns="*").points()) > len(every.points())
    name = min(every.points())[0]
    some = put(cubin, delay=2000, delay_kernel=f"^{name}$")
    assert {kernel for kernel, _ in some.points()} == {name}
    assert put(cubin, delay=2000, delay_kernel="no such").image is None
    assert put(cubin, delay=2000, kernel_filters=f"no such,{name}") == some
    assert put(cubin, delay=2000, kernel_filters="no such").image is None


@pytest.mark.parametrize("mode", ["cluster", "cluster_fixed"])
def test_delays_in_one_block_of_each_cluster(mode: str, put: Put, tmp_path: Path) -> None:
    for cubin in CUBINS:
        made = put(cubin, delay=2000, delay_mode=mode)
        clusters = int(cubin.stem.split("_")[1].rstrip("a")) >= 90
        assert bool(made.late()) == clusters and made.config["mode"] == mode
        seeds = {point["cluster_seed"] for point in made.points().values()}
        assert len(seeds) > 1 and "cluster_block" not in made.config
        third = put(cubin, delay=2000, delay_mode=mode, delay_cluster_block=2)
        assert third.late() == made.late() and third.config["cluster_block"] == 2
        assert (third.image != made.image) == clusters
        file = tmp_path / "asked.json"
        file.write_text(json.dumps(third.config))
        assert put(cubin, delay_load=file) == third
        assert put(cubin, delay_load=file, delay_cluster_block=1).config["cluster_block"] == 1


def test_file_of_cutracer_is_matched_by_name_and_instructions(put: Put, tmp_path: Path) -> None:
    cubin = next(path for path in CUBINS if "90" in path.stem)
    made = put(cubin, delay=2000, delay_seed=3, delay_mode="fixed")
    file = tmp_path / "asked.json"
    file.write_text(cutracers(made.config))
    again = put(cubin, delay_load=file, delay_mode="fixed")
    assert again.image == made.image and again.points() == made.points() and again.said == ""
    assert put(cubin, delay_load=file).config["mode"] == "random"
    file.write_text(cutracers(made.config).replace('"LDG', '"@!P0 LDG'))
    assert put(cubin, delay_load=file, delay_mode="fixed") == again

    file.write_text(cutracers(made.config).replace('"LDG', '"LDGSTS'))
    other = put(cubin, delay_load=file, delay_mode="fixed")
    late = {kernel for kernel, _ in other.late()}
    assert late and late < {kernel for kernel, _ in made.late()}
    assert "their code was not loaded, or was different" in other.said

    wrong, right = (json.loads(text) for text in (file.read_text(), cutracers(made.config)))
    several = {f"other {key}": kernel for key, kernel in wrong["kernels"].items()}
    file.write_text(json.dumps(right | {"kernels": several | right["kernels"]}))
    assert put(cubin, delay_load=file, delay_mode="fixed").image == made.image


def test_file_of_cutracer_is_matched_by_its_checksum(put: Put, tmp_path: Path) -> None:
    """Even if the instructions of another entry fit; without nvdisasm that one is taken."""
    cubin = next(path for path in CUBINS if "90" in path.stem)
    some = "^(scale|reduce)$"
    made = put(cubin, delay=2000, delay_seed=3, delay_mode="fixed", delay_kernel=some)
    ours = json.loads(cutracers(made.config))
    other = json.loads(cutracers(put(cubin, delay=9, delay_kernel=some).config))
    for kernel in ours["kernels"].values():
        name = kernel["kernel_name"]
        kernel["kernel_checksum"] = cutracers_checksum(
            Cubin(cubin.read_bytes()), name, padded=name == "scale"
        )
        for point in kernel["instrumentation_points"].values():
            point["sass"] = "unknown"
    several = {f"a {key}": kernel for key, kernel in other["kernels"].items()} | ours["kernels"]
    file = tmp_path / "asked.json"
    file.write_text(json.dumps(ours | {"kernels": several}))
    load = {"delay_load": file, "delay_mode": "fixed"}
    again = put(cubin, **load, nvdisasm=tools.find("nvdisasm")[0])
    assert again.image == made.image
    assert {point["delay"] for point in put(cubin, **load).points().values()} == {9}
    for nothing in ("/bin/true", "/bin/false", tmp_path / "none"):
        assert put(cubin, **load, nvdisasm=nothing).image != made.image


def test_nvdisasm_gets_nothing_of_the_program(put: Put, tmp_path: Path) -> None:
    cubin = next(path for path in CUBINS if "90" in path.stem)
    file, tool = tmp_path / "asked.json", tmp_path / "nvdisasm"
    file.write_text(cutracers(put(cubin, delay=2000).config))
    tool.write_text(f"#!/bin/sh\nls -l /proc/$$/fd > {tmp_path}/files; env > {tmp_path}/env\n")
    tool.chmod(0o755)
    with open(file) as opened:
        put(cubin, pass_fds=(opened.fileno(),), delay_load=file, nvdisasm=tool)
    files = (tmp_path / "files").read_text()
    assert "memfd:code" in files and str(file) not in files
    assert "PYTEST_CURRENT_TEST" not in (tmp_path / "env").read_text()


def test_patching_every_instruction_without_delay(put: Put) -> None:
    """Without any delay."""
    cubin = next(path for path in CUBINS if "90" in path.stem)
    made = put(cubin, delay=0, delay_patterns="*")
    assert made.image is not None and len(made.image) > len(cubin.read_bytes())
    assert made.points() == {} and made.config["kernels"]
    assert put(cubin, delay=0).image is None


def test_other_files_are_not_patched(put: Put, tmp_path: Path) -> None:
    whole = CUBINS[0].read_bytes()
    for length in (0, 3, 64, len(whole) // 2):
        (tmp_path / "damaged").write_bytes(whole[:length])
        made = put(tmp_path / "damaged", delay=2000)
        assert made.image is None and "no delays in a module" in made.said


# ---- files ----

CALL = {"stream": 16, "number": 0, "delay": 5, "on": True, "where": "host"}
POINT = {"pc": 16, "sass": "LDG", "delay": 5, "on": True}
KERNEL = {"kernel_name": "k", "kernel_checksum": "0123456789abcdef"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "offset 0: expected an object"),
        ("{", "expected a string"),
        ("[]", "expected an object"),
        ({"version": "2.0"}, "unknown version, expected 1.0"),
        ({"delay_ns": -1}, "a whole number from 0"),
        ({"delay_ns": 1.5}, "a whole number from 0"),
        ({"delay_ns": 10**10}, "too large"),
        ({"mode": "slow"}, "random, fixed, cluster or cluster_fixed"),
        ({"colour": 1}, "unknown member"),
        ({"launches": {"16:1": CALL}}, "under another stream and number"),
        ({"launches": {"16:0": CALL | {"where": "here"}}}, "stream, host or both"),
        ({"launches": {"16:0": {"stream": 16}}}, "lacks"),
        ({"kernels": {"a": KERNEL}}, "lacks"),
        ({"kernels": {"a": KERNEL | {"instrumentation_points": {"8": POINT}}}}, "another pc"),
        (
            {"kernels": {"a": KERNEL | {"instrumentation_points": {"16": POINT | {"on": 1}}}}},
            "true or",
        ),
        ('{"version":"1.0","version":"1.0"}', "appears twice"),
        ('{"version":"1.0","delay_ns":1,"kernels":{}} x', "unexpected text after"),
        ('{"version":"1.0","delay_ns":01,"kernels":{}}', "begins with 0"),
        ('{"version":"1.0","patterns":"\\u0000"', "invalid character"),
        ('{"version":"1.0","patterns":"a\\ud83d"', "offset 31: unpaired surrogate"),
        ('{"version":"1.0","patterns":"a\\ude00"', "offset 31: unpaired surrogate"),
        ('{"version":"1.0","patterns":"a\\ud83db"', "offset 31: unpaired surrogate"),
        ('{"version":"1.0","patterns":"\\ud83d\\u0041"', "offset 30: unpaired surrogate"),
        ('{"version":"1.0","patterns":"\\ud83d\\ud83d"', "offset 30: unpaired surrogate"),
        ('{"version":"1.0', "unterminated"),
        ('{"version":"1.0"}', "missing"),
        ("{" * 100000, "expected a string"),
    ],
)
def test_invalid_delay_file_is_refused(
    content: str | dict[str, Any], why: str, put: Put, tmp_path: Path
) -> None:
    """It is refused as a whole, in one line."""
    path = tmp_path / "asked.json"
    whole = {"version": "1.0", "delay_ns": 10, "kernels": {}}
    path.write_text(content if isinstance(content, str) else json.dumps(whole | content))
    made = put(CUBINS[0], delay_load=path)
    assert made.image is None and made.config["kernels"] == {}
    assert made.said.startswith(f"no delays: {path}: offset ") and why in made.said
    assert made.said.count("\n") == 1
