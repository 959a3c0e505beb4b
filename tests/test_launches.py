"""`ttanalyze launches`: recorded launches as a table and as a database, and which are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import support

pytestmark = pytest.mark.native
SIM = support.simulator_environment()


@pytest.fixture(scope="module")
def program(built: Path) -> Path:
    return support.build_program("recorder_single_launches", built)


@pytest.fixture(scope="module")
def run(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("launches") / "run"
    done = support.run([program], support.recording(SIM, path, replayable="1"))
    assert done.status == 0, done.stderr
    return path


def listed(run: Path, *options: str) -> list[dict[str, Any]]:
    done = support.ttanalyze("launches", run, "--json", *options)
    assert done.status == 0, done
    found: list[dict[str, Any]] = json.loads(done.stdout)["kernels"]
    return found


@pytest.mark.long
def test_database_has_what_a_replay_needs(run: Path) -> None:
    found = {one["name"]: one for one in listed(run)}
    assert list(found) == ["scale", "sums", "follow", "reverse", "fill", "poke", "bump"]
    (launch,) = found["scale"]["launches"]
    assert (launch["grid"], launch["block"], launch["shared"]) == ([20, 1, 1], [128, 1, 1], 0)
    assert launch["after"] == launch["before"] + 1 and launch["occurrences"] == 1
    assert bytes.fromhex(launch["params"])[-4:] == (20000).to_bytes(4, "little")
    assert (run / found["scale"]["module"]).read_bytes().startswith(b".version")
    assert len(found["scale"]["checksum"]) == 16
    again = support.ttanalyze("replay", run, "--sim", "--launch", launch["seq"], environment=SIM)
    assert again.status == 0


def test_kernels_are_chosen_by_exact_names(run: Path) -> None:
    assert [one["name"] for one in listed(run, "--names", "sums,scale")] == ["scale", "sums"]
    assert [one["name"] for one in listed(run, "--kernel", "^s")] == ["scale", "sums"]
    done = support.ttanalyze("launches", run, "--names", "scal")
    assert done.status == 2 and "a kernel with the mangled name scal" in done.stderr


def test_table_and_file(run: Path, tmp_path: Path) -> None:
    done = support.ttanalyze("launches", run)
    assert done.status == 0 and done.stdout.splitlines()[0].split()[:3] == [
        "launch",
        "kernel",
        "grid",
    ]
    out = tmp_path / "launches.json"
    assert support.ttanalyze("launches", run, "--json", "-o", out).status == 0
    assert json.loads(out.read_text())["format"] == "ttanalyze-launches"


def test_only_kernels_of_these_names_are_recorded(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    support.run([program], support.recording(SIM, run, replayable="1", kernel_names="poke,scale"))
    assert [one["name"] for one in listed(run)] == ["scale", "poke"]
    other = tmp_path / "other"
    options = {"replayable": "1", "kernel_names": "oke,scal,scale2"}
    support.run([program], support.recording(SIM, other, **options))
    assert all(launch["before"] is None for one in listed(other) for launch in one["launches"])


@pytest.mark.parametrize(("size", "fits"), [("64M", False), ("64G", True)])
def test_reserved_addresses_have_the_given_size(
    size: str, fits: bool, built: Path, tmp_path: Path
) -> None:
    """What does not fit has addresses of the driver, and the program goes on."""
    run = tmp_path / "run"
    program = support.build_program("recorder_two_sizes", built)
    plain = support.run([program], SIM)
    given = support.recording(SIM, run, deterministic="1", address_space=size, epoch="none")
    done = support.run([program], given)
    assert (done.status, done.stdout) == (plain.status, plain.stdout)
    asked = ("--table", "allocs", "--format", "json")
    rows = json.loads(support.ttanalyze("query", run, *asked).stdout)
    assert rows and any(row["unstable"] for row in rows) is not fits
