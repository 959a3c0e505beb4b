"""Recorded work, done again by another process."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Outcome, simulator_environment
from ttanalyze.cli import replay as verb
from ttanalyze.cli import run_command
from ttanalyze.gpu.rebuild.dependency_graph import span
from ttanalyze.verbs.replay.run import Outcome as Compared

pytestmark = [pytest.mark.native, pytest.mark.large]
EVERY = {"epoch": "launch:1", "deterministic": "1", "params": "1"}
RUNS = {
    "example-async": EVERY,
    "example-managed": EVERY,
    "example-globals": EVERY | {"compress": "1"},
    "touched": EVERY | {"regions": "touched"},
    "example-vecadd": EVERY | {"epoch": "sync"},
    "example-race": {"replayable": "1"},
    "example-training": {"replayable": "1", "max_per_kernel": "1"},
    "module_two_copies": EVERY,
    "free_after_wait": EVERY,
    "threads_allocate": {"epoch": "sync", "params": "1"},
    "graph_threads": {"epoch": "graph", "params": "1"},
    "example-graph": {"epoch": "graph;graph-node:step", "params": "1"},
    "silent": {"events": "0"},
}


@pytest.fixture(scope="module")
def runs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Programs, with an epoch after every launch."""
    out = {}
    for name, options in RUNS.items():
        run = tmp_path_factory.mktemp(name) / "run"
        program = {"touched": "example-globals", "silent": "example-vecadd"}.get(name, name)
        command = [word for word in support.command(program, built) if word != "--fixed"]
        environment = support.recording(simulator_environment(), run, **options)
        done = support.run(command, environment)
        assert done.status == 0, done.stderr
        out[name.removeprefix("example-")] = run
    return out


@pytest.fixture(scope="module")
def number(runs: dict[str, Path]) -> str:
    """Returns the sequence number of a launch of the kernel `shift`."""
    events = tt.open(runs["async"]).events
    name = events["kernel"] == "shift"
    return str(events["seq"][name].iloc[-1])


def replay(run: Path, *arguments: str, **environment: str) -> Outcome:
    return support.ttanalyze(
        "replay", run, "--sim", *arguments, environment=simulator_environment(**environment)
    )


def as_json(done: Outcome) -> Any:
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.long
def test_each_launch_replays_alone(runs: dict[str, Path]) -> None:
    """Each replay leaves the recorded contents, at the recorded addresses."""
    done = replay(runs["async"], "--kernel", "accumulate|shift", "--times", "3", "--json")
    assert done.status == 0
    refused, *found = as_json(done)["launches"]
    assert refused["status"] == "refused"
    assert "no epoch has its input" in refused["reason"]
    assert len(found) > 8
    for launch in found:
        assert (launch["status"], launch["differences"], launch["notes"]) == ("same", [], [])
        assert launch["regions"] == 3 and launch["after"] == launch["before"] + 1
        assert len(launch["times"]["runs"]) == 3 and launch["times"]["min_us"] > 0


def test_replay_output_of_one_launch(runs: dict[str, Path], number: str) -> None:
    done = replay(runs["async"], "--launch", number, "--times", "2", "--flush-l2", "--alone")
    assert (done.stderr, done.status) == ("", 0)
    verdict, *lines = done.stdout.splitlines()
    assert verdict == f"same: launch {number} of shift leaves 3 regions as recorded"
    assert [line.split()[0] for line in lines] == ["kernel", "launch", "input", "time"]
    assert "median of 2 runs" in lines[-1] and "(L2 flushed)" in lines[-1]
    under = replay(runs["async"], "--launch", number, "--no-verify", "--under", "env A=1")
    assert under.status == 0 and "ran: not compared" in under.stdout


@pytest.mark.long
def test_differing_values_are_shown(runs: dict[str, Path]) -> None:
    """A racy kernel's sums, in other orders."""
    run = runs["race"]
    random = {"TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": "1"}
    done = replay(run, "--kernel", "racy", "--dtype", "u32", "--json", **random)
    assert done.status == 1
    *_, launch = as_json(done)["launches"]
    (difference,) = launch["differences"]
    assert (launch["status"], difference["blocks"]) == ("differs", [0])
    assert difference["values"]["elements"] == 64 and difference["values"]["count"] > 0
    assert difference["bytes"]["count"] > 0
    number = str(launch["seq"])
    shown = replay(run, "--launch", number, **random)
    assert shown.status == 1 and "  recorded    " in shown.stdout
    within = ("--dtype", "u32", "--tolerance", "1000000")
    allowed = replay(run, "--launch", number, *within, **random)
    assert allowed.status == 0 and "as recorded within the tolerance" in allowed.stdout
    region = f"{difference['region']}="
    either = (*within[:2], "--tolerance", "1", "--tolerance", f"{region}1000000")
    assert replay(run, "--launch", number, *either, **random).stdout == allowed.stdout
    assert replay(run, "--launch", number, *either[:4], "--json", **random).status == 1


def test_replay_refuses_host_written_memory(runs: dict[str, Path]) -> None:
    done = replay(runs["managed"], "--kernel", ".")
    assert done.status == 2
    assert "to which the host may have written since epoch 0" in done.stderr


@pytest.mark.long
def test_failed_recording_is_refused(runs: dict[str, Path], number: str, tmp_path: Path) -> None:
    """Unless the launches, or the epochs, are named."""
    run = shutil.copytree(runs["async"], tmp_path / "run")
    path = run / "p0" / "process.json"
    info = json.loads(path.read_text()) | {"status": "failed", "reason": "disk full"}
    path.write_text(json.dumps(info))
    for arguments in ((), ("--from", "3")):
        done = replay(run, *arguments)
        assert done.status == 2
        assert (
            "the end of the recording is missing: the recording ended early (failed): disk full"
            in done.stderr
        )
    assert replay(run, "--launch", number).status == 0
    assert replay(run, "--from", "3", "--to", "5").status == 0
    lacking = prove(run, "--kernel", "shift", "--times", "2")
    assert lacking.status == 2 and "the end of the recording is missing" in lacking.stderr


@pytest.mark.parametrize(
    ("found", "wanted", "status"),
    [
        ([("same", 3), ("refused", 0)], True, 0),
        ([("same", 3), ("failed", 0)], True, 2),
        ([("same", 3), ("differs", 3), ("failed", 0)], True, 1),
        ([("unchecked", 0), ("refused", 0)], True, 2),
        ([("same", 0)], True, 2),
        ([("refused", 0)], False, 2),
        ([("unchecked", 0), ("refused", 0)], False, 0),
        ([], True, 2),
    ],
)
def test_the_exit_status_says_whether_anything_was_compared(
    found: list[tuple[str, int]], wanted: bool, status: int
) -> None:
    outcomes = [Compared(7, "k", word, regions=regions) for word, regions in found]
    assert verb.status(outcomes, wanted) == status


def test_replay_finds_module_variables(runs: dict[str, Path]) -> None:
    done = replay(runs["globals"], "--kernel", "count")
    assert done.status == 0 and "same 3" in done.stdout
    done = replay(runs["globals"], "--kernel", "count", "--no-verify")
    assert done.status == 0 and "not compared" not in done.stdout
    assert done.stdout.endswith("4 launches: unchecked 3, refused 1\n")


def test_earlier_work_is_replayed_first(runs: dict[str, Path]) -> None:
    """The last epoch before the launch is several launches earlier."""
    *_, launch = as_json(replay(runs["vecadd"], "--kernel", "add", "--json"))["launches"]
    assert launch["status"] == "same"


@pytest.mark.long
def test_selected_launches_replay(runs: dict[str, Path]) -> None:
    """The first launch of each kernel; and one that was not chosen, which takes those before it."""
    done = replay(runs["training"], "--kernel", ".", "--json")
    assert done.status == 0
    found = as_json(done)["launches"]
    assert len({launch["kernel"] for launch in found}) == len(found) == 7
    assert all((launch["status"], launch["notes"]) == ("same", []) for launch in found)
    events = tt.open(runs["training"]).events
    shown = replay(runs["training"], "--kernel", ".").stdout
    launches = (events["kind"] == "launch").sum()
    others = f"{launches - 7} other launches not recorded with --replayable; "
    assert shown.splitlines()[-1].startswith(others)
    number = events["seq"][events["kernel"] == "update"].iloc[3]
    done = replay(runs["training"], "--launch", str(number))
    assert "ran: no epoch has its result" in done.stdout
    assert re.search(r"note +its input comes from epoch \d+ and \d+ launches after it", done.stdout)


def prove(run: Path, *arguments: str) -> Outcome:
    return support.ttanalyze("prove", run, "--sim", *arguments, environment=simulator_environment())


def test_prove_finds_a_racy_kernel(runs: dict[str, Path]) -> None:
    done = prove(runs["race"], "--times", "8", "--dtype", "u32", "--json")
    assert done.status == 1
    found = as_json(done)["launches"]
    assert [one["status"] for one in found] == ["varies"] * 3
    (variation,) = found[0]["variations"]
    widest = variation["widest"]
    assert 0 < variation["runs"] <= 7 and 1 < variation["contents"] <= 8
    assert widest["values"]["elements"] == 64 and widest["values"]["max_ulp"] > 0
    assert widest["bytes"]["count"] > 0
    shown = prove(runs["race"], "--times", "4", "--launch", str(found[0]["seq"]))
    assert shown.status == 1
    assert shown.stdout.startswith(f"varies: launch {found[0]['seq']} of block_sums_racy\n")
    assert shown.stdout.endswith("varies: 1 kernel (block_sums_racy), of 1 kernel in 1 launch\n")


def test_prove_counts_every_run_beyond_the_tolerance(
    runs: dict[str, Path],
) -> None:
    script = """
import dataclasses, sys
from ttanalyze.format import open_run
from ttanalyze.verbs.prove import determinism as module
from ttanalyze.verbs.replay.plan import choice
from ttanalyze.verbs.replay.run import ReplayOptions, replay

seen = []

def look(*arguments, real=module.look):
    found = real(*arguments)
    seen.append(found)
    allowed = len(seen) < 10
    few = dataclasses.replace(found.bytes, count=1)
    return dataclasses.replace(found, tolerated=allowed, bytes=found.bytes if allowed else few)

module.look = look
process = open_run(sys.argv[1]).process(0)
told = []
progress = lambda *counts: told.append(counts)
(verdict,) = module.prove(process, choice(process)[0][:1], 24, progress=progress)
print(verdict.status, len(seen) >= 10, sorted(set(told)) == [(run, 24) for run in range(24)])
told.clear()
replay(process, choice(process)[0][:2], ReplayOptions(times=5), progress=progress)
print(sorted(set(told)) == [(run, 12) for run in range(12)])
"""
    environment = simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="1")
    command = [sys.executable, "-c", script, str(runs["race"])]
    done = support.run(command, environment, cwd=support.ROOT)
    assert (done.stderr, done.stdout) == ("", "varies True True\nTrue\n")


def test_variation_within_the_tolerance(runs: dict[str, Path]) -> None:
    within = ("--dtype", "u32", "--tolerance", "1000000")
    done = prove(runs["race"], "--times", "6", *within)
    assert done.status == 0
    assert done.stdout.startswith("varies within the tolerance: launch ")
    assert "\nnot seen to vary beyond the tolerance, of 1 kernel" in done.stdout


@pytest.mark.long
def test_constant_results_are_not_called_deterministic(runs: dict[str, Path]) -> None:
    done = prove(runs["training"], "--times", "4")
    assert done.status == 0
    *table, last, others = done.stdout.splitlines()
    assert last == "not seen to vary, of 7 kernels in 7 launches" and "not recorded" in others
    assert all("not seen to vary  yes" in line for line in table[1:])
    assert prove(runs["managed"]).status == 2
    assert "--times 1: expected at least 2" in prove(runs["race"], "--times", "1").stderr


@pytest.mark.long
def test_span_of_epochs_replays(runs: dict[str, Path]) -> None:
    done = replay(runs["async"], "--from", "1", "--to", "7", "--json")
    assert done.status == 0
    found = as_json(done)["stretches"]
    assert [(one["first"], one["last"]) for one in found] == [(i, i + 1) for i in range(1, 7)]
    assert all(one["status"] == "same" and one["regions"] == 3 for one in found)
    shown = replay(runs["vecadd"], "--from", "0")
    assert shown.status == 0
    assert "not checked: " in shown.stdout or "copies from the host" not in shown.stdout
    loaded = replay(runs["module_two_copies"], "--from", "0")  # the second one on the way
    assert loaded.status == 0 and loaded.stdout.endswith(": same 3\n"), loaded.stdout
    threads = replay(runs["threads_allocate"], "--from", "0")
    assert threads.status == 0 and "refused" not in threads.stdout, threads.stdout
    graphs = replay(runs["graph_threads"], "--from", "0", "--to", "60")
    assert graphs.status == 0 and graphs.stdout.endswith(": same 60\n"), graphs.stdout


def test_epochs_inside_graphs_can_not_bound_a_span(runs: dict[str, Path]) -> None:
    run = runs["graph"]
    assert replay(run, "--from", "0").stdout.endswith("5 stretches: same 5\n")
    inside = replay(run, "--from", "1", "--to", "3")
    assert inside.status == 2
    assert "epoch 1 can't be a bound: it lies inside a graph: take one before" in inside.stderr


@pytest.mark.long
def test_managed_memory_in_a_span(runs: dict[str, Path]) -> None:
    """What the host wrote to it is not known, but it may have written nothing."""
    refused = replay(runs["managed"], "--from", "0", "--to", "2")
    assert refused.status == 2 and "which the host may have changed" in refused.stderr
    assert "recorded    " not in refused.stdout
    same = replay(runs["free_after_wait"], "--from", "0")
    assert same.status == 0 and "refused" not in same.stdout, same.stdout
    assert "managed" in tt.open(runs["free_after_wait"]).regions["kind"].tolist()


def test_uninitialized_bytes_of_new_allocations(runs: dict[str, Path]) -> None:
    """Of memory that was mapped meanwhile, and a part of which was written to."""
    run = tt.open(runs["free_after_wait"])
    mapped = run.regions[run.regions["kind"] == "vmm"].iloc[0]
    last = int(mapped["born"])
    launch = int(run.epochs["seq"][run.epochs["epoch"] == last].iloc[0])
    note = f"region {mapped['region']}: 1,897,152 uninitialised bytes: assumed to be as recorded"
    for what in (("--from", str(last - 1), "--to", str(last)), ("--launch", str(launch))):
        done = replay(runs["free_after_wait"], *what)
        assert done.status == 0 and "same" in done.stdout and note in done.stdout, done.stdout


def test_unread_memory_is_unknown(runs: dict[str, Path]) -> None:
    """Variables are no memory that a launch names: what became of them is not known."""
    done = replay(runs["touched"])
    assert done.status == 0 and done.stdout.endswith("4 launches: same 3, refused 1\n"), done.stdout
    assert "epochs read only memory that calls name" in done.stdout
    assert replay(runs["touched"], "--from", "0").status == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--launch", "1", "--kernel", "x"),
            "--launch, --kernel and --from/--to cannot be combined",
        ),
        (("--kernel", "("), "'(' is not a regular expression"),
        (("--kernel", "nothing"), "no launch of a kernel whose name has 'nothing'"),
        (("--launch", "1", "--times", "-1"), "--times -1: expected at least 0"),
        (("--launch", "1", "--tolerance", "1"), "--tolerance needs --dtype"),
        (("--dtype", "nothing=f32"), "no region nothing: "),
        (("--dtype", "f32", "--tolerance", "99=1"), "no region 99: "),
        (("--dtype", "f32", "--tolerance", "1", "--tolerance", ",,4"), "--tolerance ,,4: "),
        (("--launch", "1", "--under", "no-such-tool"), "command no-such-tool not found"),
        (("--launch", "1", "--flush-l2"), "--flush-l2 needs --times"),
        (("--from", "0", "--times", "3"), "can be combined only with"),
        (("--from", "0", "--flush-l2"), "can be combined only with"),
        (("--from", "0", "--to", "99"), "no epoch 99: process 0 has epochs 0 to 12"),
        (("--from", "-1", "--to", "3"), "no epoch -1"),
        (("--from", "12"), "epoch 12 is the last of context 0: there is nothing to compare"),
        (("--from", "3", "--to", "3"), "epochs 3 to 3: the first must come before the second"),
    ],
)
def test_invalid_arguments_are_errors(
    runs: dict[str, Path],
    arguments: tuple[str, ...],
    said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    status = run_command(["replay", str(runs["async"]), "--sim", *arguments])
    out, err = capfd.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.long
def test_missing_data_is_named(runs: dict[str, Path]) -> None:
    done = replay(runs["graph_threads"])
    assert (
        done.status == 2 and "launches of graphs, but no launch of a single kernel" in done.stderr
    )
    for arguments in ((), ("--from", "0")):
        done = replay(runs["silent"], *arguments)
        assert done.status == 2 and "recorded with --no-events" in done.stdout + done.stderr


def test_other_calls_can_not_be_replayed(runs: dict[str, Path]) -> None:
    done = replay(runs["async"], "--launch", "1", "--launch", "99999")
    assert done.status == 2
    assert "is not a launch of a kernel" in done.stderr and "no call 99999" in done.stderr


def test_damaged_run_gives_a_one_line_error(
    runs: dict[str, Path], number: str, run_path: Path
) -> None:
    """Contents and images that are not what was recorded."""
    shutil.copytree(runs["async"], run_path)
    (image,) = (run_path / "p0" / "modules").iterdir()
    whole = image.read_bytes()
    image.write_bytes(whole.replace(b"add", b"sub"))
    done = replay(run_path, "--launch", number)
    assert done.status == 2 and "the digest of the image is not its name" in done.stdout
    image.write_bytes(whole)
    for data in (run_path / "p0").glob("data-*.bin"):
        raw = data.read_bytes()
        data.write_bytes(raw[:64] + bytes(byte ^ 1 for byte in raw[64:]))
    done = replay(run_path, "--launch", number)
    assert (done.status, done.stderr) == (2, "")
    assert done.stdout.startswith("failed: launch ")
    assert re.search(r"data-00000\.bin: offset \d+: block \d+ of region", done.stdout)
    for data in (run_path / "p0").glob("data-*.bin"):
        data.unlink()
    done = replay(run_path, "--launch", number)
    assert (done.status, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "data-00000.bin: removed, its contents are gone" in done.stderr


def test_runs_without_parameters_are_refused(run_path: Path) -> None:
    writer = Writer(run_path)
    writer.born(0, bytes(4096))
    writer.epoch("sync", "full")
    writer.event("launch", id=0)
    writer.close()
    done = replay(run_path, "--kernel", ".")
    assert done.status == 2 and "without --params" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.large
def test_many_allocations_in_a_span(run_path: Path) -> None:
    """The time for each does not depend on their number."""
    writer = Writer(run_path)
    writer.epoch("sync", "full")
    for region in range(20_000):
        writer.born(region, bytes(16))
    writer.epoch("sync")
    writer.close()
    process = tt.open(run_path).process(0)
    process.info["options"]["TT_PARAMS"] = "1"
    began = time.process_time()
    assert len(span(process, 0, 1).regions) == 20_000
    assert time.process_time() - began < 2


def test_replay_imports_few_modules() -> None:
    """Most of all without pandas, which takes longer to import than a replay takes."""
    program = "import sys, ttanalyze.cli.replay, ttanalyze.verbs.replay.run; print(*sys.modules)"
    done = support.run(
        [sys.executable, "-c", program], support.bare_environment(), cwd=support.ROOT
    )
    assert not {"pandas", "rich", "logging.handlers"} & set(done.stdout.split())


def test_replay_uses_digest_kernels_on_the_device(runs: dict[str, Path]) -> None:
    """As on a GPU: digests come from the device, which is held until a launch is submitted. No call
    of the driver fails, which a tool that watches would report.
    """
    script = """
import sys
from ttanalyze.gpu import Device
from ttanalyze.gpu.driver import Driver
from ttanalyze.gpu.rebuild.replay_context import ReplayContext
from ttanalyze.format import open_run
from ttanalyze.verbs.replay import Replay
from ttanalyze.verbs.replay.plan import choice, plan

def result(self, call, *arguments, real=Driver.result):
    code = real(self, call, *arguments)
    if code:
        print(call, code)
    return code

Driver.result = result
process = open_run(sys.argv[1]).process(0)
for number in choice(process)[0][:2]:
    rows = plan(process, number).rows
    replay_context = ReplayContext(process, Device.default(), rows, alone=False)
    replay = Replay(process, number, replay_context=replay_context)
    for _ in range(2):
        replay.restore()
        replay.submit()
        print(all(finding.same for finding in replay.compare()))
    print(len(replay.time(2).runs))
"""
    command = [sys.executable, "-c", script, str(runs["training"])]
    done = support.run(command, simulator_environment(), cwd=support.ROOT)
    assert (done.stderr, done.stdout.split()) == ("", ["True", "True", "2"] * 2)


def test_device_digests_equal_host_digests() -> None:
    """Those of the kernel are those of the host, of memory of any size and alignment."""
    script = """
import numpy as np
from ttanalyze.gpu import Device, DeviceBuffer
from ttanalyze.gpu.digests import Digests, HelperKernels

device = Device.default()
data = np.random.default_rng(1).integers(0, 256, 65536 * 2 + 1000, dtype="u1")
buffer = DeviceBuffer.of(data, device)
at = buffer.address
spans = [(at, len(data)), (at + 16, 100), (at + 3, 70001), (at, 65536), (at, 0), (at + 8, 241)]
kernels = HelperKernels(device)
there, here = (Digests(kernels, host).of_memory(spans) for host in (False, True))
pairs = zip(there, here, strict=True)
print([len(a) == len(b) and bool((a == b).all()) for a, b in pairs])
"""
    done = support.run([sys.executable, "-c", script], simulator_environment(), cwd=support.ROOT)
    assert (done.stderr, done.stdout) == ("", f"{[True] * 6}\n")
