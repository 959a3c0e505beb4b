"""Makes the cubins here, and what nvdisasm says of their kernels: for machines with neither tool.

Run from the repository's root where there are nvcc and nvdisasm: `python tests/data/sass/make.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import orjson
import xxhash

from ttanalyze.code.cubin import Cubin
from ttanalyze.disassembly import tools

FOLDER = Path(__file__).parent
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
SOURCE = Path(tempfile.gettempdir(), "kernels.cu")  # its place is part of the cubins


def main() -> None:
    """Every kernel's lines, as nvdisasm writes them, by the digest of its code."""
    said: dict[str, list[str]] = {}
    shutil.copy(FOLDER / SOURCE.name, SOURCE)
    for name in ARCHITECTURES:
        path = FOLDER / f"{name}.cubin"
        options: list[str | Path] = [
            "-std=c++17",
            "-lineinfo",
            f"-arch={name}",
            "-cubin",
            "-o",
            path,
        ]
        subprocess.run(["nvcc", *options, SOURCE.name], cwd=SOURCE.parent, check=True)
        cubin = Cubin(path.read_bytes())
        for kernel in cubin.kernels():
            code = bytes(cubin.code(kernel)[1])
            lines = tools.disassembled(code, cubin.architecture)[0].splitlines()
            said[xxhash.xxh3_64_hexdigest(code)] = [line for line in lines if "/*" in line]
    (FOLDER / "disassembly.json").write_bytes(orjson.dumps(said, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
