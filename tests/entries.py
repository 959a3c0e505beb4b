"""What programs are given when they ask for driver calls, with and without the recorder."""

from __future__ import annotations

import re
from pathlib import Path

from tests import support

WAYS = ("handle", "default", "next", "linked")


def answers(program: Path, environment: dict[str, str]) -> dict[str, str]:
    """What tests/programs/recorder_entry_points.c prints: question → answer."""
    outcome = support.run([program], environment)
    assert outcome.status == 0, outcome.stderr
    found = dict(line.split(": ", 1) for line in outcome.stdout.splitlines())
    assert not [question for question in found if question.startswith("differs")]
    return found


def expected(answer: str) -> str:
    """The recorded answer for a bare one, such as ``0 0 libcuda.so.1+0x1234=cuMemAlloc_v2``."""
    return re.sub(r"\S+=", "libttshim.so=", answer)


def check(bare: dict[str, str], recorded: dict[str, str]) -> set[str]:
    """Every call of the table that the driver has is ours, and every other answer the driver's.
    Returns the calls that cuGetProcAddress gave.
    """
    assert recorded == {question: expected(answer) for question, answer in bare.items()}
    table = {question.split()[1] for question in bare if question.startswith("linked ")}
    assert len(table) > 150
    for call in table:
        for way in WAYS:
            driver = bare[f"{way} {call}"]
            assert driver == "nothing" or "=" in driver, f"{way} {call}: {driver}"
    return {answer.split("=")[1] for answer in bare.values() if re.match(r"\d.*=", answer)} & table
