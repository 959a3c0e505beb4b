#!/usr/bin/env python3
"""Rebuilds trace_patch.fatbin from trace_patch.cu with nvcc, or checks that it is up to date.

build_patch.py          write it, and a digest of its sources to trace_patch.sources
build_patch.py --check  exit 1 if the digest is not that of the sources
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INCLUDE = FOLDER.parent / "include"
SOURCES = [FOLDER / "trace_patch.cu", INCLUDE / "trace_ring.h"]
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
DIGEST = FOLDER / "trace_patch.sources"
NVCC = "/usr/local/cuda/bin/nvcc"


def digest() -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()


def main() -> int:
    if "--check" in sys.argv:
        return int(DIGEST.read_text().strip() != digest())
    nvcc = shutil.which("nvcc") or NVCC
    if not os.access(nvcc, os.X_OK):
        print("build_patch: no nvcc", file=sys.stderr)
        return 1
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    options = ["-std=c++17", "-O3", "-fatbin", "--compile-as-tools-patch", "--compress-mode=size"]
    out = FOLDER / "trace_patch.fatbin"
    subprocess.run([nvcc, *options, *codes, f"-I{INCLUDE}", "-o", out, SOURCES[0]], check=True)
    DIGEST.write_text(digest() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
