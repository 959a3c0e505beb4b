"""Makes the cubins for tests of the patcher, where nvcc is: python tests/data/sass/build.py"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

ARCHITECTURES = ("80", "86", "89", "90a", "100a", "120a")


def main() -> None:
    here = Path(__file__).parent
    for architecture in ARCHITECTURES:
        subprocess.run(
            [
                *("nvcc", "-O3", "-DSMALL", f"-arch=sm_{architecture}", "-cubin"),
                *("-o", str(here / f"patch_{architecture}.cubin"), str(here / "patch_kernels.cu")),
            ],
            check=True,
        )
    for name in ("specialised", "loops"):
        command = ["nvcc", "-O3", "-arch=sm_90a", "-cubin", "-o", str(here / f"{name}_90a.cubin")]
        subprocess.run([*command, str(here / f"{name}.cu")], check=True)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as compiled:
        command = ["nvcc", "-O3", "-arch=sm_90", "-rdc=true", "-cubin", "-o", compiled.name]
        subprocess.run([*command, str(here / "linked.cu")], check=True)
        made = str(here / "linked_90.cubin")
        subprocess.run(["nvlink", "-arch=sm_90", "-o", made, compiled.name], check=True)


if __name__ == "__main__":
    main()
