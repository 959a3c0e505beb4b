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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
INTERPOSE = ROOT / "interpose"
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE=", "-O1", "-g", "-pthread", "-fno-omit-frame-pointer"]
FLAGS += ["-fno-sanitize-recover=all", f"-I{INTERPOSE}", f"-I{INTERPOSE / 'include'}"]
FUZZER = ["-O2", "-fsanitize=fuzzer,address,undefined"]
NO_COMPARISONS = "-fno-sanitize-coverage=trace-cmp"
RUNS = re.compile(r"stat::number_of_executed_units: (\d+)")
COVERED = re.compile(r"cov: (\d+)")
FOUND = re.compile(r"Test unit written to (.*)")
MOST = 10  # crashes and hangs of a target, until it is left


@dataclass(frozen=True)
class Target:
    """What a target is made of, how long its inputs get, and from what the first ones are taken.

    mutator: the file beside this one that changes inputs as their format has it. compares:
    constants of comparisons are tried in inputs, which halves the speed of a target that does much
    besides reading.
    """

    sources: tuple[str, ...]
    longest: int
    seeds: tuple[str, ...] = ()
    mutator: str = ""
    compares: bool = True

    def files(self, name: str) -> list[Path]:
        files = [p for pattern in self.sources for p in sorted(INTERPOSE.glob(pattern))]
        return [HERE / f"{name}.c", *files]


PATCH = ("sass/code.c", "sass/blocks.c", "sass/rebuild.c", "sass/patch.c")
SASS = ("sass/cubin.c", "sass/trace_*.c", *PATCH, "track/image.c", "delay/checksum.c")
FILES = ("store/file.c", "store/disk.c", "store/folder.c", "util/clock.c")
JSON = ("options/delay_config.c", "util/json_reader.c", "util/json_writer.c", *FILES)
TARGETS = {
    "ptx": Target(
        ("sim/ptx/*.c",),
        12000,
        ("tests/data/ptx/*.ptx", "examples/*.ptx"),
        mutator="lines.c",
        compares=False,
    ),
    "cubin": Target(
        SASS, 1 << 15, ("tests/data/sass/*.cubin",), mutator="sections.c", compares=False
    ),
    "fatbin": Target(("sass/fatbin.c", "track/image.c"), 1 << 16),
    "delays": Target(JSON, 4096, mutator="lines.c"),
    "nvtx": Target(("nvtx/texts.c", "options/triggers.c"), 4096),
    "loader": Target(
        ("load/load.c", "load/digests.c", "load/manifest_digests.c", "load/recompute.c"), 8192
    ),
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


def build_fuzzer(name: str, folder: Path, compiler: str, flags: list[str]) -> Path:
    target = TARGETS[name]
    extra = [HERE / target.mutator] if target.mutator else []
    flags = FUZZER + ([] if target.compares else [NO_COMPARISONS]) + flags
    return build(name, folder, [compiler], extra, flags)


def pieces(path: Path) -> Iterator[tuple[str, bytes]]:
    """A seed, and of a PTX file each of its kernels as a file: small inputs are tried faster."""
    contents = path.read_bytes()
    yield path.name, contents
    head, *kernels = re.split(rb"(?m)^(?=\.visible \.entry)", contents)
    if path.suffix == ".ptx" and len(kernels) > 1:
        for number, kernel in enumerate(kernels):
            yield f"{path.stem}.{number}{path.suffix}", head + kernel


def seeds(name: str, folder: Path) -> list[str]:
    """The folders with the inputs to begin with; what is found goes to the first one."""
    found = folder / f"{name}.found"
    first = folder / f"{name}.seeds"
    for path in (found, first):
        path.mkdir(parents=True, exist_ok=True)
    for pattern in TARGETS[name].seeds:
        for path in ROOT.glob(pattern):
            for piece, contents in pieces(path):
                if len(contents) <= TARGETS[name].longest:
                    (first / piece).write_bytes(contents)
    return [str(p) for p in (found, first, CORPUS / name) if p.is_dir()]


def fuzz(name: str, seconds: int, folder: Path) -> bool:
    """Prints a line for the target; True where nothing was found."""
    crashes = folder / "crashes"
    crashes.mkdir(exist_ok=True)
    command = [str(folder / name), *seeds(name, folder), f"-max_len={TARGETS[name].longest}"]
    command += ["-timeout=20", "-report_slow_units=5", "-rss_limit_mb=4096"]
    command += ["-print_final_stats=1", f"-artifact_prefix={crashes}/{name}-"]
    dictionary = HERE / f"{name}.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    log = folder / f"{name}.log"
    log.unlink(missing_ok=True)
    began = time.monotonic()
    failed = 0
    while (spent := time.monotonic() - began) < seconds and failed < MOST:
        with log.open("a") as f:
            left = max(1, round(seconds - spent))
            done = subprocess.run([*command, f"-max_total_time={left}"], stdout=f, stderr=f)
        failed += done.returncode != 0
    text = log.read_text(errors="replace")
    runs = sum(map(int, RUNS.findall(text)))
    covered = max(map(int, COVERED.findall(text)), default=0)
    found = FOUND.findall(text)
    what = f"FAILED, see {log} and {', '.join(found)}" if failed or found else "nothing found"
    print(f"{name:8} {runs:,} inputs in {spent:.0f} s, {covered} edges: {what}", flush=True)
    return not failed and not found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; none: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--only-build", action="store_true", help="for a machine without clang")
    how.add_argument("--built", action="store_true", help="run what is in the folder")
    given = parser.parse_args()
    targets = given.targets or list(TARGETS)
    unknown = [t for t in targets if t not in TARGETS]
    if unknown:
        parser.error(f"no such target: {unknown[0]}; there are {', '.join(TARGETS)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    if not given.built:
        compiler = os.environ.get("CLANG") or shutil.which("clang")
        if not compiler:
            print(
                "fuzzing the parsers needs clang with libFuzzer: apt-get install clang",
                file=sys.stderr,
            )
            return 2
        flags = ["-static-libstdc++", "-static-libgcc"] if given.only_build else []
        for name in targets:
            build_fuzzer(name, given.folder, compiler, flags)
        if given.only_build:
            return 0
    with ThreadPoolExecutor(given.jobs) as pool:
        good = list(pool.map(lambda name: fuzz(name, given.seconds, given.folder), targets))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
