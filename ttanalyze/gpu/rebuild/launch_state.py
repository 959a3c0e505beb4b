"""Settings that apply to a kernel: attributes of functions and launches, limits and caches of the
context, compiler options.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.process import Process
from ttanalyze.gpu.module import Function
from ttanalyze.gpu.rebuild.steps import Launch

# Of CU_LAUNCH_ATTRIBUTE_…: what concerns other work, which is not here: starting before what came
# before in the stream, events, changes by the device.
OTHERS = (6, 7, 12, 13)
# CU_FUNC_ATTRIBUTE_…: dynamic shared memory, carve-out, clusters.
SETTABLE = (8, 9, 11, 12, 13, 14, 15)
# CU_JIT_…: options that are numbers and say what code to make.
COMPILED = (0, 1, 7, 8, 9, 10, 11, 13, 14, 20, 21, 22, 23, 24, 29, 30, 31, 32, 33)


def kept_attributes(launch: Launch) -> tuple[tuple[int, bytes], ...]:
    """Returns the further attributes of a launch that apply when it runs alone."""
    return tuple(one for one in launch.attributes if one[0] not in OTHERS)


def jit_options(process: Process, module: Any) -> dict[int, int]:
    """Returns the compiler options with which a module (tt_module) was loaded."""
    found = process.kept.settings(module)
    found = found[found["what"] == layout.SETTING_KINDS.index("jit")]
    pairs = zip(found["number"].tolist(), found["value"].tolist(), strict=True)
    return {number: value for number, value in pairs if number in COMPILED}


def apply_settings(function: Function, launch: Launch) -> None:
    """Applies the recorded settings of a launch. What the driver refuses stays, such as limits that
    cannot change any more.
    """
    with function.device.use() as driver:
        for kind, number, raw in launch.settings:
            value = _signed(raw)
            with contextlib.suppress(Error):
                if kind == "attribute" and number in SETTABLE:
                    if function.attribute(number) != value:
                        driver.call("cuFuncSetAttribute", function.handle, number, value)
                elif kind == "cache":
                    call = "cuCtxSetCacheConfig" if number else "cuFuncSetCacheConfig"
                    driver.call(call, *([] if number else [function.handle]), value)
                elif kind == "limit" and driver.get("cuCtxGetLimit", "size_t", number) != raw:
                    driver.call("cuCtxSetLimit", ffi.cast("CUlimit", number), raw)


def _signed(value: int) -> int:
    """Returns the value of a 64-bit two's complement."""
    return value - (1 << 64) if value >> 63 else value
