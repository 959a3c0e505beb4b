"""Records that a run has lost, gained or had changed: every verb that reads them says so."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import rundir, support
from tests.rundir import Writer, small_run
from tests.support import Cli
from tests.test_damage import use_all
from ttanalyze.format.files import KINDS
from ttanalyze.format.layout import HEADER_SIZE
from ttanalyze.verbs.verify import verify

ABSENT = ("launches.bin", "traced.bin", "trace.bin", "tensormaps.bin")  # of which the run has none
FILES = [name for name in KINDS if name not in ABSENT]
CHECKED = [name for name in FILES if name not in ("digests.bin", "blocks.bin")]
VERBS = {
    "info": ["info"],
    "verify": ["verify"],
    "manifest": ["manifest"],
    "query": ["query", "--table", "events"],
    "events": ["events"],
    "memory": ["memory"],
    "blame": ["blame", "--region", "0"],
    "graph": ["graph"],
    "trace": ["trace", "-o", "trace.json"],
    "report": ["report", "-o", "report.html"],
    "rewind": ["rewind", "--epoch", "1", "-r", "0", "-o", "out"],
    "sass": ["sass"],
    "replay": ["replay", "--launch", "1"],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that says how its files end."""
    path = tmp_path_factory.mktemp("whole") / "run"
    small_run(path)
    rundir.tell_endings(path)
    return path


@pytest.fixture
def run(whole: Path, run_path: Path) -> Path:
    return rundir.copy_of(whole, run_path)


def pieces(name: str, raw: bytes) -> list[bytes]:
    """The header and the records of a file, of texts and bytes runs of 16."""
    size = max(KINDS[name][1].itemsize, 16)
    return [
        raw[:HEADER_SIZE],
        *(raw[i : i + size] for i in range(HEADER_SIZE, len(raw), size)),
    ]


def refusal(cli: Cli, run: Path, verb: str) -> str:
    """What a verb says, which must be one line and nothing else."""
    words = VERBS[verb]
    outcome = cli(words[0], run, *words[1:])
    assert (outcome.status, outcome.stdout) == (2, ""), (verb, outcome)
    assert outcome.stderr.count("\n") == 1, outcome.stderr
    return outcome.stderr


def damaged(name: str, parts: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Ways to lose, gain or change records of a file, each with what is said of it."""
    last = len(parts) - 1
    for at in {1, 1 + last // 2, last}:
        yield "cut short", parts[:at]
        yield "cut short", parts[:at] + parts[at + 1 :]
        yield "too long", parts[: at + 1] + parts[at:]
    if last > 1:
        yield "not the bytes that the process wrote", [parts[0], parts[2], parts[1], *parts[3:]]
        yield "not the bytes that the process wrote", [parts[0], parts[2], parts[2], *parts[3:]]


def test_complete_run_passes(run: Path) -> None:
    use_all(run)
    assert not any("lost" in line for line in tt.open(run).warnings)


@pytest.mark.parametrize("name", FILES)
def test_lost_extra_and_changed_records_are_errors(run: Path, name: str) -> None:
    path = run / "p0" / name
    raw = path.read_bytes()
    for said, parts in damaged(name, pieces(name, raw)):
        if said.startswith("not the") and name not in CHECKED:
            said = "do not match the epoch's check"
        if b"".join(parts) == raw:
            continue
        path.write_bytes(b"".join(parts))
        with pytest.raises(tt.FormatError) as caught:
            verify(tt.open(run))
        assert said in str(caught.value) and name in str(caught.value)
        if said == "not the bytes that the process wrote":
            with pytest.raises(tt.FormatError):
                use_all(run)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_that_records_are_missing(
    run: Path, cli: Cli, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = random.Random(verb).choice(FILES)
    path = run / "p0" / name
    cut = path.stat().st_size - max(KINDS[name][1].itemsize, 16)
    os.truncate(path, cut)
    said = refusal(cli, run, verb)
    assert f"p0/{name}: offset {cut}: cut short: " in said and " where the process wrote " in said


@pytest.mark.parametrize("name", ["events.bin", "params.bin", "strings.bin"])
def test_verify_checks_files_that_it_does_not_need(
    run: Path, cli: Cli, tmp_path: Path, name: str
) -> None:
    path = run / "p0" / name
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    said = refusal(cli, run, "verify")
    assert f"{name}: offsets 0 to {len(raw)}: " in said


def test_missing_file_is_an_error(run: Path, cli: Cli, tmp_path: Path) -> None:
    (run / "p0" / "frames.bin").unlink()
    assert "frames.bin: " in refusal(cli, run, "info")


def test_missing_process_is_an_error(run: Path, cli: Cli, tmp_path: Path) -> None:
    (run / "p0" / "process.json").unlink()
    said = refusal(cli, run, "info")
    assert "p0/process.json: offset 0: missing, and run.json names the process" in said
    shutil.rmtree(run / "p0")
    assert "p0/process.json" in refusal(cli, run, "verify")


def test_run_without_recorded_file_lengths(small: Writer, run_path: Path) -> None:
    use_all(run_path, small)
    small.close("running")
    assert any("records may be lost" in w for w in tt.open(run_path).warnings)


def test_file_of_absurd_size(run: Path) -> None:
    path, size = run / "p0" / "params.bin", 1 << 42
    os.truncate(path, size)
    told = run / "p0" / "process.json"
    info = json.loads(told.read_text())
    info["files"]["params.bin"]["size"] = size
    told.write_text(json.dumps(info))
    with pytest.raises(tt.FormatError, match="a hole of"):
        use_all(run)


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ([], "files: expected an object"),
        ({"events.bin": 1}, "files.events.bin: expected an object with a size"),
        ({"events.bin": {"check": None}}, "files.events.bin: expected an object with a size"),
        ({"events.bin": {"size": "1"}}, "files.events.bin.size: expected a whole number"),
        (
            {"events.bin": {"size": 1, "check": 3}},
            "files.events.bin.check: expected a string or null",
        ),
        ({"events.bin": {"size": 1, "check": "x"}}, "files.events.bin.check: expected 16 hex"),
        ({"events.bin": {"size": -1, "check": None}}, "where the process wrote"),
    ],
)
def test_invalid_file_lengths_are_errors(run: Path, files: object, where: str) -> None:
    told = run / "p0" / "process.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "files": files}))
    with pytest.raises(tt.FormatError, match=where):
        tt.open(run)


@pytest.mark.long
def test_each_lost_record_is_an_error(run: Path, cli: Cli) -> None:
    """Truncated after every record, without it and with it twice, by one verb after another."""
    verbs = itertools.cycle(VERBS)
    for name in FILES:
        path = run / "p0" / name
        raw = path.read_bytes()
        parts = pieces(name, raw)
        for at in range(1, len(parts)):
            for left in (parts[:at], parts[:at] + parts[at + 1 :], parts[: at + 1] + parts[at:]):
                path.write_bytes(b"".join(left))
                assert name in refusal(cli, run, next(verbs))
        path.write_bytes(raw)


@pytest.mark.long
def test_each_flipped_byte_of_checked_files_is_an_error(run: Path) -> None:
    for name in CHECKED:
        path = run / "p0" / name
        raw = path.read_bytes()
        for at in range(len(raw)):
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
            with pytest.raises(tt.FormatError):
                verify(tt.open(run))
        path.write_bytes(raw)


@pytest.mark.native
def test_recorded_process_lists_its_files(tmp_path: Path, built: Path) -> None:
    out = tmp_path / "run"
    environment = support.recording(
        support.simulator_environment(), out, params="1", timeline="events"
    )
    done = support.run(support.command("graph_updates", built), environment)
    assert done.status == 0, done.stderr
    told = json.loads((out / "p0" / "process.json").read_text())
    assert told["status"] == "complete"
    found = {file.name: file for file in (out / "p0").glob("*.bin") if file.name in KINDS}
    assert set(told["files"]) == set(found)
    for name, file in found.items():
        raw = file.read_bytes()
        assert told["files"][name]["size"] == len(raw), name
        check = None if name in ("digests.bin", "blocks.bin") else f"{rundir.digest(raw):016x}"
        assert told["files"][name]["check"] == check, name
    use_all(out)
