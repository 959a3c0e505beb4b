"""How the recorder gets between a program and the driver: look-ups of every kind."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import entries, support
from tests.recordings import compare
from tests.test_cuda_header import toolkit_include

pytestmark = pytest.mark.native
SIM = support.simulator_environment()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.mark.parametrize("version", [11080, 12040, 13000, 14000])
def test_exactly_the_calls_of_the_table_are_wrapped(version: int, built: Path, run: Path) -> None:
    program = support.build_program("recorder_entry_points", built)
    driver = SIM | {"TT_SIM_FAULT": f"version:{version}"}
    bare = entries.answers(program, driver)
    reached = entries.check(bare, entries.answers(program, support.recording(driver, run)))
    table = {question.split()[1] for question in bare if question.startswith("linked ")}
    if version >= 13000:
        assert reached == table
    else:
        assert {"cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz"} < reached < table
    assert not run.exists()


def test_calls_of_newer_drivers_are_passed_through(built: Path, run: Path) -> None:
    """What it has under a name of today is passed on, and the run says so."""
    command = [str(support.build_program("recorder_newer_driver", built))]
    driver = SIM | {"TT_SIM_FAULT": "version:14000"}
    bare = support.run(command, driver)
    assert bare.status == 0
    assert "cuMemAlloc at 14000 is the driver's 1" in bare.stdout
    compare("recorder_newer_driver", bare, support.run(command, support.recording(driver, run)))
    opened = tt.open(run)
    info = opened.processes[0].info
    assert info["driver_version"] == 14000
    new = ["cuMemAlloc:14000:0", "cuLaunchKernel:14000:0", "cuMemcpyTwice:14000:0"]
    assert info["unknown_calls"] == new
    assert list(opened.regions.loc[opened.regions["kind"] == "device", "size"]) == [2000]
    assert list(opened.events.loc[opened.events["kind"] == "launch", "kernel"]) == ["add"]


TABLES = ("HOOK_TABLE", "CALL_TABLE", "PASS_TABLE")


def preprocessed(text: str, include: Path) -> str:
    """C source after the preprocessor."""
    command = ["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include}", "-xc", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def table(name: str) -> list[str]:
    """The symbols of one of TABLES."""
    source = f'#include "driver/call_table.h"\n#define X(symbol) entry symbol;\n{name}(X)\n'
    return re.findall(r"entry (\w+);", preprocessed(source, support.ROOT / "interpose"))


def declared(include: Path) -> set[str]:
    """Every call that a cuda.h declares, in all its versions."""
    text = preprocessed("#include <cuda.h>\n", include)
    inline = {"cuGetProcAddress_v2_ptsz"}
    return set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", text)) - inline


def headers() -> list[Path]:
    """Our own cuda.h, and the toolkit's where there is one of the same version."""
    return list(filter(None, [support.ROOT / "interpose" / "include", toolkit_include()]))


@pytest.mark.parametrize("include", headers(), ids=str)
def test_every_driver_call_is_in_a_table(include: Path) -> None:
    """Wrapped, or passed through knowingly: what is new in a later CUDA shows here."""
    calls = declared(include)
    assert len(calls) > 550
    tables = {name: table(name) for name in TABLES}
    known = [symbol for symbols in tables.values() for symbol in symbols]
    assert len(known) == len(set(known))
    assert set(tables["HOOK_TABLE"] + tables["CALL_TABLE"]) <= calls
    both = {symbol + suffix for symbol in known for suffix in ("", "_ptsz", "_ptds")}
    assert not calls - both
    if len(calls) > 600:  # the toolkit's: its other headers have these
        foreign = re.compile("cu(GL|EGL|VDPAU|Profiler|Graphics|EventCreateFromEGLSync)")
        assert {symbol for symbol in known if not foreign.match(symbol)} <= calls


def test_a_wrapped_call_is_wrapped_for_both_default_streams() -> None:
    hooked, calls = set(table("HOOK_TABLE")), declared(support.ROOT / "interpose" / "include")
    for symbol in hooked:
        assert not {symbol + "_ptsz", symbol + "_ptds"} & calls - hooked, symbol
    assert {re.sub("_pt[sd][sz]$", "", symbol) for symbol in hooked} <= hooked


def test_the_docs_list_no_wrapped_call_as_passed_through() -> None:
    page = (support.ROOT / "docs" / "limits" / "driver-calls.md").read_text()
    firsts = re.findall(r"^\| (.*?)(?:, except .*?)? \|", page, re.M)
    named = {name for first in firsts for name in re.findall(r"`(cu\w+)`", first)}
    assert named
    assert not named & set(table("HOOK_TABLE"))


def without(folder: Path, *calls: str) -> dict[str, str]:
    """The environment of a driver in whose list of symbols (ELF's .dynsym) these are hidden."""
    content = bytearray(support.SIMULATOR.read_bytes())
    (sections,) = struct.unpack_from("<Q", content, 0x28)
    (count,) = struct.unpack_from("<H", content, 0x3C)
    headers = [struct.unpack_from("<IIQQQQII", content, sections + i * 64) for i in range(count)]
    symbols = next(header for header in headers if header[1] == 11)
    names = headers[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name = names + int(struct.unpack_from("<I", content, at)[0])
        if content[name : content.index(0, name)].decode() in calls:
            content[at + 5] = 2
    folder.mkdir()
    (folder / support.SIMULATOR.name).write_bytes(content)
    return SIM | {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize("call", table("NEED_TABLE"))
def test_driver_without_a_call(call: str, built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_missing_calls", built))]
    driver = without(tmp_path / "driver", call)
    bare = support.run(command, driver)
    recorded = support.run(command, support.recording(driver, tmp_path / "run"))
    compare("recorder_missing_calls", bare, recorded)
    if call == "cuCtxGetCurrent":  # without it no context is ever found
        assert not (tmp_path / "run").exists()
        return
    line = f"recording stopped: the driver is too old: it has no {call}"
    assert recorded.stderr.count("\n") == bare.stderr.count("\n") + 1
    assert f"ttanalyze: {line}\n" in recorded.stderr
    info = tt.open(tmp_path / "run").processes[0].info
    assert info["status"] == "failed"
    assert info["reason"] == line.removeprefix("recording stopped: ")


def test_missing_driver_calls_are_tolerated(built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_missing_calls", built))]
    lacking = [
        "cuFuncGetParamInfo",
        "cuFuncGetName",
        "cuKernelGetParamInfo",
        "cuMemcpyBatchAsync_v2",
    ]
    driver = without(tmp_path / "driver", *lacking, "cuStreamGetCtx", "cuFuncGetModule")
    bare = support.run(command, driver)
    assert "no cuFuncGetParamInfo" in bare.stdout
    recorded = support.run(command, support.recording(driver, tmp_path / "run"))
    compare("recorder_missing_calls", bare, recorded)
    assert recorded.stderr == bare.stderr
    assert set(tt.open(tmp_path / "run").events["kind"]) >= {"launch", "sync"}


@pytest.mark.skipif(support.gpu_name() is not None, reason="there is a driver here")
def test_no_driver_gives_no_calls(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_driver_lookup", built))]
    nowhere = support.bare_environment(**support.sanitizer_runtimes())
    bare = support.run(command, nowhere)
    assert bare.stdout == "cuInit 0, an error 1\ncuMemAlloc_v2 0, an error 1\nno driver\n"
    compare("recorder_driver_lookup", bare, support.run(command, support.recording(nowhere, run)))
    bare = support.run(command, SIM)
    assert bare.stdout.endswith(
        "for all cuInit 1, an error 0\nfor all cuNoSuchCall 0, an error 1\n"
    )
    compare("recorder_driver_lookup", bare, support.run(command, support.recording(SIM, run)))
    assert not run.exists()
