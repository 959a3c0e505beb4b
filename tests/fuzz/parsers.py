"""Coverage-guided fuzzing of the parsers in C, by libFuzzer: `make fuzz`.

Each target is a C file beside this one; inputs that are worth keeping lie in corpus/TARGET, and
`tests/test_fuzz_corpus.py` runs them all in every test run. Needs clang with libFuzzer.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
INTERPOSE = ROOT / "interpose"
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE=", "-O1", "-g", "-pthread", "-fno-omit-frame-pointer"]
FLAGS += ["-fno-sanitize-recover=all", f"-I{INTERPOSE}", f"-I{INTERPOSE / 'cuda'}"]
DONE = re.compile(r"Done (\d+) runs")
COVERED = re.compile(r"cov: (\d+)")


@dataclass(frozen=True)
class Target:
    """What a target is made of, how long its inputs get, and from what the first ones are taken."""

    sources: tuple[str, ...]
    longest: int
    seeds: tuple[str, ...] = ()
    by_lines: bool = False

    def files(self, name: str) -> list[Path]:
        files = [p for pattern in self.sources for p in sorted(INTERPOSE.glob(pattern))]
        return [HERE / f"{name}.c", *files]


SASS = ("sass/cubin.c", "sass/code.c", "sass/patch.c", "state/image.c", "delay/checksum.c")
FILES = ("drain/file.c", "drain/disk.c", "drain/folder.c", "state/clock.c")
JSON = ("delay/config.c", "delay/reader.c", "drain/json.c", *FILES)
TARGETS = {
    "ptx": Target(
        ("sim/ptx*.c",), 20000, ("tests/data/ptx/*.ptx", "examples/*.ptx"), by_lines=True
    ),
    "cubin": Target(SASS, 1 << 16, ("tests/data/sass/*.cubin",)),
    "fatbin": Target(("sass/fatbin.c", "state/image.c"), 1 << 16),
    "delays": Target(JSON, 4096, by_lines=True),
    "nvtx": Target(("nvtx/texts.c", "occasions.c"), 4096),
    "loader": Target(("load/*.c",), 8192),
}


def build(
    name: str, folder: Path, compiler: list[str], extra: list[Path], flags: list[str]
) -> Path:
    """The program of a target."""
    made = folder / name
    files = [*TARGETS[name].files(name), *extra]
    command = [*compiler, *FLAGS, *flags, *map(str, files), "-o", str(made), "-lm", "-ldl"]
    subprocess.run(command, check=True)
    return made


def build_fuzzer(name: str, folder: Path, compiler: str) -> Path:
    extra = [HERE / "lines.c"] if TARGETS[name].by_lines else []
    return build(name, folder, [compiler], extra, ["-fsanitize=fuzzer,address,undefined"])


def seeds(name: str, folder: Path) -> list[str]:
    """The folders with the inputs to begin with; what is found goes to the first one."""
    found = folder / f"{name}.found"
    first = folder / f"{name}.seeds"
    for path in (found, first):
        path.mkdir(parents=True, exist_ok=True)
    for pattern in TARGETS[name].seeds:
        for path in ROOT.glob(pattern):
            if path.stat().st_size <= TARGETS[name].longest:
                shutil.copy(path, first / path.name)
    return [str(p) for p in (found, first, CORPUS / name) if p.is_dir()]


def fuzz(name: str, program: Path, seconds: int, folder: Path) -> bool:
    """Prints a line for the target; True where nothing was found."""
    crashes = folder / "crashes"
    crashes.mkdir(exist_ok=True)
    command = [str(program), *seeds(name, folder)]
    command += [f"-max_total_time={seconds}", f"-max_len={TARGETS[name].longest}"]
    command += ["-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=1"]
    command += [f"-artifact_prefix={crashes}/{name}-"]
    dictionary = HERE / f"{name}.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    log = folder / f"{name}.log"
    began = time.monotonic()
    with log.open("w") as f:
        code = subprocess.run(command, stdout=f, stderr=f, check=False).returncode
    text = log.read_text(errors="replace")
    runs = DONE.search(text)
    covered = COVERED.findall(text)
    count = f"{int(runs[1]):,} inputs" if runs else "ended early"
    spent = time.monotonic() - began
    print(f"{name:8} {count} in {spent:.0f} s, {covered[-1] if covered else '?'} edges: ", end="")
    print("nothing found" if not code else f"FAILED, see {log} and {crashes}", flush=True)
    return not code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; none: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    given = parser.parse_args()
    unknown = [t for t in given.targets if t not in TARGETS]
    if unknown:
        parser.error(f"no such target: {unknown[0]}; there are {', '.join(TARGETS)}")
    compiler = os.environ.get("CLANG") or shutil.which("clang")
    if not compiler:
        print(
            "fuzzing the parsers needs clang with libFuzzer: apt-get install clang", file=sys.stderr
        )
        return 2
    given.folder.mkdir(parents=True, exist_ok=True)
    good = True
    for name in given.targets or TARGETS:
        program = build_fuzzer(name, given.folder, compiler)
        good &= fuzz(name, program, given.seconds, given.folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
