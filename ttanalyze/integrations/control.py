"""Cuts epochs and changes settings of the recording while the program runs.

    from ttanalyze.control import control, cut_epoch

    control(points=False)
    graph.replay()  # without epochs inside
    control(points=True, regions="^layers.3", snapshot=16)
    graph.replay()
    cut_epoch("after the replay")

In a program that is not recorded the functions do nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

__all__ = ["control", "cut_epoch"]


def cut_epoch(label: str = "") -> bool:
    """Cuts an epoch of the current context, on request of the program.

    Args:
        label: The name of the epoch.

    Returns:
        True if the epoch was requested, False if nothing is recorded.

    Example:
        >>> tt.control.cut_epoch("after warm-up")  # not recorded
        False
    """
    try:
        cut = ctypes.CDLL(None).tt_epoch
    except AttributeError:
        return False
    return bool(cut(None, label.encode()) == 0)


def control(
    *,
    points: bool | None = None,
    stamps: bool | None = None,
    regions: str | int | Iterable[int] | None = None,
    snapshot: int | None = None,
) -> bool:
    """Changes settings for all later epochs and graph launches.

    Args:
        points: Whether to take epochs inside graphs (`--epoch graph-node:REGEX`).
        stamps: Whether to time nodes of graphs (`--graph-stamps`).
        regions: The regions that delta epochs read: "all", "touched", "named", ids such as [0, 4]
            or "0,4-6", or a regular expression for names of allocations and tensors.
        snapshot: The number of epochs from one full snapshot to the next, 0 for none.

    Returns:
        True if the settings apply. False if nothing is recorded or a setting is wrong; the recorder
        then prints the reason to standard error.

    Example:
        >>> tt.control.control(points=False)  # not recorded
        False
    """
    try:
        tell = ctypes.CDLL(None).tt_control
    except AttributeError:
        return False
    given = {"points": points, "stamps": stamps, "regions": regions, "snapshot": snapshot}
    settings = (f"{name}={_text(value)}" for name, value in given.items() if value is not None)
    return bool(tell(";".join(settings).encode()) == 0)


def _text(value: bool | int | str | Iterable[int]) -> str:
    if isinstance(value, bool):
        return ("off", "on")[value]
    return str(value) if isinstance(value, (int, str)) else ",".join(map(str, value))
