"""Launches recorded so that they can be run again: all that they need is in the run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xxhash

import ttanalyze as tt
from tests import support
from tests.recordings import record
from tests.rundir import digest, edit, forget_endings, reseal_records
from tests.support import Outcome
from ttanalyze import options
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout
from ttanalyze.format.process import Process
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
N = 4096


@pytest.fixture(scope="module")
def recorded(
    built: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Outcome, Outcome, tt.Run]:
    """A program without us and recorded, and the run."""
    run = tmp_path_factory.mktemp("replayable") / "run"
    command = support.command("recorder_replayable", built)
    bare = support.run(command, SIM, cwd=run.parent)
    environment = support.recording(SIM, run, replayable="1", max_per_kernel="4")
    return bare, support.run(command, environment, cwd=run.parent), tt.open(run)


@pytest.fixture
def process(recorded: tuple[Outcome, Outcome, tt.Run]) -> Process:
    return recorded[2].processes[0]


def named(process: Process, kernel: str) -> layout.Array:
    """The launches of a kernel that can be run again."""
    return process.launches[[process.kernel(f) == kernel for f in process.launches["function"]]]


def settings(process: Process, record: np.void) -> dict[tuple[str, int], int]:
    found = process.kept.settings(record)
    return {(layout.SETTING_KINDS[s["what"]], int(s["number"])): int(s["value"]) for s in found}


def memory(process: Process, epoch: int, base: int, size: int) -> layout.Array:
    run = tt.open(process.path.parent)
    region = int(run.regions.query("base == @base")["region"].iloc[0])
    return run.read(epoch=epoch, region=region, dtype="u4", process=0)[: size // 4]


def test_replayable_mode_does_not_change_the_program(
    recorded: tuple[Outcome, Outcome, tt.Run],
) -> None:
    bare, with_us, run = recorded
    assert with_us == bare
    assert run.processes[0].info["warnings"] == []
    assert tt.verify(run, run.path / "manifest.json").same


def test_info_names_replayable_launches(recorded: tuple[Outcome, Outcome, tt.Run]) -> None:
    summary = info(recorded[2])
    (process,) = summary.processes
    assert process.replayable == {"launches": 12, "kernels": 8, "without_code": {}}
    assert "12 launches of 8 kernels" in info_text(summary)


def test_each_launch_has_epochs_before_and_after(process: Process) -> None:
    """fill, reverse and bump follow one another: the state after one is the one before the next."""
    kernels = [process.kernel(f) for f in process.launches["function"]]
    assert kernels == [
        "fill",
        "reverse",
        "bump",
        *["add"] * 4,
        *["params", "mix", "params", "fill", "fill"],
    ]
    fill, reverse, bump = process.launches[:3]
    assert (fill["after"], reverse["after"]) == (reverse["before"], bump["before"])
    triggers = [layout.TRIGGERS[t] for t in process.epochs["trigger"]]
    assert triggers[:4] == ["kernel-before", *["kernel-after"] * 3]
    (event,) = process.events_between(int(fill["seq"]) - 1, int(fill["seq"]))
    base = int(np.frombuffer(process.params(event)[:8], "<u8")[0])
    assert not memory(process, int(fill["before"]), base, 4 * N).any()
    expected = np.arange(100, 100 + N, dtype="u4")
    assert (memory(process, int(fill["after"]), base, 4 * N) == expected).all()
    expected[:64] = expected[:64][::-1]
    assert (memory(process, int(reverse["after"]), base, 4 * N) == expected).all()


def test_module_variables_are_captured_before_the_first_launch(process: Process) -> None:
    (bump,) = named(process, "bump")
    regions = tt.open(process.path.parent).regions
    counter, *_ = regions.query("label == 'counter'")["region"]  # of each module
    first, bumped = (
        tt.open(process.path.parent).read(epoch=int(bump[e]), region=int(counter), dtype="u4")
        for e in ("before", "after")
    )
    assert (first[0], bumped[0]) == (7, 10)
    assert (
        regions["born"][regions["region"] == counter].iloc[0] <= named(process, "fill")["before"][0]
    )


def test_no_other_work_between_the_two_epochs(process: Process) -> None:
    """Another thread sets memory all the time: never between the epochs of a launch."""
    adds = named(process, "add")
    run = tt.open(process.path.parent)
    assert len(adds) == 4
    busy = run.regions.query("kind == 'arena'")["base"].max()
    changed = set()
    for launch in adds:
        before, after = (memory(process, int(launch[e]), busy, 4 * N) for e in ("before", "after"))
        assert (before == after).all()
        changed.add(int(before[0]))
        between = (process.epochs["number"] > launch["before"]) & (
            process.epochs["number"] <= launch["after"]
        )
        assert between.sum() == 1
        flags = process.epochs["flags"][[launch["before"], launch["after"]]]
        assert not (flags & (layout.LOOSE | layout.REFUSED)).any()
        earlier = process.events_between(0, int(launch["seq"]) - 1)
        sets = earlier[earlier["kind"] == layout.EVENT_KINDS.index("set")]
        assert before[0] == (sets["src"][-1] if len(sets) else 0)  # the numbers of calls say so too


def test_epochs_include_work_of_other_threads(built: Path, tmp_path: Path) -> None:
    """Each has just what was submitted up to the call that it names as its cut."""
    command = support.command("recorder_replayable", built)
    environment = support.recording(SIM, tmp_path / "run", epoch="launch:1", params="1")
    assert support.run(command, environment, cwd=tmp_path).status == 0
    process = tt.open(tmp_path / "run").processes[0]
    sets = process.events[process.events["kind"] == layout.EVENT_KINDS.index("set")]
    busy = int(sets["dst"][0])
    checked = 0
    for epoch in process.epochs[process.epochs["flags"] & layout.LOOSE == 0]:
        before = sets[sets["seq"] <= epoch["cut"]]
        if len(before) and epoch["trigger"] == layout.TRIGGERS.index("launch"):
            found = memory(process, int(epoch["number"]), busy, 4 * N)
            assert (found == before["src"][-1]).all(), epoch
            checked += 1
    assert checked


def test_launch_settings_are_recorded(process: Process) -> None:
    (reverse,) = named(process, "reverse")
    fill, *_ = named(process, "fill")
    found = settings(process, reverse)
    assert found["attribute", 8] > settings(process, fill)["attribute", 8] >= 49152
    assert (found["attribute", 9], found["cache", 0], found["limit", 0]) == (100, 1, 4096)
    assert settings(process, fill)["cache", 0] == 0
    assert np.int64(np.uint64(found["priority", 0])) == -1
    first, second = process.kept.attributes(reverse)
    assert (first["id"], second["id"]) == (8, 6)
    assert first["value"].view("<i4")[0] == -1
    assert second["value"].view("<i4")[0] == 1
    assert len(process.kept.attributes(fill)) == 0


def test_module_images_and_load_options_are_recorded(process: Process) -> None:
    """A library that was loaded before there was a context, and a module: the same image."""
    library, module, large, unused, file = process.modules
    assert library["image"] == module["image"] == file["image"] != 0
    missing = [layout.MISSING[m] for m in process.modules["missing"]]
    assert missing == ["nothing"] * 3 + ["unused", "nothing"]
    assert process.strings.get(int(file["path"])) == "kernels.ptx"
    assert large["size"] > 9 << 20 and not unused["image"]
    for image in (int(module["image"]), int(large["image"])):
        contents = (process.path / "modules" / f"{image:016x}").read_bytes()
        assert xxhash.xxh3_64_intdigest(contents) == image
    assert len(list((process.path / "modules").iterdir())) == 2
    assert settings(process, library) == {("jit", 7): 2, ("library", 1): 1}
    assert settings(process, module) == {("jit", 0): 40}
    of = [(process.kernel(int(f["id"])), int(f["module"])) for f in process.functions]
    assert ("add", library["id"]) in of
    assert [at for name, at in of if name == "fill"] == [module["id"], large["id"], file["id"]]


def test_live_textures_are_recorded(process: Process) -> None:
    """While they are there: the second launch with the same parameters has none."""
    with_texture, without = named(process, "params")
    (view,) = process.kept.views(with_texture)
    assert layout.VIEW_KINDS[view["kind"]] == "texture"
    assert (view["param"], view["resource"], view["size"]) == (16, 2, 4 * N)
    assert view["address"] in set(tt.open(process.path.parent).regions["base"])
    assert len(process.kept.views(without)) == 0


@pytest.mark.large
def test_kernels_are_selected_by_name_and_count(built: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = support.command("example-training", built)
    done = record(
        command,
        SIM,
        run,
        "--sim",
        "--replayable",
        "--kernel",
        "^(matmul|relu)$",
        "--max-per-kernel",
        "1",
    )
    assert done.status == 0
    process = tt.open(run).processes[0]
    kernels = [process.kernel(f) for f in process.launches["function"]]
    assert len(kernels) == len(set(kernels)) > 0
    assert len(process.epochs) <= 2 * len(kernels)
    assert all(kernel in ("matmul", "relu") for kernel in kernels)


@pytest.mark.large
def test_launches_are_selected_by_number(built: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [*support.command("example-vecadd", built), "--size", "500"]
    window = ("--max-per-kernel", "0", "--epoch", "@4-5")
    assert record(command, SIM, run, "--sim", "--replayable", *window).status == 0
    process = tt.open(run).processes[0]
    launches = process.event_columns("kind", "seq")
    numbers = np.flatnonzero(launches["kind"] == event_kinds.KIND["launch"])[3:5]
    assert list(process.launches["seq"]) == list(launches["seq"][numbers])
    assert len(process.epochs) == 3


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kernel": "x"}, "--kernel needs --replayable"),
        ({"max_per_kernel": "2"}, "--max-per-kernel needs --replayable"),
        ({"crash_safe": True}, "--crash-safe needs --replayable"),
        ({"replayable": True, "regions": "touched"}, "--replayable needs --regions all"),
        ({"replayable": True, "events": False}, "--replayable needs --events"),
        ({"replayable": True, "retain": "4"}, "--replayable needs --retain 0"),
        ({"replayable": True, "overwrite": "fail"}, "--replayable needs --overwrite backpressure"),
        ({"replayable": True, "deps": "off"}, "another --deps than off: epochs would be torn"),
        ({"replayable": True, "kernel": "("}, "--kernel (: "),
        ({"replayable": True, "kernel_events": "off"}, "another --kernel-events than off"),
    ],
)
def test_conflicting_options_are_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(Error, match=re.escape(reason)):
        options.variables(given, {})


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"crash_safe": "1"}, "TT_CRASH_SAFE needs TT_REPLAYABLE=1"),
        ({"replayable": "1", "regions": "touched"}, "TT_REPLAYABLE=1 needs TT_REGIONS=all"),
        ({"replayable": "1", "deterministic": "0"}, "TT_REPLAYABLE=1 needs TT_DETERMINISTIC=1"),
        ({"replayable": "1", "overwrite": "fail"}, "TT_OVERWRITE=backpressure"),
        ({"replayable": "1", "deps": "off"}, "TT_REPLAYABLE=1 needs another TT_DEPS than off"),
        ({"replayable": "1", "kernel": "("}, "TT_KERNEL=(: "),
    ],
)
def test_conflicting_variables_are_refused(
    variables: dict[str, str], reason: str, built: Path, tmp_path: Path
) -> None:
    command = support.command("example-vecadd", built)
    done = support.run(command, support.recording(SIM, tmp_path / "run", **variables))
    assert done.status == 0
    assert reason in done.stderr
    assert not (tmp_path / "run").exists()


def damaged(process: Process, to: Path, name: str, **values: int) -> Process:
    """The process of a copy of a run, with members of the first record of a file changed."""
    copy = to / "run"
    shutil.copytree(process.path.parent, copy)
    edit(copy / "p0" / name, 0, **values)
    reseal_records(copy / "p0" / name)
    forget_endings(copy)
    return tt.open(copy).processes[0]


def test_reader_refuses_invalid_records(process: Process, tmp_path: Path) -> None:
    """Records that can't be, with the file and the place."""
    seq = int(process.launches["seq"][1])
    twice = damaged(process, tmp_path / "a", "launches.bin", seq=seq)
    with pytest.raises(Error, match=r"launches\.bin.*a second record of this launch"):
        _ = twice.launches
    far = damaged(process, tmp_path / "b", "launches.bin", settings=1 << 30)
    with pytest.raises(Error, match=r"params\.bin.*do not lie in it"):
        far.kept.settings(far.launches[0])
    many = damaged(process, tmp_path / "c", "launches.bin", attributes=4, attribute_count=1 << 31)
    with pytest.raises(Error, match=r"params\.bin.*do not lie in it"):
        many.kept.attributes(many.launches[0])
    place = int(process.launches["settings"][0])
    other = damaged(process, tmp_path / "d", "launches.bin", views=place + 1, view_count=2)
    with pytest.raises(Error, match=r"params\.bin.*do not match their check"):
        other.kept.views(other.launches[0])
    params = other.path / "params.bin"
    raw, at = bytearray(params.read_bytes()), place * 16
    raw[at + 8] = 99
    size = 16 * int(process.launches["setting_count"][0])
    raw[at : at + 8] = digest(bytes(raw[at + 8 : at + 8 + size])).to_bytes(8, "little")
    params.write_bytes(raw)
    hostile = tt.open(other.path.parent).processes[0]
    with pytest.raises(Error, match=rf"params\.bin: offset {at + 8}: unknown what 99 of a setting"):
        hostile.kept.settings(hostile.launches[0])
    why = damaged(process, tmp_path / "e", "modules.bin", missing=99)
    with pytest.raises(Error, match=r"modules\.bin.*missing"):
        _ = why.modules
    torn = tmp_path / "a" / "run" / "p0" / "launches.bin"
    edit(torn, 0, seq=1)
    with pytest.raises(Error, match=r"launches\.bin.*check"):
        _ = tt.open(tmp_path / "a" / "run").processes[0].launches
    torn.unlink()
    assert not len(tt.open(tmp_path / "a" / "run").processes[0].launches)
