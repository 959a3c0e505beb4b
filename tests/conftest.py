"""Fixtures: the native libraries, where programs are built, runs to read.

TT_LIB names a folder of libraries other than the package's, such as a sanitizer build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests import support
from tests.rundir import Writer, small_run

BUILT = support.ROOT / "build" / "tests"


@pytest.fixture(scope="session")
def built() -> Path:
    """Where support.command and support.build_program put what they compile.

    Kept from one run of the tests to the next as long as no source changes.
    """
    digest = hashlib.sha256()
    headers = [support.ROOT / "interpose" / "cuda" / "cuda.h"]
    sources = [*support.PROGRAMS.glob("*.[ch]"), *support.EXAMPLES.glob("*.[ch]"), *headers]
    for path in sorted(sources):
        digest.update(path.read_bytes())
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    folder = BUILT / f"{worker}-{digest.hexdigest()[:16]}"
    for old in BUILT.glob(f"{worker}-*"):
        if old != folder:
            shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Where a run may be written."""
    return tmp_path / "run"


@pytest.fixture
def small(run_path: Path) -> Writer:
    """A small run of one process, with everything in it."""
    return small_run(run_path)
