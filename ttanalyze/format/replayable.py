"""Replayable launches and the settings that applied to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttanalyze.errors import FormatError
from ttanalyze.format import layout
from ttanalyze.format.files import Folder, RecordFile, check_values, read_checked
from ttanalyze.format.layout import Array
from ttanalyze.format.params import HEAD, UNIT, Params


def read(folder: Folder) -> Array:
    """Returns the tt_launch records of a process by seq."""
    file = folder.open("launches.bin")
    if file is None:
        return np.empty(0, layout.LAUNCH)
    records = read_checked(file)
    order = np.argsort(records["seq"], kind="stable")
    twice = records["seq"][order][1:] == records["seq"][order][:-1]
    if twice.any():
        again = int(order[1:][twice].min())
        raise file.error(again, "seq", "a second record of this launch")
    return records[order]


def last_of_each(file: RecordFile, records: Array) -> Array:
    """Returns the last tt_module record of each id, by id."""
    check_values(file, records, "kind", list(layout.enum("module_kind").values()))
    check_values(file, records, "missing", list(layout.enum("missing").values()))
    order = np.argsort(records["id"], kind="stable")
    ids = records["id"][order]
    last: Array = np.append(ids[1:] != ids[:-1], True)[: len(ids)]
    return np.asarray(records[order[last]])


class ParamRecords:
    """Records in params.bin that launches and modules refer to."""

    def __init__(self, params: Params) -> None:
        self._params = params

    def settings(self, record: Any) -> Array:
        """Returns the tt_setting records of a launch (tt_launch) or a module (tt_module)."""
        out = self._records(record["settings"], record["setting_count"], layout.SETTING)
        return self._known(record["settings"], out, "what", "setting_kind")

    def attributes(self, record: Any) -> Array:
        """Returns the attributes of a launch: tt_launch_attribute records."""
        position, count = record["attributes"], record["attribute_count"]
        return self._records(position, count, layout.LAUNCH_ATTRIBUTE)

    def views(self, record: Any) -> Array:
        """Returns the textures and surfaces that a launch may use: tt_view records."""
        out = self._records(record["views"], record["view_count"], layout.VIEW)
        return self._known(record["views"], out, "kind", "view_kind")

    def _records(self, position: Any, count: Any, kind: np.dtype[Any]) -> Array:
        what = "records that launches.bin or modules.bin refer to"
        return np.frombuffer(
            self._params.piece(int(position), int(count) * kind.itemsize, what), kind
        )

    def _known(self, position: Any, records: Array, member: str, name: str) -> Array:
        unknown = ~np.isin(records[member], list(layout.enum(name).values()))
        if unknown.any():
            value = int(records[member][unknown][0])
            at = int(position) * UNIT + HEAD + int(unknown.argmax()) * records.dtype.itemsize
            raise FormatError(self._params.path, at, f"unknown {member} {value} of a {name[:-5]}")
        return records
