"""The recorder's threads under ThreadSanitizer, which sees accesses that nothing orders.

What the simulator orders by its own lock does not count: a GPU's driver would order less.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests import support

pytestmark = [pytest.mark.native, pytest.mark.large]

INTERPOSE = support.ROOT / "interpose"
COMPILE = ["gcc", "-std=gnu11", "-g1", "-pthread", "-w", "-fsanitize=thread"]
INCLUDE = [f"-I{INTERPOSE}", f"-I{INTERPOSE / 'cuda'}"]
PTX = """
	.globl {name}, {name}_size
{name}:	.incbin "{path}"
	.byte 0
	.balign 8
{name}_size:	.quad {size}
"""
LAUNCHES = {"epoch": "launch,graph", "deps": "region", "regions": "touched", "params": "1"}
RECORDINGS = {
    "threads_start": {"epoch": "sync"},
    "threads_own_streams": LAUNCHES,
    "threads_allocate": LAUNCHES,
    "threads_one_pool": {"epoch": "none"},
    "stream_per_thread": {"epoch": "launch", "overwrite": "drop-oldest", "ring_bytes": "1M"},
    "graph_threads": {"epoch": "graph-node:.*", "graph_stamps": ".*", "timeline": "events"},
    "simonly_short_of_memory": {"epoch": "launch", "regions": "touched", "sim_memory": "64M"},
    "exit_thread": {"epoch": "sync", "launch_delay": "200000"},
    "exit_sigterm_thread": {"epoch": "sync"},
}


@cache
def prefix(folder: Path) -> tuple[str, ...]:
    """What programs are begun with, so that the sanitizer finds the addresses that it wants."""
    (folder / "nothing.c").write_text("int main(void) { return 0; }\n")
    build = [*COMPILE, "-o", str(folder / "nothing"), str(folder / "nothing.c")]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"gcc builds nothing for ThreadSanitizer: {built.stderr.splitlines()[-1]}")
    said = ""
    for words in ((), ("setarch", "-R")):
        ran = [support.run([*words, folder / "nothing"], {}) for _ in range(5)]
        if not any(r.status for r in ran):
            return words
        said = "".join(r.stderr for r in ran)
    pytest.skip(f"ThreadSanitizer does not run here: {said.splitlines()[0]}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorder, built for ThreadSanitizer."""
    folder = tmp_path_factory.mktemp("threads")
    prefix(folder)
    texts = ["\t.section .rodata\n"]
    for name in ("capture", "replay"):
        path = INTERPOSE / "capture" / f"{name}.ptx"
        texts.append(PTX.format(name=f"{name}_ptx", path=path, size=path.stat().st_size))
    (folder / "ptx.s").write_text("".join(texts))
    library = ["-shared", "-Wl,-Bsymbolic-functions", "-Wl,-z,nodelete", "-ldl"]
    library += ["-o", str(folder / "libttshim.so")]
    entry = INTERPOSE / "entry" / "entry.c"  # its dlsym must be a tail call
    build = [*COMPILE, "-D_GNU_SOURCE=", *INCLUDE, "-fPIC", "-fvisibility=hidden"]
    subprocess.run([*build, "-O2", "-c", entry, "-o", folder / "entry.o"], check=True)
    sources = [p for p in INTERPOSE.rglob("*.c") if p.parent.name not in ("sim", "cupti", "load")]
    sources.remove(entry)
    subprocess.run([*build, *library, *sources, folder / "entry.o", folder / "ptx.s"], check=True)
    (folder / "suppressions").write_text("called_from_lib:libcuda.so.1\n")
    return folder


@pytest.mark.parametrize("name", RECORDINGS)
def test_threads_do_not_race(name: str, folder: Path) -> None:
    program = folder / name
    source = str(support.PROGRAMS / f"{name}.c")
    driver = ["-Wl,--as-needed", str(support.SIMULATOR)]
    subprocess.run([*COMPILE, *INCLUDE, "-o", str(program), source, *driver], check=True)
    reports = folder / f"{name}.report"
    environment = support.simulator_environment(
        TSAN_OPTIONS=f"report_thread_leaks=0 log_path={reports} "
        f"suppressions={folder / 'suppressions'} atexit_sleep_ms=0"
    )
    run = folder / f"{name}.run"
    recorded = support.recording(environment, run, **RECORDINGS[name])
    # Not for what the program is begun with, which is not built for the sanitizer.
    preload = f"LD_PRELOAD={folder / 'libttshim.so'}"
    del recorded["LD_PRELOAD"]
    support.run([*prefix(folder), "env", preload, program], recorded)
    assert (run / "p0" / "epochs.bin").exists(), "it was recorded"
    said = "".join(p.read_text(errors="replace") for p in folder.glob(f"{name}.report.*"))
    assert not said
