"""Says of the code of kernels.cu what nvdisasm says, for tests where there is none.

The file that it is given is the code of kernels, one behind the other.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import orjson
import xxhash

RELATIVE = re.compile(r"((?:BRA|BSSY|CALL\.REL|RET\.REL)\S* .*?)0x([0-9a-f]+)\s*;$")
SIZE = 16


def main() -> None:
    if "--version" in sys.argv:
        print("Cuda compilation tools, release 13.5, V13.5.37")
        return
    known = orjson.loads((Path(__file__).parent / "disassembly.json").read_bytes())
    sizes = sorted({SIZE * len(lines) for lines in known.values()})
    code, at = Path(sys.argv[-1]).read_bytes(), 0
    while at < len(code):
        digests = {size: xxhash.xxh3_64_hexdigest(code[at : at + size]) for size in sizes}
        digest = next((d for d in digests.values() if d in known), None)
        if digest is None:
            sys.exit("nvdisasm error   : Illegal instruction found")
        for line in known[digest]:
            place, _, said = line.partition("*/")
            if relative := RELATIVE.search(said):
                said = (
                    f"{said[: relative.start(2) - 2]}{(int(relative[2], 16) + at) % (1 << 64):#x} ;"
                )
            print(f"        /*{int(place.strip(' /*'), 16) + at:04x}*/{said}")
        at += SIZE * len(known[digest])


main()
