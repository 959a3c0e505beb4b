"""Call stacks as text: the caller of a launch, the source line of an allocation."""

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
    """Returns whether a frame only forwards calls from Python."""
    file = frame[1]
    return not file.endswith(".py") and any(name in file for name in PASSING_ON)


def _own(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Returns the frames in the program's own sources, else in its headers, else one frame."""
    known = [frame for frame in frames if frame[2] and not _passes_on(frame)]
    program_frames = [
        f for f in _behind_stubs(known) if not any(part in f[1] for part in LIBRARIES)
    ]
    sources = [frame for frame in program_frames if not frame[1].endswith(HEADERS)]
    return sources or program_frames or (known or frames)[:1]


def _behind_stubs(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Removes what nvcc makes of `kernel<<<...>>>()`: a stub, and a function with the kernel's name
    and line that calls it.
    """
    stubs = [i for i, frame in enumerate(frames) if any(s in t for s in STUB for t in frame[:2])]
    return frames[stubs[-1] + 2 :] if stubs else frames


def caller(frames: Sequence[Frame]) -> str:
    """Returns the calling frame of a stack: "step (train.py:12)". frames: the innermost first."""
    return frame_text(_own(frames)[0])


def frame_text(frame: Frame) -> str:
    """Returns "step (train.py:12)", or "libx.so+0x12" if only an offset in an object file is
    known.
    """
    location = _location(frame)
    return (
        f"{frame[0]} ({location})"
        if location and not frame[0].startswith(f"{location}+")
        else frame[0]
    )


def site(frames: Sequence[Frame]) -> str:
    """Returns the place of an allocation: "train.py:12 in step"."""
    return sites(_own(frames)[:1])


def sites(frames: Sequence[Frame]) -> str:
    """Returns the place of an allocation, and what of the program called it there:
    "train.py:12 in step < train.py:40 in main".
    """
    return " < ".join(f"{_location(frame)} in {frame[0]}" for frame in _own(frames))


def whole(frames: Sequence[Frame]) -> str:
    """Returns a whole stack: "step (train.py:12) < main (train.py:40)"."""
    return " < ".join(map(frame_text, frames))


def lines(frames: Sequence[Frame]) -> list[str]:
    """Returns the frames with full paths, the outermost first: "/app/train.py:12 in step"."""
    return [f"{_location(frame, short=False)} in {frame[0]}" for frame in reversed(frames)]


def parse(line: str) -> Frame:
    """Parses a line of `lines`. Any other text becomes a function without a file."""
    location, found, function = line.rpartition(" in ")
    file, _, number = location.rpartition(":")
    if not found:
        return line, "", 0
    if file and number.isdecimal() and number.isascii() and len(number) < 10:
        return function, file, int(number)
    return function, location, 0


def source(process: Process, stack: int) -> str:
    """Returns the origin of the frames of a stack: "python", "native" or "python+native", or
    "pytorch" if they are those of PyTorch's CapturedTraceback.
    """
    first, last = np.searchsorted(process.frames["stack"], [stack, stack + 1])
    if (process.frames["flags"][first:last] & layout.constant("TT_FRAMEF_TORCH")).any():
        return "pytorch"
    kinds = process.frames["kind"][first:last]
    return "+".join(layout.FRAME_KINDS[kind] for kind in layout.distinct(kinds).tolist())


class StackTexts:
    """Texts of stacks, each made once."""

    def __init__(self, text_of: Callable[[Sequence[Frame]], str]) -> None:
        self._text_of = text_of
        self._known: dict[tuple[int, int], str | None] = {}

    def get(self, process: Process, stack: int) -> str | None:
        """Returns the text of a stack, None if it was not recorded."""
        key = process.index, stack
        if key not in self._known:
            frames = process.stack(stack) if stack else []
            self._known[key] = self._text_of(frames) if frames else None
        return self._known[key]
