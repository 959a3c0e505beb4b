"""Tensor copies (TMA) in an instruction trace: what they copy, by which descriptor, by which calls.

A record has what the descriptor says where the trace knows the call that encoded it. From that and
the instruction, the call and the statement of the source are put together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ttanalyze.disassembly.decode import Text, parsed
from ttanalyze.traces.descriptors import DOES, box_bytes, does
from ttanalyze.traces.native import AnyTrace
from ttanalyze.traces.reader import Kernel, Record, cta

TYPE = "tma_trace"
CORNERS = ("pixel_box_lower_corner", "pixel_box_upper_corner")  # of im2col
MAP = (
    *("data_type", "global_address", "global_dim", "global_strides", "box_dim"),
    *("element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill"),
    *CORNERS,
)
SIZES_OF = ("global_dim", "global_strides", "box_dim", "element_strides", *CORNERS)
LISTS = (*SIZES_OF, "first", "last")
TEXTS = {*MAP, "does", "mode", "barrier", "descriptor", "encoded_by", "source"} - {*SIZES_OF}
COLUMNS = (
    *("kernel", "launch", "opcode_id", "pc", "instruction", "does", "dimensions", "mode"),
    *("records", "blocks", "multicast", "first", "last", "bytes", "barrier", "descriptor", *MAP),
    *("encoded_by", "source"),
)
NAMES = {
    "interleave": ("CU_TENSOR_MAP_INTERLEAVE_", {}),
    "swizzle": ("CU_TENSOR_MAP_SWIZZLE_", {}),
    "l2_promotion": ("CU_TENSOR_MAP_L2_PROMOTION_", {}),
    "oob_fill": ("CU_TENSOR_MAP_FLOAT_OOB_FILL_", {"NAN": "NAN_REQUEST_ZERO_FMA"}),
}


class _Group:
    """The records of an instruction with one descriptor."""

    def __init__(self, record: Record, text: Text) -> None:
        self.record, self.text = record, text
        self.count = 0
        self.blocks: set[tuple[int, int, int]] = set()
        self.first = self.last = coordinates(record)
        self.masks = 0

    def add(self, record: Record) -> None:
        self.count += 1
        self.blocks.add(cta(record))
        self.last = coordinates(record)
        self.masks |= int(_info(record).get("multicast_cta_mask") or 0)


def tensor_copies(trace: AnyTrace) -> Iterator[dict[str, Any]]:
    """Yields a row per launch, instruction and descriptor, in the order of the first record.

    `first` and `last` are coordinates of the first and the last record, `bytes` those of the box of
    one copy. `encoded_by` is the call that makes such a descriptor, `source` the statement of PTX.
    """
    groups: dict[tuple[Any, ...], _Group] = {}
    for record in trace.whole_records():
        if isinstance(record, Kernel) or record.members["type"] != TYPE:
            continue
        kernel, members = record.kernel, record.members
        launch, number = members.get("grid_launch_id"), members.get("opcode_id")
        key = (kernel.line if kernel else 0, launch, number, members.get("desc_addr"))
        if key not in groups:
            groups[key] = _Group(record, parsed((record.sass() or "").rstrip("; ")))
        groups[key].add(record)
    yield from (_row(group) for group in groups.values())


def coordinates(record: Record) -> list[int] | None:
    """Returns the coordinates of a copy, one for each dimension."""
    tensor = _info(record).get("tensor") or {}
    found = tensor.get("coords") or record.members.get("coords")
    return None if found is None else [int(x) for x in found[: tensor.get("dim") or 5]]


def _info(record: Record) -> Mapping[str, Any]:
    found = record.members.get("tma_transfer_info") or {}
    if not isinstance(found, dict) or not isinstance(found.get("tensor") or {}, dict):
        raise record.place.error("tma_transfer_info: expected an object, and in it tensor")
    return found


def _row(group: _Group) -> dict[str, Any]:
    record, info = group.record, _info(group.record)
    tensor = info.get("tensor") or {}
    said = tensor.get("tiled") or tensor.get("im2col") or {}
    if not isinstance(said, dict):
        raise record.place.error("tma_transfer_info: expected tiled or im2col to be an object")
    rank = said.get("rank") or tensor.get("dim") or 0
    told = {name: said.get(name) for name in MAP}
    for name in SIZES_OF:
        listed = said.get(name)
        told[name] = listed[: rank - (name == "global_strides")] if listed else None
    return {
        "kernel": record.kernel and record.kernel.name,
        "launch": record.members.get("grid_launch_id"),
        "opcode_id": record.members.get("opcode_id"),
        "pc": record.offset(),
        "instruction": group.text.mnemonic or None,
        "does": does(group.text, info),
        "dimensions": tensor.get("dim"),
        "mode": tensor.get("mode"),
        "records": group.count,
        "blocks": len(group.blocks),
        "multicast": group.masks,
        "first": group.first,
        "last": group.last,
        "bytes": info.get("byte_count") or box_bytes(said),
        "barrier": record.members.get("barrier"),
        "descriptor": record.members.get("desc_addr"),
        **told,
        "encoded_by": encoding(said) if said else None,
        "source": statement(group.text, tensor, bool(group.masks)),
    }


def encoding(said: Mapping[str, Any]) -> str:
    """Returns the call of the driver that makes such a descriptor."""

    def listed(name: str, count: int = 5) -> str:
        return "{" + ", ".join(str(x) for x in (said.get(name) or [])[:count]) + "}"

    rank = int(said.get("rank") or 0)
    modes = [
        prefix + more.get(str(said.get(name)), str(said.get(name)))
        for name, (prefix, more) in NAMES.items()
    ]
    box, call = [listed("box_dim", rank)], "cuTensorMapEncodeTiled"
    if said.get(CORNERS[0]) is not None:
        call = "cuTensorMapEncodeIm2col"
        box = [*(listed(name) for name in CORNERS), *map(str, said.get("box_dim") or [])]
    arguments = (
        *("&map", f"CU_TENSOR_MAP_DATA_TYPE_{said.get('data_type')}", str(rank)),
        f"(void *){said.get('global_address')}",
        *(listed("global_dim", rank), listed("global_strides", rank - 1)),
        *(*box, listed("element_strides", rank), *modes),
    )
    return f"{call}({', '.join(arguments)})"


def statement(text: Text, tensor: Mapping[str, Any], multicast: bool) -> str | None:
    """Returns the statement of PTX that a machine instruction comes from."""
    if text.opcode.islower():
        return text.sass
    rank, mode = tensor.get("dim"), str(tensor.get("mode") or "").lower()
    if text.opcode not in DOES or not rank:
        return None
    mode = "im2col" if "im2col" in mode else "tile"
    place = f"[map, {{{', '.join(f'c{i}' for i in range(rank))}}}]"
    tile = f"{rank}d"
    if text.opcode == "UTMAPF":
        return f"cp.async.bulk.prefetch.tensor.{tile}.L2.global.{mode} {place}"
    if text.opcode == "UTMALDG":
        more = (".multicast::cluster", ", mask") if multicast else ("", "")
        what = "mbarrier::complete_tx::bytes" + more[0]
        return (
            f"cp.async.bulk.tensor.{tile}.shared::cluster.global.{mode}.{what} "
            f"[shared], {place}, [barrier]{more[1]}"
        )
    how = text.mnemonic.split(".")[-1].lower()
    name, how = ("cp.async", "") if text.opcode == "UTMASTG" else ("cp.reduce.async", f".{how}")
    return f"{name}.bulk.tensor.{tile}.global.shared::cta{how}.{mode}.bulk_group {place}, [shared]"
