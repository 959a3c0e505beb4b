"""Names of files that a run gives: only regular files are opened, and not without bounds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import rundir
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.format import layout
from ttanalyze.util.regular_files import read_regular

NATIVE = layout.enum("frame_kind")["TT_FRAME_NATIVE"]


def with_frame(run: Path, file: Path | str) -> Writer:
    """A run with an allocation whose caller is at a place in that object file."""
    w = Writer(run)
    members = {"stack": 1, "depth": 0, "count": 1, "kind": NATIVE, "address": 0x1000}
    places = {"function": layout.NO_ID, "file": w.string(os.fspath(file))}
    w.append("frames.bin", rundir.seal(rundir.record(layout.FRAME, **members, **places)))
    w.event("alloc", "cuMemAlloc_v2", id=0, bytes=64, stack=1)
    w.born(0, bytes(64))
    w.epoch("sync", "full")
    w.close()
    return w


@pytest.mark.parametrize("kind", ["pipe", "link", "zero", "folder"])
def test_special_files_are_not_opened_as_object_files(
    run_path: Path, tmp_path: Path, cli: Cli, kind: str
) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    files: dict[str, Path | str] = {
        "pipe": pipe,
        "link": link,
        "zero": "/dev/zero",
        "folder": tmp_path,
    }
    with_frame(run_path, files[kind])
    run = tt.open(run_path)
    assert [place[2] for place in run.processes[0].stack(1)] == [0]
    assert cli("memory", run_path).status == 0


def test_addr2line_takes_no_arguments_from_a_run(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = tmp_path / "said"
    tool = tmp_path / "addr2line"
    tool.write_text(f'#!/bin/sh\necho "$DEBUGINFOD_URLS|$@" > {said}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://localhost:1")
    monkeypatch.setattr(
        "ttanalyze.code.symbols._Object.addresses", lambda _, offsets: [1] * len(offsets)
    )
    raw = Path(sys.executable).resolve().read_bytes()[:64]
    at = len(raw) + 64  # of one section, whose name is what is looked for
    head = bytearray(raw)
    head[32:48] = (0).to_bytes(8, "little") + (64).to_bytes(8, "little")
    head[54:64] = b"".join(n.to_bytes(2, "little") for n in (56, 0, 64, 1, 0))
    section = bytearray(64)
    section[24:40] = at.to_bytes(8, "little") + (12).to_bytes(8, "little")
    (tmp_path / "@file").write_bytes(bytes(head) + bytes(section) + b".debug_line\0")
    with_frame(run_path, "@file")
    for name in ("@file", "frames.bin"):
        os.utime(tmp_path / name if name[0] == "@" else run_path / "p0" / name, (1, 1))
    tt.open(run_path).processes[0].stack(1)
    assert said.read_text().startswith(f"|-e {tmp_path.resolve()}/@file ")


def test_file_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(tt.Error, match="file: larger than 4 bytes"):
        read_regular(path, 4)
    with pytest.raises(tt.Error, match="not a valid file name"):
        read_regular("a\0b", 4)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_text_that_no_file_can_have_as_its_name(name: str) -> None:
    with pytest.raises(tt.Error, match="not a valid file name"):
        tt.open(name)
