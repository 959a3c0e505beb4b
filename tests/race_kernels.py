"""The kernels of tests/races, and the lines of their planted races."""

from __future__ import annotations

import re

from tests import support

RACES = support.ROOT / "tests" / "races"
MARK = re.compile(r"// race of (\w+)")


def marked() -> dict[str, set[str]]:
    """The lines of each planted race, as FILE:LINE."""
    out: dict[str, set[str]] = {}
    for number, line in enumerate((RACES / "kernels.cu").read_text().splitlines(), 1):
        for name in MARK.findall(line):
            out.setdefault(name, set()).add(f"kernels.cu:{number}")
    return out


PLANTED = marked()
