"""The lives of regions, from their births, deaths and labels in regions.bin."""

from __future__ import annotations

import functools

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.files import RecordFile, check_values
from ttanalyze.format.layout import Array


class Regions:
    """The regions of a process, one row each, by id.

    birth: the tt_region records of birth. id, size, flags: their members. born, died: the region
    may appear in the epochs [born, died); died is NO_EPOCH while it lives. death_seq, death_ns,
    death_call: of the call that freed it. label: an offset in strings.bin or NO_ID. blocks: the
    number of its blocks.
    """

    def __init__(self, file: RecordFile | None, records: Array) -> None:
        """Raises FormatError for a record that no recorder can have written."""
        if file is not None:
            check_values(file, records, "op", list(layout.enum("region_op").values()))
        ops = layout.enum("region_op")
        births = np.flatnonzero(records["op"] == ops["TT_REGION_BORN"])
        births = births[np.argsort(records["id"][births], kind="stable")]
        self.birth = records[births]
        self.id: Array = self.birth["id"].copy()
        self.size: Array = self.birth["size"]
        self.flags: Array = self.birth["flags"]
        self.born: Array = self.birth["epoch"]
        self.label: Array = self.birth["label"].copy()
        self.died: Array = np.full(len(births), layout.NO_EPOCH, "u4")
        self.death_seq: Array = np.zeros(len(births), "u8")
        self.death_ns: Array = np.zeros(len(births), "u8")
        self.death_call: Array = np.full(len(births), layout.NO_ID, "u4")
        block = np.uint64(layout.BLOCK_SIZE)
        self.blocks: Array = self.size // block + (self.size % block != 0)
        if file is not None:
            self._check_births(file, records, births)
            at, rows = self._rows_of(file, records, ops["TT_REGION_LABEL"])
            self.label[rows] = records["label"][at]  # of several, the last one stays
            self._take_deaths(file, records, ops["TT_REGION_DIED"])

    def __len__(self) -> int:
        return len(self.id)

    @functools.cached_property
    def changes(self) -> Array:
        """Births and deaths by call: seq, birth, row. Deaths of a call come first."""
        died = np.flatnonzero(self.death_seq)
        out = np.zeros(len(self) + len(died), [("seq", "u8"), ("birth", "?"), ("row", "i8")])
        out["seq"] = np.concatenate([self.birth["seq"], self.death_seq[died]])
        out["birth"][: len(self)] = True
        out["row"] = np.concatenate([np.arange(len(self)), died])
        return out[np.lexsort((out["row"], out["birth"], out["seq"]))]

    def _check_births(self, file: RecordFile, records: Array, births: Array) -> None:
        is_birth = np.isin(np.arange(len(records)), births)
        kinds = np.array(list(layout.enum("region_kind").values()), "u4")
        _refuse(file, is_birth & ~np.isin(records["kind"], kinds), "kind", "unknown kind")
        known = np.uint32(layout.CAPTURED | layout.UNSTABLE | layout.GUARDED)
        _refuse(file, is_birth & (records["flags"] & ~known != 0), "flags", "unknown flags")
        again = births[1:][self.id[1:] == self.id[:-1]]
        _refuse(file, np.isin(np.arange(len(records)), again), "id", "born a second time")

    def _rows_of(self, file: RecordFile, records: Array, op: int) -> tuple[Array, Array]:
        """Returns the records with this op, and the rows of their regions."""
        at = np.flatnonzero(records["op"] == op)
        rows = self.rows(records["id"][at])
        if (rows < 0).any():
            raise file.error(int(at[(rows < 0).argmax()]), "id", "no such region")
        return at, rows

    def _take_deaths(self, file: RecordFile, records: Array, op: int) -> None:
        at, rows = self._rows_of(file, records, op)
        _, first = np.unique(rows, return_index=True)
        again = np.ones(len(at), bool)
        again[first] = False
        if again.any():
            raise file.error(int(at[again.argmax()]), "id", "dies a second time")
        early = records["epoch"][at] < self.born[rows]
        if early.any():
            raise file.error(int(at[early.argmax()]), "epoch", "dies before it is born")
        self.died[rows] = records["epoch"][at]
        self.death_seq[rows] = records["seq"][at]
        self.death_ns[rows] = records["time_ns"][at]
        self.death_call[rows] = records["call"][at]

    def rows(self, ids: Array) -> Array:
        """Returns the row of each region id, -1 if it does not exist."""
        if not len(self.id):
            return np.full(len(ids), -1, "i8")
        rows = np.minimum(np.searchsorted(self.id, ids), len(self.id) - 1).astype("i8")
        rows[self.id[rows] != ids] = -1
        return rows


def _refuse(file: RecordFile, bad: Array, field: str, reason: str) -> None:
    """Raises FormatError for the first bad record."""
    if bad.any():
        raise file.error(int(bad.argmax()), field, reason)
