"""frames.bin: call stacks, and the functions and source lines of native frames."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ttanalyze.errors import system_errors
from ttanalyze.format import layout
from ttanalyze.format.files import Folder, check_values, read_checked, require
from ttanalyze.format.layout import Array
from ttanalyze.format.strings import Strings

NATIVE = layout.enum("frame_kind")["TT_FRAME_NATIVE"]


def read(folder: Folder) -> Array:
    """Returns the tt_frame records of complete stacks, by stack and depth.

    Raises FormatError if they do not follow docs/format.md.
    """
    file = folder.open("frames.bin")
    if file is None:
        return np.empty(0, layout.FRAME)
    records = read_checked(file)
    check_values(file, records, "kind", list(layout.enum("frame_kind").values()))
    begins = records["depth"] == 0
    before, after = records[:-1], records[1:]
    follows = (after["stack"] == before["stack"]) & (after["depth"] == before["depth"] + 1)
    good = begins | np.append(False, follows)[: len(records)]
    require(file, good, "depth", "the frames of a stack are not in order")
    first = np.flatnonzero(begins)
    grows = np.diff(records["stack"][first].astype("i8"), prepend=0) > 0
    require(file, ~begins | _mask(first, grows, len(records)), "stack", "not a new number")
    whole = np.diff(np.append(first, len(records))) == records["count"][first]
    lacks_some = len(whole) > 0 and not whole[-1]
    whole[-1:] = True  # the last stack may lack frames
    require(file, ~begins | _mask(first, whole, len(records)), "count", "frames are missing")
    return records[: int(first[-1])] if lacks_some else records


Frame = tuple[str, str, int]  # function, file, line


def native(folder: Path, frames: Array, strings: Strings) -> dict[tuple[int, int], list[Frame]]:
    """Returns function, file and line of native frames, by file and address.

    Inlined functions come first, the function that contains the code last. An object file that
    changed after the recording is ignored.
    """
    from ttanalyze.code import symbols

    frames = frames[frames["kind"] == NATIVE]
    out: dict[tuple[int, int], list[Frame]] = {}
    if not len(frames):
        return out
    path = folder / "frames.bin"
    with system_errors(path):
        recorded = os.stat(path).st_mtime_ns
    for file in layout.distinct(frames["file"]).tolist():
        name = strings.get(file) or ""
        prefix = f"{os.path.basename(name)}+" if name else ""
        addresses = layout.distinct(frames["address"][frames["file"] == file]).tolist()
        for at, found in zip(addresses, symbols.look_up(name, addresses, recorded), strict=True):
            function = found[-1].function or f"{prefix}{at:#x}"
            inlined = [
                (f"{one.function} [inlined]" if one.function else f"[inlined in {function}]", one)
                for one in found[:-1]
            ]
            out[file, at] = [
                (what, one.file or name or "?", one.line)
                for what, one in [*inlined, (function, found[-1])]
            ]
    return out


def _mask(indices: Array, values: Array, count: int) -> Array:
    """Returns a bool array with these values at these indices, False elsewhere."""
    out: Array = np.zeros(count, bool)
    out[indices] = values
    return out
