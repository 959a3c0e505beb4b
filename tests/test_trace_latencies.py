"""Recording code reads results when they are ready: what has no scoreboard takes a fixed time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import sass_patcher as sp
from tests.test_trace_code import DATA, NVDISASM, code_of, disassemble
from ttanalyze.disassembly.decode import parsed

SCHEDULE, STALL, NONE = 105, 15, 7  # bits of an instruction; NONE: it sets no scoreboard
ADDS = r"IADD3|VIADD|MOV|SEL|LOP3|SHF|LEA|PRMT|ISETP"  # these read what is ready when they begin
MULTIPLIES = r"IMAD|FFMA|FMUL|FADD"
AFTER = {"adds": 4, "multiplies": 5}  # cycles until one that adds may read the result

pytestmark = [
    pytest.mark.native,
    pytest.mark.large,
    pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm"),
]


def pipe(mnemonic: str) -> str:
    if re.match(MULTIPLIES, mnemonic):
        return "multiplies"
    return "adds" if re.match(ADDS, mnemonic) else "other"


def too_early(code: list[tuple[int, int]], texts: list[str]) -> list[str]:
    """Instructions that read a result before it is there."""
    found, ready = list[str](), dict[str, int]()
    now = 0
    for (_, high), text in zip(code, texts, strict=True):
        schedule = high >> SCHEDULE - 64
        one = parsed(text)
        of = pipe(one.mnemonic)
        written, *read = one.operands or ("",)
        names = re.findall(r"\bR\d+\b", " ".join(read))
        if of == "adds" and any(now < ready.get(name, 0) for name in names):
            found.append(text)
        for number in re.findall(r"^R(\d+)$", written):
            for n in range(1 + ("WIDE" in one.mnemonic or ".64" in one.mnemonic)):
                fixed = of != "other" and schedule >> 5 & 7 == NONE
                ready[f"R{int(number) + n}"] = now + AFTER[of] if fixed else 0
        now += schedule & STALL
    return found


@pytest.mark.parametrize("kind", range(1, 8))  # the last: heartbeats
def test_results_are_ready(kind: int, tmp_path: Path) -> None:
    cubin = sp.build(tmp_path).open((DATA / "patch_90a.cubin").read_bytes())
    for kernel in (k for k in cubin.kernels if k.name in ("scale", "bulk")):
        inserted = cubin.trace(kernel, 64, 1 << kind).code[len(code_of(cubin, kernel)) :]
        if inserted:
            assert too_early(inserted, disassemble(inserted, tmp_path)) == []
