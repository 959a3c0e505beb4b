"""What tensor maps say, and what a tensor copy by one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ttanalyze.disassembly.decode import Text

DOES = {"UTMALDG": "load", "UTMASTG": "store", "UTMAREDG": "reduce", "UTMAPF": "prefetch"}
BULK = {"UBLKCP": "copy", "UBLKRED": "reduce", "UBLKPF": "prefetch"}
TYPES = (
    *("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64"),
    *("BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"),
    *("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"),
)
INTERLEAVES = ("NONE", "16B", "32B")
SWIZZLES = (
    *("NONE", "32B", "64B", "128B"),
    *("128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"),
)
PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")
FILLS = ("NONE", "NAN")
SIZES: dict[str, float] = {
    "UINT8": 1,
    "UINT16": 2,
    "FLOAT16": 2,
    "BFLOAT16": 2,
    "INT64": 8,
    "UINT64": 8,
    "FLOAT64": 8,
    "16U4_ALIGN8B": 0.5,
    "16U4_ALIGN16B": 1,
    "16U6_ALIGN16B": 1,
}  # bytes of an element, else 4


IM2COL = 1  # tt_tensor_map.mode


def encoded(made: Any) -> dict[str, Any]:
    """Returns what a tt_tensor_map record says, with the names of CUTracer."""
    kinds = {"data_type": TYPES, "interleave": INTERLEAVES, "swizzle": SWIZZLES}
    rest = {"l2_promotion": PROMOTIONS, "oob_fill": FILLS}
    box = made["box"].tolist()
    corners = made["box"][2 : int(made["rank"])].astype("<u4").view("<i2").reshape(-1, 2).tolist()
    im2col = {
        "box_dim": box[:2],
        "pixel_box_lower_corner": [lower for lower, _ in corners],
        "pixel_box_upper_corner": [upper for _, upper in corners],
    }
    return {
        **{name: _name(made, name, names) for name, names in (kinds | rest).items()},
        **{f"{name}_id": int(made[name]) for name in kinds},
        "rank": int(made["rank"]),
        "global_address": hex(int(made["address"])),
        "global_dim": made["sizes"].tolist(),
        "global_strides": made["strides"].tolist(),
        **(im2col if int(made["mode"]) == IM2COL else {"box_dim": box}),
        "element_strides": made["steps"].tolist(),
    }


def _name(made: Any, member: str, names: Sequence[str]) -> str:
    number = int(made[member])
    return names[number] if number < len(names) else str(number)


def transfer(made: Any, text: Text, coordinates: Sequence[int], blocks: int) -> dict[str, Any]:
    """Returns `tma_transfer_info` of a tensor copy.

    Args:
        made: The tt_tensor_map record of its map.
        text: The instruction.
        coordinates: Five coordinates.
        blocks: The mask of blocks, 0 for none.
    """
    what, said = does(text, {}), encoded(made)
    mode = "im2col" if int(made["mode"]) == IM2COL else "tiled"
    size = box_bytes(said)
    spaces = ("GLOBAL", "SHARED") if what in ("load", "prefetch") else ("SHARED", "GLOBAL")
    return {
        "is_bulk": False,
        "is_tensor": True,
        "is_prefetch": what == "prefetch",
        "is_multicast": blocks != 0,
        "transfer_count": 1,
        "transfer_size": size,
        "byte_count": size,
        "multicast_cta_mask": blocks,
        "src_memspace": spaces[0],
        "dst_memspace": spaces[1],
        "tensor": {
            "dim": said["rank"],
            "mode": mode.upper(),
            "coords": [*coordinates],
            mode: said,
        },
    }


def does(text: Text, info: Mapping[str, Any]) -> str:
    """Returns what a copy does: `load`, `store`, `reduce`, `prefetch` or `copy`."""
    name, words = text.opcode, text.mnemonic.split(".")
    if name in DOES or name in BULK:
        return DOES.get(name) or BULK[name]
    if "prefetch" in words or info.get("is_prefetch"):
        return "prefetch"
    if "reduce" in words:
        return "reduce"
    spaces = [word for word in words if word.startswith(("shared", "global"))]
    to = spaces[0] if spaces else str(info.get("dst_memspace") or "").lower()
    return "store" if to.startswith("global") else "load"


def box_bytes(said: Mapping[str, Any]) -> int | None:
    """Returns the bytes that a copy by a descriptor has."""
    if not said.get("box_dim"):
        return None
    size = SIZES.get(str(said.get("data_type")), 4)
    steps = [1, *(said.get("element_strides") or [])[1:]]
    if "pixel_box_lower_corner" in said:
        steps = []
    for each, step in zip_longest(said["box_dim"][: said.get("rank") or 5], steps, fillvalue=1):
        size *= -(-each // max(step, 1))
    return int(size)
