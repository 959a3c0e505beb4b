"""What is handed out is complete: the wheel works by itself, the source archive builds it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import support


def python(*arguments: str | Path, **options: object) -> str:
    """Runs Python without this checkout on its path; gives its output."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TT_LIB")}
    environment |= {k: str(v) for k, v in options.items()}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel made of it, compiled as fast as can be."""
    folder = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", folder, support.ROOT, CFLAGS="-O0 -g0")
    return folder


@pytest.mark.long
def test_wheel_works_alone(archives: Path, tmp_path: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    assert wheel.name.startswith("ttanalyze-0.1.0-py3-none-linux_")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    shim = python("-m", "ttanalyze", "shim", PYTHONPATH=tmp_path).strip()
    assert shim == f"{tmp_path}/ttanalyze/lib/libttshim.so"
    assert b".visible .entry tt_capture_digest" in Path(shim).read_bytes()
    assert '"simulator": true' in python("-m", "ttanalyze", "doctor", "--json", PYTHONPATH=tmp_path)
    program = "import sys, ttanalyze as tt; tt.open; print('pycparser' in sys.modules, tt.__file__)"
    assert python("-c", program, PYTHONPATH=tmp_path) == f"False {tmp_path}/ttanalyze/__init__.py\n"


@pytest.mark.long
def test_wheel_records_and_verifies(archives: Path, built: Path, tmp_path: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "lib")
    options = {"PYTHONPATH": tmp_path / "lib", "HOME": tmp_path}
    program = support.command("example-vecadd", built)
    run = tmp_path / "run"
    said = python("-m", "ttanalyze", "record", "--sim", "-o", run, "--", *program, **options)
    assert said.startswith("vecadd: ")
    assert python("-m", "ttanalyze", "verify", run, **options).startswith(f"same: {run} and ")


@pytest.mark.long
def test_wheel_takes_the_tour(archives: Path, tmp_path: Path) -> None:
    """Installed, not unpacked: pip makes the program of the tour executable."""
    (wheel,) = archives.glob("*.whl")
    python("-m", "pip", "install", "--no-deps", "--no-index", "--target", tmp_path, wheel)
    told = python(
        *("-m", "ttanalyze", "demo", "--sim", "--json", "-o", tmp_path / "tour"),
        PYTHONPATH=tmp_path,
    )
    assert len(json.loads(told)["steps"]) == 6


@pytest.mark.long
def test_wheel_lists_its_requirements(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        read = {
            name.rpartition("/")[2]: name for name in archive.namelist() if ".dist-info/" in name
        }
        metadata = archive.read(read["METADATA"]).decode()
        scripts = archive.read(read["entry_points.txt"]).decode()
    needed = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.M)
    packages = "cffi dask numpy orjson pandas typer xxhash zstandard"
    assert sorted(needed) == packages.split()
    extras = re.findall(r"^Provides-Extra: (.*)$", metadata, re.M)
    assert sorted(extras) == [
        "all",
        "cluster",
        "dev",
        "docs",
        "instrument",
        "mutate",
        "release",
        "remote",
        "remote-test",
        "report",
        "sass",
        "scale",
        "tui",
        "tune",
    ]
    bounds = re.findall(r"^Requires-Dist: (?!ttanalyze)[\w-]+(.*?)(?:;.*)?$", metadata, re.M)
    assert all(">=" in bound and "<" in bound for bound in bounds)
    plugin = ["[pytest11]", "ttanalyze", "=", "ttanalyze.pytest_plugin"]
    command = ["[console_scripts]", "ttanalyze", "=", "ttanalyze.__main__:main"]
    assert scripts.split() == [*command, *plugin]
    assert "LICENSE" in read


@pytest.mark.long
def test_libraries_need_the_c_library_only(archives: Path, tmp_path: Path) -> None:
    """A preloaded library must not bring Python, or anything else, into the program."""
    (wheel,) = archives.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    needed = set()
    for library in ("libttshim.so", "libttload.so", "sim/libcuda.so.1"):
        command = ["readelf", "-d", str(tmp_path / "ttanalyze" / "lib" / library)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        needed |= {line.split("[")[1][:-1] for line in lines.splitlines() if "(NEEDED)" in line}
    assert needed <= {
        "libc.so.6",
        "libm.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "ld-linux-x86-64.so.2",
    }


OLDEST = (2, 28)  # the glibc of `make wheel`
RENAMED = r"[fl]?stat(at)?(64)?|__isoc23_\w+"  # headers of that glibc say another name for them


def versions(path: Path, *, defined: bool) -> set[tuple[str, tuple[int, ...]]]:
    """The functions of glibc that a library defines or needs, with their versions."""
    column = "--defined-only" if defined else "--undefined-only"
    said = subprocess.run(
        ["nm", "-D", "--with-symbol-versions", column, path],
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.findall(r" (\w+)@@?GLIBC_([\d.]+)$", said.stdout, re.M)
    return {(name, tuple(map(int, version.split(".")))) for name, version in found}


def test_libraries_use_functions_that_old_systems_have() -> None:
    """Built here they need a newer glibc than wheels do, but no function that the old one lacks."""
    libc = Path(re.findall(r"\S+/libc\.so\.6$", Path("/proc/self/maps").read_text(), re.M)[0])
    both = (libc, libc.with_name("libm.so.6"))
    old = {n for file in both for n, version in versions(file, defined=True) if version <= OLDEST}
    files = [
        path for path in support.LIBRARIES.rglob("*") if re.search(r"\.so(\.\d+)?$", path.name)
    ]
    assert len(files) > 3
    for path in files:
        new = {name for name, v in versions(path, defined=False) if v > OLDEST} - old
        assert not {name for name in new if not re.fullmatch(RENAMED, name)}, path


@pytest.mark.long
def test_source_archive_is_complete(archives: Path) -> None:
    (archive,) = archives.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    for name in (
        *("Makefile", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "setup.py"),
        *(
            "requirements-dev.lock",
            "docs/format.md",
            "interpose/include/format.h",
            "examples/vecadd.c",
        ),
        *("docs/design/index.md", "docs/limits/index.md", "docs/python.md", "bench/run.py"),
        *(
            "interpose/include/format_ffi.py",
            "interpose/capture/capture.ptx",
            "interpose/include/cuda.h",
        ),
        *(
            "examples/vecadd.ptx",
            "examples/torch_nan.py",
            "docs/tools/man.py",
            "tests/conftest.py",
            "tests/programs/program.h",
            ".ci/run",
        ),
    ):
        assert name in names
    built = {
        n
        for n in names
        if n.endswith((".so", ".so.1", ".o", ".pyc", "_cuda.py", "_format.py", "/_options.py"))
    }
    assert built == set()


SCHEMAS = {
    "github-actions": ("action.yml",),
    "github-workflows": (".github/workflows/test.yml", ".github/workflows/release.yml"),
    "github-issue-forms": (".github/ISSUE_TEMPLATE/fault.yml", ".github/ISSUE_TEMPLATE/wish.yml"),
    "github-issue-config": (".github/ISSUE_TEMPLATE/config.yml",),
    "citation-file-format": ("CITATION.cff",),
}


@pytest.mark.long
@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_others_follow_their_schemas(schema: str) -> None:
    files = [support.ROOT / name for name in SCHEMAS[schema]]
    python("-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_conda_recipe_needs_what_the_wheel_needs() -> None:
    project = (support.ROOT / "pyproject.toml").read_text()
    recipe = (support.ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    (listed,) = re.findall(r"^dependencies = \[(.*?)\]", project, re.M | re.S)
    wheel = dict(re.findall(r'"(\w+)(.*?)"', listed))
    wheel |= {"python-xxhash": wheel.pop("xxhash"), "dask-core": wheel.pop("dask")}
    (needed,) = re.findall(r"^  run:\n(.*?)^\S", recipe, re.M | re.S)
    conda = dict(re.findall(r"- (\S+) (.*)", needed))
    assert conda.pop("python") == ">=3.10"
    assert conda == wheel
