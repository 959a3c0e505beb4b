"""Deterministic recordings on the simulator: the same addresses, contents and manifests each time.

The simulator's own addresses differ from run to run, and with TT_SIM_SEED so does what fresh
memory holds.
"""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import check_run, compare, record
from tests.test_entry import without

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
BASE, STRIDE = 0x2000_0020_0000, 1 << 40


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def recorded(command: list[str], run: Path, **simulator: str) -> support.Outcome:
    """Runs a program in a deterministic recording; TT_SIM_ variables are named without that."""
    environment = SIM | {f"TT_SIM_{name.upper()}": value for name, value in simulator.items()}
    more = support.RECORDING_OPTIONS.get(Path(command[0]).name, {})
    return support.run(command, support.recording(environment, run, deterministic="1", **more))


def addresses(built: Path, what: str) -> list[str]:
    """tests/programs/recorder_addresses.c, which prints addresses and contents of memory."""
    return [str(support.build_program("recorder_addresses", built)), what]


def arena(built: Path, *what: str) -> list[str]:
    """tests/programs/recorder_arena.c, which asks about memory."""
    return [str(support.build_program("recorder_arena", built)), *what]


def written(run: Path, name: str) -> bytes:
    """One of the files of a run's only process."""
    return (run / "p0" / name).read_bytes()


# Runs whose work is done in another order, on memory that holds other things at first.
VARIATIONS: list[dict[str, str]] = [
    {"seed": "1"},
    {"seed": "2", "fault": "slow-copy:300"},
    {"seed": "3", "schedule": "random"},
]


# ---- first do no harm ----


@pytest.mark.parametrize("name", support.all_names())
def test_recording_does_not_change_program_behaviour(name: str, built: Path, run: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM | {"TT_SIM_SEED": "1"})
    outcome = recorded(command, run, seed="1")
    moved = support.Outcome(outcome.stdout, without_addresses(outcome.stderr), outcome.status)
    compare(name, support.Outcome(bare.stdout, without_addresses(bare.stderr), bare.status), moved)
    check_run(name, run)


def without_addresses(text: str) -> str:
    """What the simulator says of faults names the address, or the mapping it lies in."""
    return re.sub(r"0x[0-9a-f]{9,}|at byte \d+ of an allocation of \d+ bytes", "ADDRESS", text)


@pytest.mark.parametrize("what", ["attributes", "errors", "pools", "ending"])
def test_pointer_queries_are_unchanged(what: str, built: Path, run: Path) -> None:
    """What is said about pointers and pools, by calls that fail and after the recorder's end."""
    bare = support.run(arena(built, what), SIM)
    outcome = recorded(arena(built, what), run)
    assert bare.status == 0
    assert bare.stdout.count("\n") > 5
    assert outcome == bare


@pytest.mark.parametrize("name", ["simonly_two_devices", "simonly_far_copies"])
def test_two_devices_have_their_own_addresses(name: str, built: Path, run: Path) -> None:
    command = [str(support.build_program(name, built))]
    bare = support.run(command, SIM | {"TT_SIM_DEVICES": "2"})
    outcome = recorded(command, run, devices="2")
    assert outcome.stdout == bare.stdout
    assert outcome.status == bare.status == 0
    regions = tt.open(run).regions
    bases = regions.loc[regions["captured"]].groupby("device")["base"].min()
    assert list(bases) == [BASE, BASE + STRIDE]


@pytest.mark.long
@pytest.mark.large
def test_many_small_allocations(built: Path, run: Path) -> None:
    command = [str(support.build_program("simonly_many", built))]
    bare = support.run(command, SIM)
    outcome = recorded(command, run)
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)


# ---- the same each time ----


REPEATED = [
    *(f"example-{name}" for name in support.EXAMPLE_ARGUMENTS),
    *("alloc_many", "alloc_neighbours", "alloc_pitch", "alloc_reuse", "alloc_sizes"),
    *("async_alloc", "async_reuse", "context_two", "copy_2d", "copy_two_streams"),
    *("graph_capture_memory", "graph_nodes", "managed_memory", "memset_2d", "module_globals"),
    *("pools", "stream_blocking", "vmm_remap"),
]


@pytest.mark.sampled
@pytest.mark.large
@pytest.mark.parametrize("name", REPEATED)
def test_manifests_of_equal_runs_are_identical(name: str, built: Path, tmp_path: Path) -> None:
    """And so are the records of digests, and their order."""
    runs = [tmp_path / str(i) for i in range(len(VARIATIONS))]
    for run, simulator in zip(runs, VARIATIONS, strict=True):
        recorded(support.command(name, built), run, **simulator)
    for file in ("manifest.json", "digests.bin"):
        assert len({written(run, file) for run in runs}) == 1, file
    texts = {(run / "manifest.json").read_bytes() for run in runs}
    assert len(texts) == 1
    assert json.loads(texts.pop())["processes"][0]["epochs"]


@pytest.mark.large
@pytest.mark.parametrize("name", sorted(support.EXAMPLE_ARGUMENTS))
def test_manifests_of_other_work_differ(name: str, built: Path, tmp_path: Path) -> None:
    command = support.command(f"example-{name}", built)
    assert recorded(command, tmp_path / "one").status == 0
    assert recorded([*command, "--seed", "77"], tmp_path / "two").status == 0
    one, two = ((tmp_path / run / "manifest.json").read_bytes() for run in ("one", "two"))
    assert one != two


@pytest.mark.long
@pytest.mark.large
def test_threads_that_alternate(built: Path, tmp_path: Path) -> None:
    """They allocate, work and free on streams of their own, one after the other."""
    runs = [tmp_path / str(i) for i in range(len(VARIATIONS))]
    outcomes = [
        recorded(arena(built, "turns"), run, **simulator)
        for run, simulator in zip(runs, VARIATIONS, strict=True)
    ]
    assert outcomes[0].status == 0
    assert outcomes[0] == outcomes[1] == outcomes[2]
    places = re.findall(r"\d+: ([0-9a-f]+)\n", outcomes[0].stdout)
    assert len(places) == 32
    assert all(BASE <= int(place, 16) < BASE + STRIDE for place in places)
    for file in ("manifest.json", "digests.bin"):
        assert len({written(run, file) for run in runs}) == 1, file


@pytest.mark.large
@pytest.mark.parametrize("what", ["plain", "async", "contexts", "capture", "full"])
def test_addresses_and_contents_are_the_same(what: str, built: Path, tmp_path: Path) -> None:
    command = addresses(built, what)
    one, two = (recorded(command, tmp_path / seed, seed=seed, memory="128M") for seed in ("1", "2"))
    assert one == two
    assert one.status == 0
    manifests = [(tmp_path / seed / "manifest.json").read_bytes() for seed in ("1", "2")]
    assert manifests[0] == manifests[1]


@pytest.mark.large
@pytest.mark.parametrize("what", ["plain", "async"])
def test_new_memory_is_zero(what: str, built: Path, run: Path) -> None:
    """The program leaves no byte zero in what it frees, so this is about reused memory too."""
    outcome = recorded(addresses(built, what), run)
    found = re.findall(r"at ([0-9a-f]+), (\d+) not zero", outcome.stdout)
    assert len(found) > 25
    assert {count for _, count in found} == {"0"}
    assert len({address for address, _ in found}) < len(found)
    bare = support.run(addresses(built, what), SIM)
    assert ", 0 not zero" not in bare.stdout


@pytest.mark.large
def test_allocation_addresses(built: Path, run: Path) -> None:
    outcome = recorded(addresses(built, "plain"), run)
    first = [int(address, 16) for address in re.findall(r"at ([0-9a-f]+),", outcome.stdout)][:15]
    small, page = 512, 2 << 20
    assert first[:4] == [BASE, BASE + small, BASE + 2 * small, BASE + 4 * small]
    assert first[7:9] == [BASE + page, BASE + page + 2**20 - small]
    assert first[9:13] == [BASE + n * page for n in (2, 3, 5, 6)]
    assert BASE < first[13] < first[14] < BASE + page


def test_regions_show_whether_they_are_in_the_arena(built: Path, tmp_path: Path) -> None:
    for name, kinds in {
        "async": {"arena": False, "host": True},
        "managed": {"managed": True},
        "vmm": {"vmm": True},
        "globals": {"global": True, "arena": False},
    }.items():
        recorded(support.command(f"example-{name}", built), tmp_path / name)
        regions = tt.open(tmp_path / name).regions
        assert set(regions["kind"]) & {"device", "async"} == set()
        unstable = regions.groupby("kind")["unstable"].unique()
        for kind, expected in kinds.items():
            if kind in unstable:
                assert list(unstable[kind]) == [expected], (name, kind)
        ours = regions[regions["kind"] == "arena"]
        assert ((ours["base"] >= BASE) & (ours["base"] < BASE + STRIDE)).all()
    assert not (tt.open(tmp_path / "globals").regions["kind"] == "device").any()


def test_reused_memory_is_a_new_region(built: Path, run: Path) -> None:
    recorded(support.command("alloc_reuse", built), run)
    opened = tt.open(run)
    regions = opened.regions[opened.regions["kind"] == "arena"]
    assert list(regions["size"]) == [4000 * (i % 4 + 1) for i in range(12)]
    assert regions["base"].nunique() == 2
    for region, born in zip(regions["region"], regions["born"], strict=True):
        words = opened.read(int(born), int(region), dtype="u4")
        np.testing.assert_array_equal(words, words[0] + np.arange(len(words), dtype="u4"))


# ---- what the driver would have given ----


def test_row_pitch_equals_the_drivers(built: Path, run: Path) -> None:
    bare = support.run(addresses(built, "pitches"), SIM)
    outcome = recorded(addresses(built, "pitches"), run)
    assert bare.stdout.count("\n") == 108
    assert outcome.stdout == bare.stdout
    assert set(tt.open(run).regions["kind"]) == {"arena"}


def test_device_capacity_is_unchanged(built: Path, run: Path) -> None:
    """All of it, again and again: nothing is lost to us or to what was freed."""
    outcome = recorded(addresses(built, "full"), run, memory="128M")
    bare = support.run(addresses(built, "full"), SIM | {"TT_SIM_MEMORY": "128M"})
    full = "16 blocks, then CUDA_ERROR_OUT_OF_MEMORY\n"
    assert bare.stdout.startswith(full)
    assert outcome.stdout.count(full) == 2
    assert outcome.stdout.count("-> CUDA_SUCCESS") == 8


@pytest.mark.parametrize("deterministic", ["0", "1"])
def test_freed_memory_is_available_to_all_allocators(
    deterministic: str, built: Path, run: Path
) -> None:
    """A full device, and memory that went in the order of a stream: the recorder keeps nothing."""
    small = SIM | {"TT_SIM_MEMORY": "128M"}
    bare = support.run(arena(built, "full"), small)
    environment = support.recording(small, run, deterministic=deterministic)
    outcome = support.run(arena(built, "full"), environment)
    assert bare.stdout.count("OUT_OF_MEMORY") == 4
    assert bare.stdout.count("-> CUDA_SUCCESS") == 9
    if deterministic == "1":
        assert outcome.stdout == bare.stdout
    assert outcome.transcript() == bare.transcript()


def test_full_device_does_not_wait_for_other_devices(built: Path, run: Path) -> None:
    """The recorder unmaps nothing of its own while work elsewhere waits for the host."""
    two = SIM | {"TT_SIM_DEVICES": "2"}
    command = [str(support.build_program("recorder_other_device_full", built))]
    bare = support.run(command, two)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in bare.stdout
    environment = support.recording(two, run, deterministic="1", epoch="none")
    assert support.run(command, environment) == bare


def test_freed_memory_is_reused_when_safe(built: Path, run: Path) -> None:
    outcome = recorded(arena(built, "reuse"), run)
    assert re.findall(r"(.+): the same (\d)", outcome.stdout) == [
        ("freed and allocated in one stream", "1"),
        ("freed in another", "0"),
        ("allocated in that", "1"),
        ("another stream waited for", "0"),
        ("the stream waited for", "1"),
        ("a new stream in place of a destroyed one", "0"),
        ("freed with a wait", "1"),
    ]


@pytest.mark.large
@pytest.mark.long
def test_allocations_larger_than_four_gibibytes(built: Path, run: Path) -> None:
    size = (4 << 30) + 1
    environment = support.recording(
        SIM | {"TT_SIM_MEMORY": "5G"}, run, deterministic="1", epoch="none"
    )
    outcome = support.run(arena(built, "giant", str(size)), environment)
    assert f"{size} bytes: 3 9, its own 1\n" in outcome.stdout
    assert outcome.stdout.count("CUDA_ERROR_INVALID_VALUE") == 2
    region = tt.open(run).regions.iloc[0]
    assert (region["kind"], region["size"], region["base"]) == ("arena", size, BASE)


def test_shared_handles_work(built: Path, run: Path) -> None:
    """Where devices can do that; elsewhere the driver says no, as without us."""
    command = [str(support.build_program("recorder_ipc", built))]
    assert recorded(command, run.with_name("without")) == support.run(command, SIM)
    outcome = recorded(command, run, fault="ipc:1")
    given, opened, changed, found = (
        re.findall(rf"^{word}: (\d+ bytes, \w+)$", outcome.stdout, re.M)
        for word in ("given", "opened", "changed", "found")
    )
    assert len(given) == len(set(given)) == 4
    assert given == opened
    assert changed == found != given
    assert "m.freed, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) -> CUDA_ERROR_INVALID" in outcome.stdout
    assert "the other ended with 0\n" in outcome.stdout
    processes = tt.open(run).regions.groupby("process")["kind"].agg(list)
    assert sorted(map(sorted, processes)) == [["arena"] * 6, ["ipc"] * 4]


def test_handle_opened_on_two_devices(built: Path, run: Path) -> None:
    """Each device gets an address that its work may use."""
    command = [str(support.build_program("recorder_ipc_devices", built))]
    outcome = recorded(command, run, fault="ipc:1", devices="2")
    calls = [line for line in outcome.stdout.splitlines() if "->" in line]
    assert len(calls) == 8
    assert all(line.endswith("-> CUDA_SUCCESS") for line in calls)
    opened, found = (
        re.findall(rf"^{word}: (\d+ bytes, \w+)$", outcome.stdout, re.M)
        for word in ("opened", "found")
    )
    assert opened == found
    assert "the other ended with 0\n" in outcome.stdout


def test_fork_while_a_handle_is_opened(built: Path, run: Path) -> None:
    """The child does not wait for a lock that a thread of its parent holds."""
    command = [str(support.build_program("recorder_ipc_devices", built)), "fork"]
    outcome = recorded(command, run, fault="ipc:1", devices="2")
    assert "the child ended with 0\n" in outcome.stdout
    assert "the other ended with 0\n" in outcome.stdout


def test_devices_without_peer_access(built: Path, run: Path) -> None:
    """A copy from one to the other does not end the arena of either."""
    command = [str(support.build_program("recorder_peer_copy", built))]
    outcome = recorded(command, run, fault="apart:1", devices="2")
    assert outcome == support.Outcome("", "", 0)
    assert set(tt.open(run).regions["kind"]) == {"arena"}


def test_new_context_reuses_addresses(built: Path, run: Path) -> None:
    outcome = recorded(addresses(built, "contexts"), run)
    contexts = re.findall(r"context \d: (\w+) (\w+)\n", outcome.stdout)
    assert len(contexts) == 2
    assert contexts[0] == contexts[1]
    assert outcome.stdout.count("-> CUDA_ERROR_INVALID_VALUE") == 4
    assert f"outer 5000 at {BASE:x}" in outcome.stdout
    assert f"after the reset 5000 at {BASE:x}" in outcome.stdout


def test_allocations_during_stream_capture(built: Path, run: Path) -> None:
    """Memory that is freed during one is not in use again before the context was waited for."""
    outcome = recorded(addresses(built, "capture"), run)
    assert "another place 1\n" in outcome.stdout
    assert "the same place 1\n" in outcome.stdout
    bare = support.run(addresses(built, "capture"), SIM)
    calls = [line for line in bare.stdout.splitlines() if "->" in line]
    assert calls == [line for line in outcome.stdout.splitlines() if "->" in line]
    assert sum("CAPTURE_UNSUPPORTED" in line for line in calls) == 2


# ---- where it is not to be had ----


def check_the_drivers_own(outcome: support.Outcome, bare: support.Outcome, run: Path) -> None:
    """Nothing breaks: addresses are the driver's, which is said once and in the run."""
    lines = [line for line in outcome.stderr.splitlines() if "the recorder's memory" not in line]
    assert len(lines) == 1
    assert "may differ between runs" in lines[0]
    assert outcome.status == bare.status == 0
    assert re.sub(r"at \w+", "at ADDRESS", outcome.stdout) == re.sub(
        r"at \w+", "at ADDRESS", bare.stdout
    )
    opened = tt.open(run)
    assert set(opened.regions["kind"]) == {"device"}
    assert opened.regions["unstable"].all()
    assert lines[0].removeprefix("ttanalyze: ") in opened.processes[0].info["warnings"]
    assert tt.verify(opened, run / "manifest.json").same


@pytest.mark.large
def test_occupied_addresses(built: Path, run: Path) -> None:
    command = addresses(built, "taken")
    check_the_drivers_own(recorded(command, run), support.run(command, SIM), run)


@pytest.mark.large
@pytest.mark.parametrize("call", ["cuMemAddressReserve", "cuMemRelease", "cuMemSetAccess"])
def test_driver_without_fixed_addresses(call: str, built: Path, tmp_path: Path) -> None:
    driver, run = without(tmp_path / "driver", call), tmp_path / "run"
    command = addresses(built, "plain")
    outcome = support.run(command, support.recording(driver, run, deterministic="1"))
    check_the_drivers_own(outcome, support.run(command, driver), run)


def test_address_space_below_a_tebibyte(built: Path, run: Path) -> None:
    """A process that is allowed little address space gets a smaller range at the same place."""
    if support.sanitizer_runtimes():
        pytest.skip("sanitizers need address space of their own")
    limit = 200 << 30
    command = ["sh", "-c", f"ulimit -v {limit >> 10}; exec {' '.join(addresses(built, 'plain'))}"]
    assert resource.getrlimit(resource.RLIMIT_AS)[1] in (resource.RLIM_INFINITY, limit)
    outcome = recorded(command, run)
    assert outcome.stderr == ""
    assert f"at {BASE:x}, 0 not zero" in outcome.stdout
    assert set(tt.open(run).regions["kind"]) == {"arena"}


@pytest.mark.long
def test_memory_in_larger_pages(built: Path, run: Path) -> None:
    """A device that maps memory in pages of 8 MiB: addresses begin at one of these."""
    outcome = recorded(addresses(built, "plain"), run, fault=f"granularity:{8 << 20}")
    assert f"at {BASE + (6 << 20):x}, 0 not zero" in outcome.stdout
    assert set(tt.open(run).regions["kind"]) == {"arena"}


@pytest.mark.parametrize("policy", ["drop-oldest", "fail", "backpressure"])
def test_deterministic_mode_needs_backpressure(policy: str, built: Path, run: Path) -> None:
    """With another policy than backpressure what is lost would depend on timing."""
    command = support.command("alloc_reuse", built)
    bare = support.run(command, SIM)
    environment = support.recording(SIM, run, deterministic="1", overwrite=policy)
    outcome = support.run(command, environment)
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    if policy == "backpressure":
        assert outcome.stderr == ""
        assert tt.open(run).processes[0].info["deterministic"]
        return
    assert re.fullmatch(
        r"ttanalyze: .*TT_DETERMINISTIC=1 needs TT_OVERWRITE=backpressure: .*\n", outcome.stderr
    )
    assert not run.exists()
    launched = record(command, SIM, run, "--deterministic", "--overwrite", policy)
    assert launched.status == 2
    assert re.fullmatch(
        r"ttanalyze: .*--deterministic needs --overwrite backpressure: .*\n", launched.stderr
    )
    assert not run.exists()


@pytest.mark.parametrize("zones", ["0", "256"])
def test_calls_after_a_fault_return_its_error(zones: str, built: Path, run: Path) -> None:
    command = support.command("recorder_fault_async", built)
    bare = support.run(command, SIM)
    assert bare.stdout.count("CUDA_ERROR_LAUNCH_FAILED") == 6
    recording = support.recording(SIM, run, deterministic="1", zones=zones)
    compare("", bare, support.run(command, recording))
