"""Nodes that are described but cannot run yet: a kernel without code or arguments, a copy or a set
without addresses. In the driver's graph each is an empty node until `Graph.bind` completes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.module import Function, find
from ttanalyze.gpu.validate_args import whole
from ttanalyze.gpu.work import (
    CHANGES,
    MOST_SHARED,
    CheckedAddress,
    Copy,
    Kernel,
    Set,
    Work,
    three,
)

ADDRESSES = {"copy": ("dst", "src"), "set": ("dst",)}
LATER = CheckedAddress(0, None)  # in place of an address that is not given yet


@dataclass(frozen=True)
class Unbound:
    """Work that lacks its kernel, its arguments or its addresses.

    kind: "kernel", "copy" or "set". given: what is known, by the names that `Graph.bind` takes.
    """

    kind: str
    given: Mapping[str, Any]

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of what `Graph.bind` has to give."""
        if self.kind != "kernel":
            return tuple(name for name in ADDRESSES[self.kind] if self.given[name] is None)
        missing = ("function",) if isinstance(self.given["function"], str) else ()
        return missing if self.given["args"] is not None else (*missing, "args")

    @property
    def row(self) -> dict[str, Any]:
        """The columns of the table of nodes that are known."""
        given = self.given
        if self.kind != "kernel":
            shown = {"bytes": given["size"]}
            return (
                shown
                if self.kind == "copy"
                else {**shown, "src": given["value"], "shared": given["item"]}
            )
        function, cluster = given["function"], given["cluster"]
        return {
            "kernel": function.name if isinstance(function, Function) else function,
            "grid": three(given["grid"], "grid"),
            "block": three(given["block"], "block"),
            "cluster": (0, 0, 0) if cluster is None else three(cluster, "cluster"),
            "shared": given["shared_mem"],
            "cooperative": given["cooperative"],
        }

    def changed(self, **changes: Any) -> Work | Unbound:
        """Returns the work with what `changes` gives. Raises TypeError for other names, and Error
        as the `of` methods of work.
        """
        for name in changes:
            if name not in CHANGES[self.kind]:
                raise TypeError(name)
        new = {name: value for name, value in changes.items() if value is not None}
        return plan(self.kind, **{**self.given, **new})


def plan_kernel(
    device: Device, name: str | Function, args: Sequence[Any] | None, **given: Any
) -> Work | Unbound:
    """Returns a launch of a kernel by its name. It is Unbound as `plan` says, and if `args` is None
    and no kernel is found.
    """
    function = name
    try:
        function = find(device.context.loaded, name)
    except Error:
        if args is not None or not isinstance(name, str):
            raise
    return plan("kernel", function=function, args=args, **given)


def plan(kind: str, **given: Any) -> Work | Unbound:
    """Returns work. It is Unbound if all its addresses are None, if its kernel is a name, or if
    the arguments of its kernel are None. Raises Error for what does not fit.
    """
    if kind != "kernel":
        later = all(given[name] is None for name in ADDRESSES[kind])
        some = {**given, **dict.fromkeys(ADDRESSES[kind], LATER)} if later else given
        made: Work = (Copy if kind == "copy" else Set).of(**some)
        return Unbound(kind, given) if later else made
    function, args = given["function"], given["args"]
    if args is None and isinstance(function, Function) and not function.layout:
        args = ()
    if isinstance(function, Function) and args is not None:
        return Kernel.of(**{**given, "args": args})
    planned = Unbound(kind, given)
    whole(given["shared_mem"], "shared_mem", 0, MOST_SHARED)
    assert planned.row  # whose sizes are checked
    return planned
