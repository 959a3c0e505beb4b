#!/usr/bin/env python3
"""Rebuilds capture.ptx, pack.ptx, replay.ptx, fill.ptx and replay_digest.ptx from their sources, or
checks that they are up to date.

    build_ptx.py                        write them where they belong
    build_ptx.py --check                exit 1 if one is stale
    build_ptx.py -o FILE -D NAME=VALUE  write a variant of capture.ptx for comparison

nvcc writes the PTX version of its own release, which older drivers refuse. The kernels use
nothing newer than PTX 6.3 on sm_70, so the text is lowered to those. Its first line names the
nvcc release and a digest of the sources: without that very nvcc, --check compares the digest alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INTERPOSE = FOLDER.parent
GRAPH = INTERPOSE.parent / "ttanalyze" / "gpu"
KERNELS = {
    FOLDER / "capture.ptx": "kernels.cu",
    FOLDER / "pack.ptx": "pack.cu",
    FOLDER / "replay.ptx": "replay.cu",
    FOLDER / "fill.ptx": "fill.cu",
    GRAPH / "replay_digest.ptx": "replay_digest.cu",  # which the toolkit loads
}
SOURCES = [
    "capture.cuh",
    "device.cuh",
    "digest.cuh",
    "kernels.h",
    "pack.cuh",
    "../include/chunk.h",
    "../include/fill_pattern.h",
    "../util/xxh3.h",
]
FORMAT = "../include/format.h"  # of which the kernels see what the sources name
NVCC_FALLBACK = "/usr/local/cuda/bin/nvcc"


def without_comments(text: str) -> str:
    return re.sub(r"[ \t]*/\*.*?\*/", "", text, flags=re.DOTALL)


def declarations(header: str, users: str) -> str:
    """The declarations of a header that the users name, and those that these name in turn."""
    form = r"^#define (\w+)(?:.*\\\n)*.*|^struct (\w+) \{[^}]*\};|^enum (\w+ \{[^}]*)\};"
    found, named = "", without_comments(users)
    left = {
        match[0]: {*re.findall(r"[A-Za-z_]\w*", match[1] or match[2] or match[3])}
        for match in re.finditer(form, without_comments(header), re.M)
    }
    while named:
        words = {*re.findall(r"\w+", named)}
        named = "\n".join(text for text, names in left.items() if names & words)
        left = {text: names for text, names in left.items() if not names & words}
        found += named
    return found


def source_digest(kernels: str) -> str:
    """SHA-256 over the sources without their comments and white space, 64 hex digits."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in [kernels, *SOURCES]]
    header = (FOLDER / FORMAT).read_text(encoding="utf-8")
    digest = hashlib.sha256()
    for text in [*map(without_comments, texts), declarations(header, "\n".join(texts))]:
        digest.update(re.sub(r"\s+", "", text).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def find_nvcc() -> str | None:
    """The nvcc of $NVCC, of the search path or of the usual place; None without a toolkit."""
    for candidate in (os.environ.get("NVCC"), "nvcc", NVCC_FALLBACK):
        if candidate and (found := shutil.which(candidate)):
            return found
    return None


def nvcc_release(nvcc: str) -> str:
    """Such as "13.0". Raises subprocess.CalledProcessError."""
    answer = subprocess.run(
        [nvcc, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    found = re.search(r"release (\d+\.\d+)", answer)
    return found[1] if found else "unknown"


def first_line(kernels: str, release: str) -> str:
    """What the file begins with when it was made from the present sources."""
    made = f"Built from {kernels} by build_ptx.py with nvcc {release}"
    return f"// {made}. Sources: {source_digest(kernels)}"


def compile_ptx(kernels: str, nvcc: str, defines: list[str]) -> str:
    """PTX text as nvcc writes it for compute_75. Raises subprocess.CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernels.ptx"
        options = [
            "-ptx",
            "-arch=compute_75",
            "-O3",
            f"-I{INTERPOSE}",
            f"-I{INTERPOSE / 'include'}",
        ]
        options += [f"-D{define}" for define in defines]
        subprocess.run(
            [nvcc, *options, kernels, "-o", str(output)], cwd=FOLDER, check=True, timeout=300
        )
        return output.read_text(encoding="utf-8")


def readable_name(mangled: str) -> str:
    """_ZZ17tt_capture_digestE4sums -> tt_capture_digest__sums; file-specific parts go."""
    mangled = re.sub(r"\d+_INTERNAL_[0-9a-f]{8}_\d+_\w+_cu_[0-9a-f]{8}", "", mangled)
    parts, at = [], 0
    while found := re.compile(r"(\d+)(?=[a-z_])").search(mangled, at):
        at = found.end() + int(found[1])
        parts.append(mangled[found.end() : at])
    return "__".join(parts)


def lower(text: str) -> str:
    """The same kernels for PTX 6.3 and sm_70, with stable names, without nvcc's comments and
    without its hints about bytes that are not used, which PTX has since 8.3.
    """
    text = re.sub(r"^//.*\n|\s*// .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\.version .*$", ".version 6.3", text, flags=re.MULTILINE)
    text = re.sub(r"^\.target .*$", ".target sm_70", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*\.pragma \"used_bytes_mask .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\b_ZZ\w+", lambda name: readable_name(name[0]), text)
    text = re.sub(r"\n\s*\n+", "\n\n", text).strip()
    return text + "\n"


def build(kernels: str, nvcc: str, defines: list[str]) -> str:
    """PTX text. Raises subprocess.CalledProcessError when nvcc fails."""
    compiled = lower(compile_ptx(kernels, nvcc, defines))
    return first_line(kernels, nvcc_release(nvcc)) + "\n" + compiled


def check(nvcc: str | None) -> str | None:
    """None if the PTX is what the sources give, else what is wrong with it."""
    for output, kernels in KERNELS.items():
        if not output.exists():
            return f"{output}: missing"
        present = output.read_text(encoding="utf-8")
        line = present.partition("\n")[0]
        if not line.endswith(source_digest(kernels)):
            return f"{output}: older than its sources; run {Path(__file__).name}"
        same_nvcc = nvcc and line == first_line(kernels, nvcc_release(nvcc))
        if nvcc and same_nvcc and build(kernels, nvcc, []) != present:
            return f"{output}: not what {nvcc} makes of its sources; run {Path(__file__).name}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if options.check:
        problem = check(nvcc)
        if problem:
            print(problem, file=sys.stderr)
        elif nvcc is None:
            print("the PTX names its present sources; there is no nvcc to rebuild it with")
        return 1 if problem else 0
    if nvcc is None:
        print("no nvcc: set NVCC or add it to PATH", file=sys.stderr)
        return 1
    wanted = {options.output: "kernels.cu"} if options.output else KERNELS
    try:
        texts = {path: build(kernels, nvcc, options.define) for path, kernels in wanted.items()}
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"nvcc failed: {error}", file=sys.stderr)
        return 1
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
