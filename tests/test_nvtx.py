"""What programs say through NVTX: recorded, answered as by any tool, and an occasion for epochs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record
from tests.test_cuda_header import toolkit_include
from ttanalyze.format import layout
from ttanalyze.format.annotations import extended_payloads

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
NOBODY = 0xFFFFFFFF
FIRST = layout.EVENT_KINDS.index("mark")

Said = tuple[Any, ...]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def say(
    words: str, built: Path, environment: dict[str, str], timeout: float = 60
) -> support.Outcome:
    """What a program is answered that says this."""
    program = support.build_program("recorder_nvtx", built)
    outcome = support.run([program, *words.split()], environment, timeout=timeout)
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    assert "no thread" not in outcome.stderr  # whatever the program keeps for each thread
    return outcome


def said_in(run: Path) -> list[Said]:
    """Kind, message and domain of every annotation, in order."""
    process = tt.open(run).processes[0]
    return [
        (layout.EVENT_KINDS[e["kind"]], process.strings.get(int(e["id"])), domain_of(process, e))
        for e in process.events
        if e["kind"] >= FIRST
    ]


def domain_of(process: Any, event: Any) -> str | None:
    if layout.EVENT_KINDS[event["kind"]] == "name":
        return None
    text: str | None = process.strings.get(int(event["dst"]))
    return text


def cuts(run: Path) -> list[tuple[str, str | None]]:
    """Trigger and label of every epoch."""
    epochs = tt.open(run).epochs
    labels = [None if label != label else label for label in epochs["label"].tolist()]
    return list(zip(epochs["trigger"].tolist(), labels, strict=True))


# ---- answers, and what is recorded ----


def test_ranges_have_levels_and_are_recorded(built: Path, run: Path) -> None:
    words = "cuda push:a push:b launch pop mark:m pop pop start:s push:c end pop"
    answered = say(words, built, support.recording(SIM, run))
    assert answered.stdout.splitlines() == [
        *("push a: 0", "push b: 1", "pop: 1", "pop: 0", "pop: -1"),
        *("start s: a range", "push c: 0", "pop: 0"),
    ]
    assert said_in(run) == [
        ("range-push", "a", None),
        ("range-push", "b", None),
        ("range-pop", "b", None),
        ("mark", "m", None),
        ("range-pop", "a", None),
        ("range-start", "s", None),
        ("range-push", "c", None),
        ("range-end", "s", None),
        ("range-pop", "c", None),
    ]
    events = tt.open(run).processes[0].events
    seqs = {layout.EVENT_KINDS[e["kind"]]: int(e["seq"]) for e in events}
    launch = int(events["seq"][events["kind"] == layout.EVENT_KINDS.index("launch")][0])
    pushes = events["seq"][events["kind"] == layout.EVENT_KINDS.index("range-push")]
    assert pushes[1] < launch < seqs["mark"]


def test_range_start_and_end_share_an_id(built: Path, run: Path) -> None:
    say("cuda start:a start:b domain:D start:c end domain: end end", built,
        support.recording(SIM, run))  # fmt: skip
    process = tt.open(run).processes[0]
    ranges = [(e["kind"], e["src"], e["id"], e["dst"]) for e in process.events if e["kind"] > 22]
    starts, ends = ranges[:3], ranges[3:]
    assert len({int(number) for _, number, _, _ in starts}) == 3
    assert [tuple(map(int, e[1:])) for e in ends] == [tuple(map(int, s[1:])) for s in starts[::-1]]


def test_domains_have_levels_of_their_own(built: Path, run: Path) -> None:
    words = "cuda push:a domain:D push:b domain:E push:c domain:D push:d domain: push:e pop "
    words += "domain:D pop domain:E pop pop domain:D pop domain: pop"
    answered = say(words, built, support.recording(SIM, run)).stdout
    assert re.findall(r"(?:push .|pop): -?\d", answered) == [
        *("push a: 0", "push b: 0", "push c: 0", "push d: 1", "push e: 1"),
        *("pop: 1", "pop: 1", "pop: 0", "pop: -1", "pop: 0", "pop: 0"),
    ]
    pops = [(m, d) for kind, m, d in said_in(run) if kind == "range-pop"]
    assert pops == [("e", None), ("d", "D"), ("c", "E"), ("b", "D"), ("a", None)]


def test_all_message_types_are_recorded(built: Path, run: Path) -> None:
    words = "cuda markw:w~de pushw:~ domain:D~ markreg:registered reg:r markw:~~ mark:@3000 "
    words += "markw:@9000 mark:@50000 mark:é"
    say(words, built, support.recording(SIM, run))
    said = [(message, domain) for _, message, domain in said_in(run)]
    assert said[:5] == [
        ("wé€😀de", None),
        ("é€😀", None),
        ("registered", "D~"),
        ("r", "D~"),
        ("é€😀é€😀", "D~"),
    ]
    lengths = [len(message) for message, _ in said[5:]]
    assert lengths[0] == 3000
    assert 4000 < lengths[1] <= 4096  # as wide characters, no longer
    assert lengths[2:] == [50000, 1]


def test_payload_colour_and_category_are_recorded(built: Path, run: Path) -> None:
    say("cuda full:all domain:D full:all", built, support.recording(SIM, run))
    events = [e for e in tt.open(run).processes[0].events if e["kind"] == FIRST]
    assert len(events) == 8
    for first in (0, 4):
        double, whole, short, none = events[first : first + 4]
        assert (int(double["grid"][0]), int(double["bytes"])) == (3, 0x4004000000000000)
        assert (int(whole["grid"][0]), int(whole["bytes"])) == (5, 0xFFFFFFFF)
        assert {int(e["shared"]) for e in (double, whole)} == {0xFF00FF80}
        assert {int(e["grid"][1]) for e in (double, whole)} == {7}
        assert {int(e["id"]) for e in (short, none)} == {NOBODY}
        assert {int(e["shared"]) for e in (short, none)} == {0}


def test_members_of_an_extended_payload_are_recorded(built: Path, run: Path) -> None:
    say("cuda extended:all", built, support.recording(SIM, run))
    events = tt.open(run).processes[0].annotations.records
    members, sizes = extended_payloads(events)
    assert sizes.tolist() == [24]
    assert members[0, :16].view("<u8").tolist() == [0x123456789ABCDEF0, 4096]
    assert members[0, 16:20].view("<i4").tolist() == [2] and not members[0, 24:].any()


def test_ranges_of_the_payload_extension_are_recorded(built: Path, run: Path) -> None:
    """NCCL ends the range of each new communicator so."""
    words = "cuda domain:NCCL reg:init popextended push:next pop startextended endextended "
    words += "domain: start:s endextended pushextended pop popextended"
    answered = say(words, built, support.recording(SIM, run, epoch="nvtx:^NCCL/init"))
    levels = re.findall(r"(?:push|pop)[^:]*: (-?\d)", answered.stdout)
    assert levels == ["0", "0", "0", "0", "0", "0", "-1"]
    assert said_in(run) == [
        *(("range-push", "init", "NCCL"), ("range-pop", "init", "NCCL")),
        *(("range-push", "next", "NCCL"), ("range-pop", "next", "NCCL")),
        *(("range-start", None, "NCCL"), ("range-end", None, "NCCL")),
        *(("range-start", "s", None), ("range-end", "s", None)),
        *(("range-push", None, None), ("range-pop", None, None)),
    ]
    members, sizes = extended_payloads(tt.open(run).processes[0].annotations.records)
    assert sizes.tolist() == [0, 24, 0, 0, 24, 24, 0, 24, 24, 0]
    assert members[1, :16].view("<u8").tolist() == [0x123456789ABCDEF0, 4096]
    assert cuts(run) == [("nvtx", "init")]


def test_callback_tables_of_older_versions_are_filled(built: Path, run: Path) -> None:
    words = "cuda push:newest module:1 push:older pop domain:D markreg:x domain: "
    words += "module:2 push:oldest pop domain:none module:0 pop"
    answered = say(words, built, support.recording(SIM, run)).stdout.splitlines()
    assert answered == [
        *("push newest: 0", "push older: 1", "pop: 1", "domain D: made", "domain : none"),
        *("push oldest: 1", "pop: 1", "domain none: none", "pop: 0"),
    ]
    assert ("mark", "x", "D") in said_in(run)


def test_thread_and_stream_names_are_recorded(built: Path, run: Path) -> None:
    say("name:boss cuda name:chief stream:copies thread:1 { name:worker mark:m }", built,
        support.recording(SIM, run))  # fmt: skip
    process = tt.open(run).processes[0]
    names = process.events[process.events["kind"] == layout.EVENT_KINDS.index("name")]
    found = [(process.strings.get(int(e["id"])), int(e["dst"])) for e in names]
    assert found == [("boss", 1), ("chief", 1), ("copies", 2), ("worker", 1)]
    assert int(names[0]["src"]) == int(names[1]["src"]) == process.info["pid"]
    assert int(names[3]["src"]) == int(names[3]["thread"]) != process.info["pid"]
    launch = process.events[process.events["kind"] == layout.EVENT_KINDS.index("launch")][0]
    assert int(names[2]["stream"]) == int(launch["stream"])


# ---- before, beside and after the recording ----


def test_open_ranges_are_recorded_at_the_start(built: Path, run: Path) -> None:
    words = "push:closed pop mark:lost domain:D reg:registered push:b domain: push:a cuda launch "
    words += "mark:m pop domain:D pop pop"
    say(words, built, support.recording(SIM, run))
    assert said_in(run) == [
        ("range-push", "registered", "D"),
        ("range-push", "b", "D"),
        ("range-push", "a", None),
        ("mark", "m", None),
        ("range-pop", "a", None),
        ("range-pop", "b", "D"),
        ("range-pop", "registered", "D"),
    ]
    kinds = [layout.EVENT_KINDS[k] for k in tt.open(run).processes[0].events["kind"]]
    assert kinds[:4] == ["range-push", "range-push", "range-push", "alloc"]


def test_open_ranges_of_other_threads_are_recorded_at_the_start(built: Path, run: Path) -> None:
    words = "thread:2 { push:early%d wait only:0 { cuda launch } wait only:1 { use launch mark:m } "
    words += "pop wait }"
    say(words, built, support.recording(SIM, run))
    said = said_in(run)
    ranges = [(kind, f"early{i}", None) for i in range(2) for kind in ("range-push", "range-pop")]
    assert sorted(said) == sorted([*ranges, ("mark", "m", None)])
    assert [kind for kind, _, _ in said[:2]] == ["range-push", "range-push"]


def test_nvtx_does_nothing_without_a_recording(built: Path, run: Path) -> None:
    words = "push:a domain:D reg:x pop cuda push:b start:s mark:m pop end"
    bare = say(words, built, SIM)
    assert "push a: -2" in bare.stdout
    assert "domain D: none" in bare.stdout
    recorded = support.recording(SIM, run)
    without = {k: v for k, v in recorded.items() if k != "TT_OUT"}
    assert say(words, built, without).stdout == bare.stdout
    assert say(words, built, recorded | {"TT_NVTX": "0"}).stdout == bare.stdout
    assert not [a for a in said_in(run) if a]


def test_nvtx_is_off_without_events(built: Path, run: Path) -> None:
    words = "cuda push:a pop"
    bare = say(words, built, SIM)
    assert say(words, built, support.recording(SIM, run, events="0")).stdout == bare.stdout


def test_program_without_gpu_work_leaves_no_run(built: Path, run: Path) -> None:
    words = "push:a push:b pop pop name:x start:r end domain:D reg:r"
    answered = say(words, built, support.recording(SIM, run)).stdout
    assert "push b: 1" in answered
    assert not run.exists()


def test_forked_child_continues_unrecorded(built: Path, run: Path) -> None:
    words = "push:a cuda push:b fork { pop push:child domain:D mark:child start:r end } mark:parent"
    answered = say(words, built, support.recording(SIM, run, epoch="nvtx:.")).stdout
    assert answered.splitlines()[2:] == [
        *("pop: 1", "push child: 1", "domain D: made", "start r: a range"),
        "child ended with 0",
    ]
    assert [m for _, m, _ in said_in(run)] == ["a", "b", "parent"]


def test_recording_child_has_the_open_ranges(built: Path, run: Path) -> None:
    words = "name:main push:outer fork { push:inner cuda launch pop pop } pop"
    say(words, built, support.recording(SIM, run))
    process = tt.open(run).processes[0]
    pushed = [("range-push", "outer", None), ("range-push", "inner", None)]
    popped = [("range-pop", "inner", None), ("range-pop", "outer", None)]
    assert sorted(said_in(run)) == sorted([("name", "main", None), *pushed, *popped])
    assert {int(thread) for thread in process.events["thread"]} == {process.info["pid"]}
    assert process.annotations.threads == {process.info["pid"]: "main"}


def test_failed_recording_keeps_nvtx_return_values(built: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = "push:a cuda push:b domain:D reg:c start:s end pop domain: pop pop pop"
    good = say(words, built, support.recording(SIM, tmp_path / "run"))
    failed = say(words, built, support.recording(SIM, tmp_path / "file" / "run"))
    assert failed.stdout == good.stdout
    assert "recording stopped" in failed.stderr


def test_many_threads_push_ranges(built: Path, run: Path) -> None:
    words = "cuda thread:8 { use wait times:500 { push:a%d domain:D reg:b%d launch pop domain: pop "
    words += "start:c%d end mark:d%d } }"
    say(words, built, support.recording(SIM, run))
    said = Counter(said_in(run))
    assert set(said.values()) == {8}
    assert len(said) == 7 * 500
    process = tt.open(run).processes[0]
    for thread in {int(t) for t in process.events["thread"]}:
        open_ranges: list[int] = []
        for e in process.events[process.events["thread"] == thread]:
            if layout.EVENT_KINDS[e["kind"]] == "range-push":
                open_ranges.append(int(e["id"]))
            elif layout.EVENT_KINDS[e["kind"]] == "range-pop":
                assert open_ranges.pop() == int(e["id"])


def test_long_ranges_keep_their_names(built: Path, run: Path) -> None:
    """However many ranges begin and end meanwhile."""
    words = "cuda start:long start:longer times:9000 { start:short end } end end"
    say(words, built, support.recording(SIM, run))
    ended = [said for said in said_in(run) if said[0] == "range-end"]
    assert ended[-2:] == [("range-end", "longer", None), ("range-end", "long", None)]
    assert set(ended[:-2]) == {("range-end", "short", None)}


def test_ranges_without_a_pop(built: Path, run: Path) -> None:
    words = "cuda times:40000 { push:leak%d } push:more pop pop"
    answered = say(words, built, support.recording(SIM, run)).stdout
    assert answered.splitlines() == ["push more: 40000", "pop: 40000", "pop: 39999"]
    assert len(said_in(run)) == 40003


@pytest.mark.long
def test_string_memory_is_bounded(built: Path, run: Path) -> None:
    """Of a program that says something else every time."""
    program = support.build_program("recorder_nvtx", built)
    environment = support.recording(SIM, run, epoch="nvtx:^never$", events="0")
    if "ASAN_OPTIONS" in environment:  # which keeps what is freed
        environment["ASAN_OPTIONS"] += ":quarantine_size_mb=1"

    def peak(count: int) -> int:
        words = f"cuda times:{count} {{ push:step%d domain:D markreg:of%d domain: pop }}"
        measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        measure += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        command = ["/usr/bin/env", *(f"{k}={v}" for k, v in environment.items()), str(program)]
        measured = [sys.executable, "-c", measure, *command, *words.split()]
        out = subprocess.run(measured, capture_output=True, text=True, check=True).stdout
        return int(out.split()[-1])

    few, many = peak(1000), peak(300_000)
    assert many - few < 24 << 10  # KiB


# ---- another tool ----


def other_tool(built: Path) -> dict[str, str]:
    support.build_program("recorder_nvtx", built)
    return {"NVTX_INJECTION64_PATH": str(built / "librecorder_nvtx.so")}


def test_other_nvtx_tool_is_kept(built: Path, run: Path) -> None:
    words = "push:early cuda push:a domain:D reg:r pop domain: pop start:s end mark:m pop "
    words += "module:2 push:x pop module:0 domain:D reg:payload popextended"
    alone = say(words, built, SIM | other_tool(built))
    assert "tool: register r in D" in alone.stdout
    assert "push a: 101" in alone.stdout
    both = say(words, built, support.recording(SIM | other_tool(built), run))
    assert both.stdout == alone.stdout
    said = said_in(run)
    assert ("range-push", "early", None) in said
    assert ("range-push", "r", "D") in said
    assert ("range-pop", "r", "D") in said and ("range-pop", "payload", "D") in said
    assert "tool: pop 1 payloads in D\npop: 300" in both.stdout
    assert [m for kind, m, _ in said if kind in ("range-start", "range-end")] == ["s", "s"]
    process = tt.open(run).processes[0]
    numbers = {int(e["src"]) for e in process.events if e["kind"] in (23, 24)}
    assert len(numbers) == 1
    assert numbers.pop() >> 32 == 0xDEADBEEF


def test_refusing_nvtx_tool_is_not_replaced(built: Path, run: Path) -> None:
    words = "cuda push:a pop"
    environment = SIM | other_tool(built) | {"TOOL_REFUSES": "1"}
    alone = say(words, built, environment)
    assert say(words, built, support.recording(environment, run)).stdout == alone.stdout


def test_missing_nvtx_tool_is_not_replaced(built: Path, run: Path) -> None:
    environment = SIM | {"NVTX_INJECTION64_PATH": "/nowhere/libtool.so"}
    answered = say("cuda push:a pop", built, support.recording(environment, run))
    assert answered.stdout.splitlines() == ["push a: -2", "pop: -2"]


def test_record_keeps_another_nvtx_tool(built: Path, run: Path) -> None:
    program = support.build_program("recorder_nvtx", built)
    command = [str(program), "cuda", "push:a", "pop"]
    done = record(command, SIM | other_tool(built), run, "--quiet")
    assert "tool: push a\npush a: 100" in done.stdout
    assert said_in(run) == [("range-push", "a", None), ("range-pop", "a", None)]


# ---- epochs ----


def test_range_ends_and_marks_trigger_epochs(built: Path, run: Path) -> None:
    words = "cuda times:3 { push:step%d launch push:inner launch pop pop } "
    words += "start:step-long launch end mark:steps-done launch pop"
    say(words, built, support.recording(SIM, run, epoch="nvtx:^step"))
    labels = ["step0", "step1", "step2", "step-long", "steps-done"]
    assert cuts(run) == [("nvtx", label) for label in labels]
    opened = tt.open(run)
    events = opened.processes[0].events
    seqs = opened.epochs["seq"].tolist()
    at = [layout.EVENT_KINDS[int(events["kind"][events["seq"] == s][0])] for s in seqs]
    assert at == ["range-pop", "range-pop", "range-pop", "range-end", "mark"]
    contents = [opened.read(epoch, 0).tobytes() for epoch in range(5)]
    assert len(set(contents)) == 4  # nothing was launched before the mark
    manifest = (run / "manifest.json").read_text()
    assert '"trigger":"nvtx","label":"step0"' in manifest


def test_epoch_holds_the_state_after_the_range(built: Path, tmp_path: Path) -> None:
    words = "cuda times:3 { push:step launch:2 pop }"
    say(words, built, support.recording(SIM, tmp_path / "a", epoch="nvtx:step"))
    say(words, built, support.recording(SIM, tmp_path / "b", epoch="launch:2"))
    a, b = tt.open(tmp_path / "a"), tt.open(tmp_path / "b")
    for epoch in range(3):
        assert (a.read(epoch, 0) == b.read(epoch, 0)).all()


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("^D/step", ["stepD"]),
        ("^step", ["step", "stepD", "stepE"]),
        ("^D/", ["stepD", "other"]),
        ("^(step|other)$", ["step", "other"]),
        ("nothing", []),
    ],
)
def test_trigger_expression_may_name_a_domain(
    expression: str, found: list[str], built: Path, run: Path
) -> None:
    words = "cuda push:step pop domain:D markreg:stepD mark:other domain:E push:stepE pop"
    say(words, built, support.recording(SIM, run, epoch=f"nvtx:{expression}"))
    assert cuts(run) == [("nvtx", label) for label in found]


def test_several_triggers_combine(built: Path, run: Path) -> None:
    words = "cuda push:step launch pop push:eval launch:2 pop mark:x,y sync"
    epoch = "launch:3,kernel:^nothing,at all;nvtx:^step;nvtx:x,y;sync"
    say(words, built, support.recording(SIM, run, epoch=epoch))
    assert cuts(run) == [
        *(("nvtx", "step"), ("launch", "mix"), ("nvtx", "x,y")),
        ("final", None),
    ] or cuts(run) == [("nvtx", "step"), ("launch", "mix"), ("nvtx", "x,y")]
    program = support.build_program("recorder_nvtx", built)
    again = run.with_name("again")
    options = ["--quiet", "--epoch", "kernel:^mi.$", "--epoch", "nvtx:step", "--epoch", "launch:9"]
    record([str(program), *words.split()], SIM, again, *options)
    before_and_after = [("kernel-before", "mix"), ("kernel-after", "mix")]
    assert cuts(again)[:3] == [*before_and_after, ("nvtx", "step")]
    assert cuts(again).count(("kernel-after", "mix")) == 3


@pytest.mark.parametrize(
    ("epoch", "why"),
    [
        ("nvtx:", "nvtx:REGEX needs an expression"),
        ("sync,nvtx:(a", "nvtx:(a: Unmatched ( or \\("),
        ("kernel:a;nvtx:", "nvtx:REGEX needs an expression"),
        ("kernel:;nvtx:a", "kernel:REGEX needs an expression"),
        ("nvtx:a;never", "'never': expected sync, launch, launch:N, "),
        ("launch:x", "launch:N needs a count from 1"),
        ("sync;launch:0", "launch:N needs a count from 1"),
        ("launch:99999999999", "launch:N needs a count from 1"),
        ("launch,@5", "'@5': expected one window @FROM-TO of launch numbers"),
        ("@5-4", "'@5-4': expected one window"),
        ("@-4,sync", "'@-4': expected one window"),
        ("@1-2,@3-4", "'@3-4': expected one window"),
    ],
)
def test_launcher_and_recorder_report_equal_errors(
    epoch: str, why: str, built: Path, run: Path
) -> None:
    """By the launcher and by the recorder."""
    recorder = say("cuda", built, support.recording(SIM, run, epoch=epoch)).stderr
    launcher = record(["true"], SIM, run, "--sim", "--epoch", epoch)
    assert launcher.status == 2
    said = [line.split(": ", 1)[1] for line in (recorder, launcher.stderr)]
    assert all(why in line for line in said)
    same = [re.sub(rf"^.*{re.escape(epoch)}: ", "", line).strip() for line in said]
    assert same[0] == same[1]


def test_no_epoch_without_a_usable_context(built: Path, run: Path) -> None:
    """In host functions, before there is a context, and in threads that never used one."""
    words = "mark:step0 cuda callback:step1 thread:1 { mark:step2 } mark:step3"
    say(words, built, support.recording(SIM, run, epoch="nvtx:step"))
    assert cuts(run) == [("nvtx", "step3")]
    marks = [m for kind, m, _ in said_in(run) if kind == "mark"]
    assert marks == ["step1", "step2", "step3"]


def test_epoch_in_the_context_used_last(built: Path, run: Path) -> None:
    words = "cuda launch unuse mark:step use launch sync"
    say(words, built, support.recording(SIM, run, epoch="nvtx:step"))
    assert cuts(run) == [("nvtx", "step")]
    gone = run.with_name("gone")
    say("cuda launch unuse reset mark:step", built, support.recording(SIM, gone, epoch="nvtx:step"))
    assert cuts(gone) == []


def test_epochs_from_many_threads(built: Path, run: Path) -> None:
    words = "cuda thread:6 { use wait times:20 { push:step%d launch pop } }"
    say(words, built, support.recording(SIM, run, epoch="nvtx:^step"))
    assert Counter(cuts(run)) == {("nvtx", f"step{i}"): 6 for i in range(20)}
    assert tt.verify(tt.open(run), run / "manifest.json").same


# ---- programs that use the real thing ----

REAL = """
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <stdio.h>

int main(void)
{
	nvtxEventAttributes_t a = {0};
	CUcontext context;
	CUdevice device;
	CUdeviceptr p;
	CUstream stream;

	printf("%d ", nvtxRangePushA("outer"));
	cuInit(0);
	cuDeviceGet(&device, 0);
	cuDevicePrimaryCtxRetain(&context, device);
	cuCtxSetCurrent(context);
	cuMemAlloc(&p, 1000);
	printf("%d ", nvtxRangePushW(L"wide"));
	nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
	a.version = NVTX_VERSION;
	a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
	a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
	a.message.registered = nvtxDomainRegisterStringA(domain, "registered");
	a.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
	a.payload.fValue = 1.5f;
	a.colorType = NVTX_COLOR_ARGB;
	a.color = 0xff112233;
	a.category = 3;
	printf("%d ", nvtxDomainRangePushEx(domain, &a));
	printf("%d ", nvtxDomainRangePop(domain));
	nvtxRangeId_t r = nvtxDomainRangeStartEx(domain, &a);
	nvtxDomainRangeEnd(domain, r);
	nvtxMarkA("mark");
	cuStreamCreate(&stream, 0);
	nvtxNameCuStreamA(stream, "stream");
	printf("%d ", nvtxRangePop());
	printf("%d\\n", nvtxRangePop());
	nvtxDomainDestroy(domain);
	return 0;
}
"""


def test_nvtx_header_of_the_toolkit_works(run: Path, tmp_path: Path) -> None:
    include = toolkit_include()
    if include is None or not (include / "nvtx3").is_dir():
        pytest.skip("no CUDA toolkit here: what it does is covered by a program of our own")
    source, program = tmp_path / "real.c", tmp_path / "real"
    source.write_text(REAL)
    line = ["gcc", f"-I{include}", str(source), "-o", str(program), str(support.SIMULATOR), "-ldl"]
    subprocess.run(line, check=True)
    done = support.run([program], support.recording(SIM, run, epoch="nvtx:^domain/"))
    assert done.stdout == "0 1 0 0 1 0\n"
    assert said_in(run) == [
        ("range-push", "outer", None),
        ("range-push", "wide", None),
        ("range-push", "registered", "domain"),
        ("range-pop", "registered", "domain"),
        ("range-start", "registered", "domain"),
        ("range-end", "registered", "domain"),
        ("mark", "mark", None),
        ("name", "stream", None),
        ("range-pop", "wide", None),
        ("range-pop", "outer", None),
    ]
    assert cuts(run) == [("nvtx", "registered")] * 2
