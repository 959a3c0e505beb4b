"""Guards: allocations that end at unmapped memory, and what a program notices of that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.check import corpus
from tests.recordings import check_run, compare
from tests.support import Cli
from ttanalyze.verbs.check.check import choose
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
PAGE = 2 << 20
PROGRAMS = [
    *("alloc_many", "alloc_neighbours", "alloc_pitch", "alloc_reuse", "async_alloc", "pools"),
    *(
        "free_while_working",
        "graph_capture",
        "memory_info",
        "out_of_memory",
        "recorder_no_peer_access",
    ),
]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.build(tmp_path_factory.mktemp("faults"))


def steps(built: Path, run: Path, *what: str, memory: str = "1G", guard: str = "16") -> tt.Run:
    """A run of tests/programs/recorder_out_of_bounds.c with guards."""
    program = support.build_program("recorder_out_of_bounds", built)
    environment = support.recording(SIM | {"TT_SIM_MEMORY": memory}, run, guard=guard)
    done = support.run([program, *what], environment)
    assert done.status == 0, done.stderr
    return tt.open(run)


def arena(run: tt.Run) -> pd.DataFrame:
    regions = run.regions
    return regions[regions["kind"] == "arena"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_with_guards(name: str, built: Path, tmp_path: Path) -> None:
    environment = SIM | {"TT_SIM_DEVICES": "2"}
    command = [support.build_program(name, built)]
    bare = support.run(command, environment)
    recorded = support.run(command, support.recording(environment, tmp_path / "run", guard="16"))
    compare(name, bare, recorded)
    check_run(name, tmp_path / "run")


@pytest.mark.parametrize("align", [4, 16, 256])
def test_each_allocation_ends_before_unmapped_memory(
    align: int, built: Path, tmp_path: Path
) -> None:
    sizes = [1, 4, 16, 100, 4000, 4096, PAGE - 3, PAGE, PAGE + 1]
    allocations = [f"{how}:{size}" for size in sizes for how in "aA"]
    regions = arena(steps(built, tmp_path / "run", *allocations, guard=str(align)))
    assert len(regions) == 2 * len(sizes)
    assert regions["guarded"].all()
    ends = (regions["base"] + regions["size"]).to_numpy()
    assert (ends + (-ends % PAGE) - ends < align).all()
    assert (regions["base"] % align == 0).all()
    gaps = regions["base"].to_numpy()[1:] // PAGE * PAGE - (ends[:-1] + -ends[:-1] % PAGE)
    assert (gaps >= PAGE).all()


def test_freed_addresses_are_not_used_again(built: Path, tmp_path: Path) -> None:
    turns = [step for i in range(20) for step in ("a:1000", f"f:{i}", "s")]
    regions = arena(steps(built, tmp_path / "run", *turns))
    assert regions["base"].is_unique and regions["guarded"].all()


def test_allocations_share_memory_when_guards_take_too_much(built: Path, tmp_path: Path) -> None:
    """A quarter of 128 MiB is room for 16 small allocations with guards."""
    run = steps(built, tmp_path / "run", *["a:1000"] * 20, "a:3000000", "f:0", "a:1", memory="128M")
    assert arena(run)["guarded"].tolist() == [*[True] * 16, *[False] * 4, True, True]
    assert any("device 0 has no memory for more guards" in warning for warning in run.warnings)
    summary = info(run)
    guards = summary.processes[0].guards
    assert guards and guards["allocations"] == 18
    assert re.search("guards +behind 18 of 2[0-9] allocations", info_text(summary))


def test_allocation_has_no_guard_if_the_device_is_full(built: Path, tmp_path: Path) -> None:
    """One page is left for 16 small allocations, each of which may have a guard."""
    large = [f"a:{PAGE}"] * 16
    run = steps(built, tmp_path / "run", *large, *["a:1000"] * 16, memory="64M")
    guarded = arena(run)["guarded"]
    assert guarded[:16].all() and not guarded.all()


def test_access_past_the_end_ends_the_context(faults: Path, tmp_path: Path) -> None:
    """The launch is named at once, and `info` names the allocations that it has pointers to."""
    options = {"guard": "16", "cpu_callstack": "auto"}
    done = support.run(
        [faults, "read_past_end"], support.recording(SIM, tmp_path / "bad", **options)
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    assert "then halo<<<4, 256>>>" in done.stderr
    assert "a launch may have accessed memory past the end of an allocation" in done.stderr
    told = info_text(info(tt.open(tmp_path / "bad")))
    assert (
        "may have accessed memory past the end of region 1 (3.9 KiB, allocated at faults.c" in told
    )
    assert "or memory past the end of region 0 (3.9 KiB, allocated at faults.c" in told
    good = support.recording(SIM, tmp_path / "good", **options)
    bare = support.run([faults, "read_past_end", "--fixed"], SIM)
    assert support.run([faults, "read_past_end", "--fixed"], good) == bare


def test_access_to_freed_memory_ends_the_context(faults: Path, tmp_path: Path) -> None:
    environment = support.recording(SIM, tmp_path / "run", guard="16")
    done = support.run([faults, "write_after_free"], environment)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    told = info_text(info(tt.open(tmp_path / "run")))
    assert "may have accessed memory that was freed, of region 1 (3.9 KiB)" in told


def check(command: list[str | Path], folder: Path, *options: str) -> Any:
    """The outcome of the check `guard`."""
    given = ("--sim", "--json", "--quiet", "--only", "guard", "-o", str(folder), *options)
    done = support.ttanalyze("check", *given, "--", *map(str, command), environment=SIM)
    (outcome,) = json.loads(done.stdout)["outcomes"]
    return outcome


def test_check_names_a_launch_that_reads_past_the_end(faults: Path, tmp_path: Path) -> None:
    """It is one of 18 in flight. A failed launch has no parameters: another recording has them."""
    outcome = check([faults, "read_in_a_queue"], tmp_path / "out")
    assert outcome["bytes"] == 1
    (found,) = outcome["findings"]
    assert (found["kind"], found["certainty"]) == ("read past the end", "confirmed")
    assert found["call"]["kernel"] == "halo"
    assert [one["region"] for one in found["details"]["allocations"]] == [0]
    assert "reads past the end of region 0 (3.9 KiB, allocated at faults.c" in found["summary"]
    assert (tmp_path / "out" / "guard-blocking").exists()


@pytest.mark.long
def test_check_without_further_recordings_is_unsure(faults: Path, tmp_path: Path) -> None:
    (found,) = check([faults, "read_in_a_queue"], tmp_path / "out", "--quick")["findings"]
    assert (found["kind"], found["certainty"]) == ("access past the end", "possible")
    assert found["summary"].endswith("Other launches were in flight.")
    assert [path.name for path in (tmp_path / "out").glob("*.status")] == ["guard.status"]


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("read_row_too_many", "read past the end", "reads past the end of region 0"),
        ("download_too_long", "read past the end", "(the driver refuses it)"),
        ("set_too_long", "write past the end", "cuMemsetD8_v2 (call "),
        ("write_after_free", "access after free", ", which was freed ("),
        ("end_4", "access past the end", "move (call 11, faults.c"),
    ],
)
def test_check_says_what_happened(
    fault: str, kind: str, words: str, faults: Path, tmp_path: Path
) -> None:
    (found,) = check([faults, fault], tmp_path / "out")["findings"]
    assert (found["kind"], found["certainty"]) == (kind, "confirmed")
    assert words in found["summary"]


@pytest.mark.long
def test_check_is_unsure_of_pointers_in_memory(faults: Path, tmp_path: Path) -> None:
    (found,) = check([faults, "through_memory"], tmp_path / "out")["findings"]
    assert (found["kind"], found["certainty"]) == ("access past the end", "possible")
    assert "or memory that it finds by pointers in memory (" in found["summary"]


def test_check_says_that_a_program_fails_without_guards_too(built: Path, tmp_path: Path) -> None:
    program = support.build_program("fault_illegal_address", built)
    (found,) = check([program], tmp_path / "out")["findings"]
    assert (found["kind"], found["certainty"]) == ("illegal address", "possible")
    assert "poke (call " in found["summary"] and "without guards, too" in found["summary"]


def test_check_tries_the_usual_alignment(built: Path, tmp_path: Path) -> None:
    """This program fails with it, too."""
    program = support.build_program("fault_misaligned_address", built)
    outcome = check([program], tmp_path / "out")
    assert (outcome["status"], outcome["findings"]) == ("not covered", [])
    assert "a context ended with CUDA_ERROR_MISALIGNED_ADDRESS" in outcome["reason"]
    assert (tmp_path / "out" / "guard-256" / "run.json").exists()


def test_the_guard_check_is_chosen_by_name_or_option() -> None:
    names = ["bounds", "determinism", "order", "uninitialized", "values"]
    assert choose(None) == names
    assert choose(None, guards=True) == [*names, "guard"]
    assert choose("guard") == ["guard"]
    assert choose("order", guards=True) == ["order", "guard"]


def test_options_that_do_not_fit_are_refused(cli: Cli) -> None:
    for options, why in (
        (("--guard", "12"), "--guard 12: expected off, 4, 8, 16, 32, 64, 128 or 256"),
        (("--guard", "16", "--zones", "256"), "--zones needs --guard off: a zone and unmapped"),
        (("--guard", "16", "--replayable"), "--guard 16 needs --no-replayable: replays allocate"),
    ):
        outcome = cli("record", "--sim", *options, "--", "true")
        assert outcome.status == 2 and why in outcome.stderr, outcome.stderr
