"""Call stacks as texts: who launched a kernel, which line made an allocation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.process import Process

Frame = tuple[str, str, int]  # function, file, line; 0 where that is not known
# In paths of sources that are not the program's own. Some only pass calls on for Python.
PASSING_ON = ("/_ctypes", "libffi", "_cffi_backend")
LIBRARIES = (
    *("/usr/include/", "/usr/lib/", "/usr/local/cuda", "-linux/include/", "/lib/python3."),
    *("/site-packages/", "/dist-packages/", "/pytorch/", "/sysdeps/", "/csu/", "<frozen "),
)
HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tcc")
STUB = ("device_stub_", "tmpxft_")  # in functions or files that nvcc makes for launches


def _location(frame: Frame, short: bool = True) -> str:
    _, file, line = frame
    name = os.path.basename(file) if short else file
    return f"{name}:{line}" if line else name


def _passes_on(frame: Frame) -> bool:
    """Whether all it does is to call for Python."""
    file = frame[1]
    return not file.endswith(".py") and any(name in file for name in PASSING_ON)


def _calling(frames: Sequence[Frame]) -> Frame:
    """The innermost frame, if possible of the program's own sources, or of a header of its own, or
    at least one whose line is known and that calls for itself.
    """
    known = [frame for frame in frames if frame[2] and not _passes_on(frame)]
    own = [f for f in _behind_stubs(known) if not any(part in f[1] for part in LIBRARIES)]
    sources = [frame for frame in own if not frame[1].endswith(HEADERS)]
    return next(iter([*sources, *own, *known]), frames[0])


def _behind_stubs(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Without what nvcc makes of `kernel<<<...>>>()`: a stub, and a function named as the kernel,
    at the kernel's line, that calls it.
    """
    stubs = [i for i, frame in enumerate(frames) if any(s in t for s in STUB for t in frame[:2])]
    return frames[stubs[-1] + 2 :] if stubs else frames


def caller(frames: Sequence[Frame]) -> str:
    """Of a stack, the innermost frame first: "step (train.py:12)"."""
    return frame_text(_calling(frames))


def frame_text(frame: Frame) -> str:
    """ "step (train.py:12)", or, where only a place in an object file is known, "libx.so+0x12"."""
    place = _location(frame)
    return f"{frame[0]} ({place})" if place and not frame[0].startswith(f"{place}+") else frame[0]


def site(frames: Sequence[Frame]) -> str:
    """Where it was, for what was allocated there: "train.py:12 in step"."""
    frame = _calling(frames)
    return f"{_location(frame)} in {frame[0]}"


def whole(frames: Sequence[Frame]) -> str:
    """All of it: "step (train.py:12) < main (train.py:40)"."""
    return " < ".join(map(frame_text, frames))


def lines(frames: Sequence[Frame]) -> list[str]:
    """The outermost frame first, with whole paths: "/app/train.py:12 in step"."""
    return [f"{_location(frame, short=False)} in {frame[0]}" for frame in reversed(frames)]


def parse(line: str) -> Frame:
    """The frame of one of these lines; a line of another form becomes a function without a file."""
    place, found, function = line.rpartition(" in ")
    file, _, number = place.rpartition(":")
    if not found:
        return line, "", 0
    if file and number.isdecimal() and number.isascii() and len(number) < 10:
        return function, file, int(number)
    return function, place, 0


def source(process: Process, stack: int) -> str:
    """Where its frames are from: "python", "native" or "python+native"."""
    first, last = np.searchsorted(process.frames["stack"], [stack, stack + 1])
    kinds = process.frames["kind"][first:last]
    return "+".join(layout.FRAME_KINDS[kind] for kind in layout.distinct(kinds).tolist())


class StackTexts:
    """One of these texts of each stack of processes, made once."""

    def __init__(self, text_of: Callable[[Sequence[Frame]], str]) -> None:
        self._text_of = text_of
        self._known: dict[tuple[int, int], str | None] = {}

    def get(self, process: Process, stack: int) -> str | None:
        """None where the stack was not recorded."""
        key = process.index, stack
        if key not in self._known:
            frames = process.stack(stack) if stack else []
            self._known[key] = self._text_of(frames) if frames else None
        return self._known[key]
