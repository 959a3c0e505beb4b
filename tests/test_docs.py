"""The pages say what is there: options, columns, exit statuses, links."""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import typer

import ttanalyze as tt
from bench import report, wild_report
from docs.tools import api, driver_calls, faults, pictures, reference, site, tables
from tests import support
from tests.rundir import Writer
from ttanalyze import options
from ttanalyze.cli import app
from ttanalyze.core import meanings

pytestmark = pytest.mark.whole

DOCS = support.ROOT / "docs"
README = (support.ROOT / "README.md").read_text()
PAGES = [*sorted(support.ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
PAGES += [support.EXAMPLES / "README.md"]
LONGEST = 600  # characters of a paragraph


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def name(page: Path) -> str:
    return str(page.relative_to(support.ROOT))


def paragraphs(page: str) -> list[str]:
    """Its paragraphs and items of lists; no tables, code and headings."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    text = re.sub(r"^(\||#).*$", "", text, flags=re.M)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paragraphs_are_short(page: Path) -> None:
    longest = max(paragraphs(page.read_text()), key=len)
    assert len(longest) <= LONGEST, longest


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_are_valid(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file) if file else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
            assert anchor in map(slug, headings), target


def test_record_page_lists_every_variable() -> None:
    page = (DOCS / "reference" / "record.md").read_text()
    assert set(re.findall(r"\| `(TT_[A-Z_]+)` \|", page)) == {
        option.variable for option in options.TABLE.values()
    }


def test_readme_lists_every_make_target() -> None:
    makefile = (support.ROOT / "Makefile").read_text()
    listed = {*re.findall(r"^([a-z-]+):.*## ", makefile, re.M)}
    said = {*re.findall(r"make ([a-z-]+)", README)}
    assert said <= listed
    assert {"demo", "test", "gpu-test", "bench", "help"} <= said


@functools.cache
def verbs_and_options() -> dict[str, set[str]]:
    group: Any = typer.main.get_command(app)
    return {
        verb: {"--help", *(o for p in each.params for o in (*p.opts, *p.secondary_opts))}
        for verb, each in group.commands.items()
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_use_existing_options(page: Path) -> None:
    verbs = verbs_and_options()
    text = page.read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    lines = re.findall(r"`([^`\n]+)`", text)
    lines += [line for language, code in fenced if not language for line in code.splitlines()]
    for line in lines:
        command = re.match(r"(?:\w*\$ )?ttanalyze (\w+)(.*?)(?: -- |  |$)", line)
        if command:
            words = re.sub(r"(['\"]).*?\1", "", command[2])
            given = set(re.findall(r"(?<= )(--?[a-z][a-z-]*)", words))
            assert command[1] in verbs and given <= verbs[command[1]], line


def test_every_page_is_linked_from_the_index() -> None:
    pages, reached = {page.resolve() for page in DOCS.rglob("*.md")}, set[Path]()
    found = [DOCS / "index.md"]
    while found:
        page = found.pop().resolve()
        if page not in reached and page in pages:
            reached.add(page)
            links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
            found += [page.parent / link for link in links]
    assert reached == pages


def test_design_overview_is_short() -> None:
    assert len((DOCS / "design" / "index.md").read_text().splitlines()) <= 200


def test_design_pages_name_existing_files() -> None:
    known = {path.name for path in support.ROOT.glob("*.py")}
    for folder in ("interpose", "ttanalyze", "tests"):
        known |= {path.name for path in (support.ROOT / folder).rglob("*.*")}
    for page in (DOCS / "design").glob("*.md"):
        named = re.findall(r"`(?:\w+/)*(\w+\.(?:c|h|cu|ptx|py))`", page.read_text())
        assert set(named) <= known, page


@pytest.mark.parametrize(
    "tool", [api, driver_calls, faults, pictures, reference, tables], ids=lambda t: t.__name__
)
def test_generated_pages_are_current(tool: types.ModuleType) -> None:
    for path, content in tool.pages().items():
        assert path.read_text() == content, f"{path} is old: run make docs"


def test_the_site_has_every_page() -> None:
    nav = site.on_config({})["nav"]
    assert nav[:2] == ["index.md", "quickstart.md"]
    sections = [next(iter(part.values())) for part in nav if isinstance(part, dict)]
    pages = {*(part for part in nav if isinstance(part, str)), *(p for s in sections for p in s)}
    assert pages == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_site_has_no_links_to_the_source() -> None:
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="guides/tui.md"))
    shown = site.on_page_markdown("[a](../../x.py) [b](save.md#c) [d](https://e)", page)
    assert shown == "a [b](save.md#c) [d](https://e)"
    assert (
        site.on_page_markdown("| `a\\|b` | c\\|d |\n`a\\|b`", page) == "| `a|b` | c\\|d |\n`a\\|b`"
    )


def test_pages_of_measurements_are_current(tmp_path: Path) -> None:
    shutil.copy(DOCS / "performance.json", tmp_path)
    assert report.main(["--docs", str(tmp_path)]) == 0
    for path in (tmp_path / "performance.md", *(tmp_path / "performance").iterdir()):
        kept = DOCS / path.relative_to(tmp_path)
        assert kept.read_text() == path.read_text(), f"{kept} is old: run bench/report.py"
    page = wild_report.page(json.loads(wild_report.DATA.read_text()))
    assert wild_report.PAGE.read_text() == page, "docs/wild.md is old: run bench/wild_report.py"


def test_every_reference_page_documents_a_verb() -> None:
    others = {*tables.pages(), DOCS / "reference" / "exit-statuses.md"}
    assert {*(DOCS / "reference").iterdir()} == {*reference.pages(), *others}


def test_every_column_has_a_description(small: Writer, run_path: Path) -> None:
    """Each in the docstring of what makes the table, of which the page is made."""
    sizes = {f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz"}
    processes = tt.open(run_path).processes
    for table, make in meanings.MADE.items():
        if "(" not in table:
            found = " ".join(meanings.items(meanings.sections(make)["Columns"]))
            described = {*re.findall(r"\w+", found), "process"} - sizes
            assert described == {*make(processes)} - sizes


def test_python_guide_runs(small: Writer, run_path: Path) -> None:
    page = (DOCS / "guides" / "open-a-run.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    code = next(block for block in blocks if "value_counts" in block)
    exec(compile(code, "docs/guides/open-a-run.md", "exec"), {"run": tt.open(run_path)})


def test_python_examples_import_existing_names() -> None:
    imported = set()
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
            if page.name != "python.md":  # its blocks are signatures
                for part in ast.walk(ast.parse(block, str(page))):
                    if isinstance(part, ast.ImportFrom) and "ttanalyze" in str(part.module):
                        imported |= {(str(part.module), each.name) for each in part.names}
    assert len(imported) > 20
    for module, each in imported:
        assert hasattr(__import__(module, fromlist=[each]), each), f"{module}.{each}"


CUDA = """
import ctypes
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
stream = None
"""


def test_example_program_requests_epochs(tmp_path: Path) -> None:
    """As the page shows it; without a recorder it does nothing."""
    page = (DOCS / "guides" / "control.md").read_text()
    code = next(b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "tt_epoch" in b)
    program = [sys.executable, "-c", CUDA + code]
    assert support.run(program, support.simulator_environment()) == support.Outcome("", "", 0)
    path = tmp_path / "run"
    options = ("--sim", "-q", "--epoch", "api", "-o", path)
    assert support.ttanalyze("record", *options, "--", *program) == support.Outcome("", "", 0)
    assert tt.open(path).regions["label"].tolist() == ["weights"]
    epochs = tt.open(path).epochs
    assert epochs["trigger"].tolist() == ["api"]
    assert epochs["label"].tolist() == ["after the third step"]
