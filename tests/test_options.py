"""The recorder's options have one table, and each of its rows makes sense."""

from __future__ import annotations

import re

import pytest

from tests import support
from ttanalyze import options
from ttanalyze.errors import Error

pytestmark = pytest.mark.whole

NAMES = [*options.TABLE]


@pytest.mark.parametrize("name", NAMES)
def test_recorder_accepts_every_default(name: str) -> None:
    option = options.TABLE[name]
    values = option.limit.split("|") if option.kind == "CHOICE" else [option.normal]
    assert option.normal in values
    for value in filter(None, values):
        options.check(option.flag, name, value)


@pytest.mark.parametrize("name", NAMES)
def test_help_texts_are_sentences(name: str) -> None:
    assert re.fullmatch(r"[A-Z].*[.)]", options.TABLE[name].help)


@pytest.mark.parametrize(
    "name",
    [n for n in NAMES if options.TABLE[n].kind != "PATH" and n not in ("kernel", "delay_kernel")],
)
def test_invalid_value_is_quoted(name: str) -> None:
    option = options.TABLE[name]
    bad = "x,," if option.kind == "NAMES" else "x("
    told = option.flag if option.kind == "SWITCH" else f"{option.flag} {bad}"
    with pytest.raises(Error, match=re.escape(f"{told}: ")):
        options.variables({name: bad}, {})
    with pytest.raises(Error, match=re.escape(f"{option.variable}={bad}: ")):
        options.variables({}, {option.variable: bad})


def test_parser_names_few_options() -> None:
    """The parser names only options with their own rules."""
    text = (support.ROOT / "interpose/options/options.c").read_text()
    assert set(re.findall(r"NUMBER_([A-Z_]+)\b", text)) <= {
        "CONTENTS",
        "DELAY",
        "DELAY_MIN",
        "ENTRY",
        "EPOCH",
        "MAX_OVERHEAD",
        "OVERWRITE",
        "REPLAYABLE",
    }


def test_only_the_table_has_choices_and_limits() -> None:
    rows = list(options.TABLE.values())
    choices = [
        ", ".join(f'"{word}"' for word in r.limit.split("|")) for r in rows if r.kind == "CHOICE"
    ]
    limits = {f"{r.limit}u" for r in rows if r.variable.endswith("DELAY")}
    folder = support.ROOT / "interpose"
    for path in [
        *folder.rglob("options/*.[ch]"),
        *folder.rglob("timeline/*.c"),
        *folder.rglob("delay/*.c"),
    ]:
        text = " ".join(path.read_text().split())
        assert not [words for words in choices if words in text], path
        assert path.parent.name == "timeline" or not re.findall("|".join(limits), text), path
