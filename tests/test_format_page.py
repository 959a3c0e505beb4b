"""docs/format.md says what the header says, and its reader works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.rundir import Writer
from ttanalyze._format import ffi
from ttanalyze.format import layout
from ttanalyze.format.files import DATA_KIND, KINDS

PAGE = (support.ROOT / "docs" / "format.md").read_text()
STRUCTS = re.findall(r"^`struct (tt_\w+)`, (\d+) bytes", PAGE, re.M)
ENUMERATIONS = {
    "epochs.bin": ("trigger", layout.TRIGGERS),
    "regions.bin": ("kind", layout.REGION_KINDS),
    "events.bin": ("kind", layout.EVENT_KINDS),
    "graphs.bin": ("kind", layout.names("node_kind", "TT_NODE_")),
    "modules.bin": ("missing", layout.MISSING),
    "launches.bin": ("what", layout.SETTING_KINDS),
    "traced.bin": ("refused", layout.REFUSED_TRACES),
    "trace.bin": ("kind", layout.TRACE_KINDS),
}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_page_describes_every_structure() -> None:
    header = (support.ROOT / "interpose" / "include" / "format.h").read_text()
    declared = {name for name in ffi.list_types()[1] if f"struct {name} {{" in header}
    assert {name for name, _ in STRUCTS} == declared


@pytest.mark.parametrize(("name", "size"), STRUCTS)
def test_page_has_correct_offsets_and_sizes(name: str, size: str) -> None:
    assert int(size) == ffi.sizeof(f"struct {name}")
    table = PAGE.split(f"`struct {name}`", 1)[1].split("\n\n", 2)[1]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", table, re.M)
    fields = ffi.typeof(f"struct {name}").fields
    assert rows == [(str(f.offset), str(ffi.sizeof(f.type)), member) for member, f in fields]


@pytest.mark.parametrize("title", ENUMERATIONS)
def test_page_names_all_values(title: str) -> None:
    head, names = ENUMERATIONS[title]
    table = section(title).split(f"\n| {head} | name |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| (\d+) \| `([\w-]+)` \|", table, re.M)
    given = {int(value): name for value, name in rows}
    assert given == {i: n for i, n in enumerate(names) if n and n != "none"}


def test_page_names_all_flags() -> None:
    table = section("epochs.bin").split("\n| flag | name |", 1)[1]
    rows = re.findall(r"^\| (\d+) \| `([\w-]+)` \|", table, re.M)
    assert {name: int(bit) for bit, name in rows} == layout.EPOCH_FLAGS


def test_page_names_all_files() -> None:
    rows = re.findall(
        r"^\| (\d+) \| ([a-z][\w.-]+) \| .* \| (\d+) \|$", section("File header"), re.M
    )
    described = {name: (int(kind), int(size)) for kind, name, size in rows}
    known = {name: (kind, dtype.itemsize) for name, (kind, dtype) in KINDS.items()}
    assert described == known | {"data-NNNNN.bin": (DATA_KIND[0], 1)}


def test_reader_on_the_page_works(small: Writer, run_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", section("Reading memory"), re.DOTALL)
    assert code
    names: dict[str, Any] = {}
    exec(code[1], names)
    for epoch, regions in enumerate(small.history):
        for region, contents in regions.items():
            got = names["read"](run_path / "p0", epoch, region, len(contents))
            assert got.tobytes() == contents
