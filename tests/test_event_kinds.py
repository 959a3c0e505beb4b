"""Kinds of events are classified once, in format.h, and everybody uses that."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests import support
from ttanalyze.format import event_kinds, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.gpu.rebuild import dependency_graph
from ttanalyze.verbs.report import timeline

PACKAGE, INTERPOSE = support.ROOT / "ttanalyze", support.ROOT / "interpose"
# Tuples that are no class of events: kinds of nodes, and what has a better name than its call.
NO_CLASSES = {
    ("gpu/rebuild/dependency_graph.py", ("copy", "set")),
    ("verbs/trace/calls.py", ("launch", "epoch", "control")),
}
PROPERTIES = [name.removeprefix("TT_KIND_") for name in layout.enum("kind_property")]


def kind_of(node: ast.expr) -> str | None:
    """The kind of event that an expression says by name."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        node = node.slice if node.value.id == "KIND" else node
    said = node.value if isinstance(node, ast.Constant) else None
    return said if isinstance(said, str) and said in KIND else None


def lists_of_kinds(source: str) -> list[tuple[str, ...]]:
    """Lists, sets and tuples of nothing but kinds, without those that name each."""
    tree, out = ast.parse(source), []
    named = {
        id(node)
        for assignment in ast.walk(tree)
        if isinstance(assignment, ast.Assign) and isinstance(assignment.targets[0], ast.Tuple)
        for node in ast.walk(assignment.value)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Set | ast.Tuple) and id(node) not in named:
            kinds = [kind for kind in map(kind_of, node.elts) if kind]
            if len(set(kinds)) > 1 and len(kinds) == len(node.elts):
                out.append(tuple(kinds))
    return out


@pytest.mark.parametrize("name", PROPERTIES)
def test_python_knows_each_property(name: str) -> None:
    kinds = getattr(event_kinds, name)
    assert kinds, "no kind has it"
    assert set(kinds) <= set(KIND.values()) - {KIND["none"]}


def test_header_reader_agrees_with_the_compiler(tmp_path: Path) -> None:
    program = tmp_path / "kinds.c"
    program.write_text(
        '#include <stdio.h>\n#include "format.h"\n'
        "#define PRINT(name, number, properties) "
        'printf("%s %d %d\\n", #name, TT_EVENT_##name, TT_PROPERTIES_##name);\n'
        "int main(void) { TT_EVENT_KINDS(PRINT) }\n"
    )
    command = ["cc", f"-I{INTERPOSE / 'include'}", str(program), "-o", str(tmp_path / "kinds")]
    subprocess.run(command, check=True)
    out = subprocess.run([tmp_path / "kinds"], check=True, capture_output=True, text=True).stdout
    numbers, properties = layout.enum("event_kind"), layout.enum("event_properties")
    assert out.split() == [
        word
        for name, number in numbers.items()
        for kind in [name.removeprefix("TT_EVENT_")]
        for word in (kind, str(number), str(properties[f"TT_PROPERTIES_{kind}"]))
    ]


def test_writers_are_work_and_work_has_a_stream() -> None:
    assert set(event_kinds.WORK) <= set(event_kinds.STREAM)
    timed = {*event_kinds.TIMED} - {KIND["region-ready"]}  # a wait of the recorder's stream
    assert {*event_kinds.WRITES, *timed, *event_kinds.LAUNCH} <= {*event_kinds.WORK}


def test_no_module_repeats_the_list_of_kinds() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), kinds)
        for path in sorted(PACKAGE.rglob("*.py"))
        for kinds in lists_of_kinds(path.read_text())
    }
    assert found == NO_CLASSES
    maps = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(r"enumerate\(layout\.EVENT_KINDS|EVENT_KINDS\.index", path.read_text())
    ]
    assert maps == ["format/event_kinds.py"]


def test_the_recorder_compares_with_one_kind_at_a_time() -> None:
    one = r"kind == TT_EVENT_\w+"
    for path in sorted(INTERPOSE.rglob("*.[ch]")):
        again = re.search(rf"{one}\s*\|\|\s*(\w+->)?{one}", path.read_text())
        assert again is None, f"{path}: {again}"


def test_switches_over_kinds_are_complete() -> None:
    assert set(dependency_graph.REACH) == set(event_kinds.STORE)
    assert set(dependency_graph.HANDLERS) >= {*event_kinds.STREAM, *event_kinds.WAIT}
    shown = {KIND[kind] for kind in timeline.WORK} | {KIND["launch"]}
    assert shown == set(event_kinds.WORK) - {KIND["mem-op"]}, "waits and writes of words"
