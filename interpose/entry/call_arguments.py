"""Writes call_arguments.h: the sizes of the arguments of each wrapped call, which cuda.h declares.

python interpose/entry/call_arguments.py
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
BEFORE = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n"
HEADER = """/*
 * The sizes in bytes of the arguments of each wrapped call, a digit for each.
 * call_arguments.py writes this file. A call with a larger argument is missing.
 */
#ifndef TT_ENTRY_CALL_ARGUMENTS_H
#define TT_ENTRY_CALL_ARGUMENTS_H

#define CALL_ARGUMENTS_MOST {most}
#define CALL_ARGUMENTS(X) \\
{rows}

#endif
"""


def preprocessed(source: str) -> str:
    command = ["cc", "-E", "-P", f"-I{HERE.parent}", f"-I{INCLUDE}", "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return done.stdout


def parameters(text: str) -> list[str]:
    """The types between commas that are in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [] if parts == ["void"] else parts


def sizes(calls: dict[str, list[str]]) -> list[str]:
    """The digits of each call, "?" for an argument of more than 8 bytes."""
    lines = ["#include <stdio.h>", BEFORE, "int main(void)", "{"]
    for declared in calls.values():
        of = [f"sizeof({one})" for one in declared]
        lines += [f'printf("%c", {size} > 8 ? 63 : (int)(48 + {size}));' for size in of]
        lines.append('printf("\\n");')
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/sizes"
        command = ["cc", "-w", f"-I{INCLUDE}", "-x", "c", "-", "-o", program]
        subprocess.run(command, input="\n".join([*lines, "}"]), text=True, check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )


def header() -> str:
    """The text of call_arguments.h."""
    wrapped = preprocessed(
        '#include "driver/call_table.h"\n#define X(symbol) WRAPPED symbol\nHOOK_TABLE(X)\n'
    )
    declared = dict(
        re.findall(r"\b(cu[A-Z]\w+)\s*\(((?:[^()]|\([^()]*\))*)\)", preprocessed(BEFORE))
    )
    calls = {}
    for symbol in re.findall(r"WRAPPED (\w+)", wrapped):
        base = re.sub(r"_pt[sd][sz]$", "", symbol)  # some are declared once, for both streams
        calls[symbol] = parameters(str(declared.get(symbol) or declared[base]).strip())
    rows = dict(zip(calls, sizes(calls), strict=False))
    rows = {symbol: row for symbol, row in rows.items() if "?" not in row}
    text = " \\\n".join(f'\tX({symbol}, "{row}")' for symbol, row in rows.items())
    return HEADER.format(most=max(map(len, rows.values())), rows=text)


if __name__ == "__main__":
    (HERE / "call_arguments.h").write_text(header())
