"""Each demo runs on the simulator from one line, and shows what it says it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import support

pytestmark = [pytest.mark.native, pytest.mark.large]


def demo(name: str, folder: Path, *arguments: str) -> str:
    """What a demo printed; it must have ended well."""
    command = [sys.executable, "-m", f"examples.demos.{name}", "--sim", "--out", str(folder)]
    environment = support.bare_environment(**support.sanitizer_runtimes())
    done = support.run([*command, *arguments], environment, cwd=support.ROOT, timeout=300)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_graphs(tmp_path: Path) -> None:
    printed = demo("graphs", tmp_path)
    energies = re.findall(r"^step \d: energy (\d+)", printed, re.M)[:5]  # of the first recording
    shown = re.findall(r"epoch (\d), after call \d+: regions \[0, 1, 2\], energy (\d+)", printed)
    assert shown == list(zip("01234", energies, strict=True))
    assert re.search(r"kernel\s+energy", printed)
    inside = re.findall(r"epoch \d+, in the replay of call \d+: regions \[(.*)\]", printed)
    assert len(inside) == 2 * len(energies)
    assert inside[2:4] == ["1", "0"]  # each step writes one of the two


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "--out", "/dev/null"], "demo: [Errno 17] File exists: '/dev/null'\n"),
        (["streams", "--check", "/nowhere"], "demo: /nowhere: No such file or directory\n"),
    ],
    ids=str,
)
def test_demo_names_what_is_missing(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", f"examples.demos.{arguments[0]}", *arguments[1:]]
    done = support.run(command, support.bare_environment(), cwd=support.ROOT)
    assert (done.stdout, done.stderr, done.status) == ("", said, 1)


def test_rewind(tmp_path: Path) -> None:
    manifest = tmp_path / "written.json"
    how = ["--no-delta", "--deterministic", "--ring-bytes=8M", f"--manifest-out={manifest}"]
    printed = demo("rewind", tmp_path, *how)
    assert re.findall(r"^epoch (\d): right$", printed, re.M) == list("0123456")
    assert manifest.read_bytes() == (tmp_path / "rewind" / "manifest.json").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("kernel", [[], ["--kernel-patch"]])
def test_patching(kernel: list[str], tmp_path: Path) -> None:
    printed = demo("patching", tmp_path, "--iterations", "6", "--toggle-every", "2", *kernel)
    program = re.findall(r"value (\d+), factor (\d+), slot", printed)
    launches = re.findall(r"set (\d+), factor (\d+), copy .* as it is in memory$", printed, re.M)
    assert launches == program
    assert len(launches) == 6 + 2
    assert len(set(launches)) == 3 + 1
    assert f"factor {2 + 2 * len(kernel)}, copy" in printed
    found = re.findall(r"before call (\d+), after (\d+) of", printed)
    assert [int(changes) for _, changes in found] == [0, 2 * (2 + len(kernel)) + 1]


@pytest.mark.long
def test_streams(tmp_path: Path) -> None:
    printed = demo("streams", tmp_path, "--", "--steps", "100")
    found = re.findall(r"^(\d+) epochs, \d+ looks at a buffer: (\d+) torn, (\d+)", printed, re.M)
    assert [(int(torn) > 0, int(old) > 0) for _, torn, old in found] == [
        *[(False, False)] * 2,
        (True, True),
    ]
    assert re.search(r"epoch \d+, region \d+: \d+\.\d % .*writes? old", printed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "deps"), [(["--deps", "region"], "region"), (["--no-deps"], "off")], ids=str
)
def test_streams_demo_with_one_ordering(how: list[str], deps: str, tmp_path: Path) -> None:
    printed = demo("streams", tmp_path, *how, "--", "--steps", "60")
    assert printed.count("$ ttanalyze record") == 1
    assert f"--deps {deps} " in printed
    run = str(tmp_path / f"streams-{deps}")
    command = [sys.executable, "-m", "examples.demos.streams", "--check", run]
    again = support.run(command, support.bare_environment(), cwd=support.ROOT)
    assert again.status == (deps == "off")
    assert again.stdout in printed


@pytest.mark.long
def test_determinism(tmp_path: Path) -> None:
    printed = demo("determinism", tmp_path)
    assert "bytes: equal" in printed
    one, two, three = (
        (tmp_path / f"training{i}" / "manifest.json").read_bytes() for i in (1, 2, 3)
    )
    assert one == two != three


@pytest.mark.long
def test_verify(tmp_path: Path) -> None:
    printed = demo("verify", tmp_path, "--step", "3")
    assert re.search(r"^same: ", printed, re.M)
    assert "region 0 differs in epoch 3" in printed
    assert "First corrupt byte in memory: 131072 of region 0" in printed
    assert "Marks in the trace: 1" in printed


def test_each_demo_is_in_the_readme() -> None:
    readme = (support.EXAMPLES / "README.md").read_text()
    for path in (support.EXAMPLES / "demos").glob("*.py"):
        if path.stem != "common":
            assert f"-m examples.demos.{path.stem}" in readme
