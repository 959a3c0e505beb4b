"""The recorder's threads under ThreadSanitizer, which sees accesses that nothing orders.

What the simulator orders by its own lock does not count: a GPU's driver would order less.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

pytestmark = [pytest.mark.native, pytest.mark.large, pytest.mark.long]

BUILT = support.ROOT / "build" / "threads"
RECORDER = BUILT / "ttanalyze" / "lib" / "libttshim.so"
COMPILE = ["gcc", "-std=gnu11", "-g1", "-pthread", "-w", "-fsanitize=thread"]
LAUNCHES = {"epoch": "launch,graph", "deps": "region", "regions": "touched", "params": "1"}
RECORDINGS = {
    "threads_start": {"epoch": "sync"},
    "threads_own_streams": LAUNCHES,
    "threads_allocate": {"epoch": "sync", "regions": "touched", "params": "1"},
    "threads_one_pool": {"epoch": "none"},
    "stream_per_thread": {"epoch": "launch", "overwrite": "drop-oldest", "ring_bytes": "1M"},
    "graph_threads": {"epoch": "graph-node:.*", "graph_stamps": ".*", "timeline": "events"},
    "recorder_graph_epochs_streams": {"epoch": "none", "instrument": "opcode"},
    "simonly_short_of_memory": {"epoch": "launch", "regions": "touched", "sim_memory": "64M"},
    "recorder_blocked_graph": {"epoch": "sync", "stall_ms": "200"},
    "recorder_graph_epochs_blocked": {"epoch": "graph-node:mix", "stall_ms": "200"},
    "recorder_unmap_while_blocked": {
        "epoch": "sync",
        "stall_ms": "300",
        "sim_fault": "one-queue:1",
    },
    "recorder_rank_threads": {"epoch": "sync", "sim_devices": "2"},
    "recorder_large_epochs": {"epoch": "sync", "ring_bytes": "128M"},
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
    """For programs; the recorder is built for ThreadSanitizer."""
    folder = tmp_path_factory.mktemp("threads")
    prefix(folder)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(BUILT)]
    with support.sole_maker(BUILT):
        built = support.run(
            command, support.bare_environment(TT_SANITIZE="thread"), cwd=support.ROOT, timeout=600
        )
    assert built.status == 0, built.stderr
    (folder / "suppressions").write_text("called_from_lib:libcuda.so.1\n")
    return folder


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorder_threads_do_not_race(name: str, folder: Path) -> None:
    program = folder / name
    source = str(support.PROGRAMS / f"{name}.c")
    driver = ["-Wl,--as-needed", str(support.SIMULATOR)]
    include = f"-I{support.ROOT / 'interpose' / 'include'}"
    subprocess.run([*COMPILE, include, "-o", str(program), source, *driver], check=True)
    machine = {k: v for k, v in RECORDINGS[name].items() if k.startswith("sim_")}
    environment = watched(folder, name) | {f"TT_{k.upper()}": v for k, v in machine.items()}
    bare = support.run([*prefix(folder), program], environment)
    run = folder / f"{name}.run"
    recorded = support.recording(environment, run, **RECORDINGS[name])
    # Not for what the program is begun with, which is not built for the sanitizer.
    preload = f"LD_PRELOAD={RECORDER}"
    del recorded["LD_PRELOAD"]
    outcome = support.run([*prefix(folder), "env", preload, program], recorded)
    assert said(folder, name) == ""
    assert (outcome.transcript(), outcome.status) == (bare.transcript(), bare.status)
    assert tt.open(run).processes[0].status in ("complete", "signal")


def test_program_without_thread_sanitizer(folder: Path, built: Path) -> None:
    """The runtime calls functions of the recorder before it can do with code that it watches."""
    name = "threads_own_streams"
    runtime = support.run(["gcc", "-print-file-name=libtsan.so"], dict(os.environ)).stdout.strip()
    environment = watched(folder, "plain")
    bare = support.run(support.command(name, built), environment)
    recorded = support.recording(environment, folder / "plain.run", **LAUNCHES)
    preload = f"LD_PRELOAD={runtime}:{RECORDER}"
    del recorded["LD_PRELOAD"]
    outcome = support.run(
        [*prefix(folder), "env", preload, *support.command(name, built)], recorded
    )
    assert (outcome.stdout, outcome.status, said(folder, "plain")) == (bare.stdout, 0, "")
    assert tt.open(folder / "plain.run").processes[0].status == "complete"


def watched(folder: Path, name: str) -> dict[str, str]:
    """A program's environment. The sanitizer takes only some addresses: wishes are refused."""
    options = f"report_thread_leaks=0 log_path={folder / name}.report atexit_sleep_ms=0"
    return support.simulator_environment(
        TSAN_OPTIONS=f"{options} suppressions={folder / 'suppressions'}",
        TT_SIM_FAULT="elsewhere:1",
    )


def said(folder: Path, name: str) -> str:
    """What the sanitizer reported."""
    return "".join(p.read_text(errors="replace") for p in folder.glob(f"{name}.report.*"))
