"""interpose/include/cuda.h says what the CUDA toolkit's header says."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cuda_abi import MODES, OURS, WARNINGS, abi

EXPECTED = Path(__file__).parent / "data" / "cuda_abi.txt"
PER_THREAD_MACROS = """
#define TT_PTSZ(name, ...) CUresult name(__VA_ARGS__), name##_ptsz(__VA_ARGS__)
#define TT_PTDS(name, ...) CUresult name(__VA_ARGS__), name##_ptds(__VA_ARGS__)
"""


def toolkit_include() -> Path | None:
    """The include folder of a CUDA 13.0 toolkit, or None where there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), *sorted(glob.glob("/usr/local/cuda*"))]
    for home in filter(None, homes):
        header = Path(home) / "include" / "cuda.h"
        if header.is_file() and re.search(
            r"^#define CUDA_VERSION 13000$", header.read_text(), re.M
        ):
            return header.parent
    return None


def test_values_layouts_and_names_equal_the_toolkit(tmp_path: Path) -> None:
    ours = abi(OURS, tmp_path)
    assert ours.splitlines() == EXPECTED.read_text().splitlines()
    include = toolkit_include()
    if include is not None:
        assert ours.splitlines() == abi(include, tmp_path).splitlines()


def test_signatures_equal_the_toolkit(tmp_path: Path) -> None:
    """Our prototypes redeclare the toolkit's (elsewhere: our own) without a conflict."""
    header = (OURS / "cuda.h").read_text()
    prototypes = re.findall(r"^(?:CUresult cu|TT_PT[SD][ZS]\(cu)[^;]*;", header, re.M)
    assert len(prototypes) > 400
    source = tmp_path / "redeclare.c"
    source.write_text(
        "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n"
        + PER_THREAD_MACROS
        + "\n".join(prototypes)
    )
    include = toolkit_include() or OURS
    subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", f"-I{include}", str(source)], check=True)


@pytest.mark.parametrize("flags", MODES.values(), ids=MODES)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_header_compiles_without_warnings(flags: list[str], language: str, tmp_path: Path) -> None:
    source = tmp_path / "includes.c"
    source.write_text("#include <cuda.h>\nint main(void) { return (int)cuInit(0); }\n")
    subprocess.run(
        [
            "gcc",
            "-x",
            language,
            *WARNINGS,
            "-Wpedantic",
            f"-I{OURS}",
            *flags,
            "-fsyntax-only",
            str(source),
        ],
        check=True,
    )
