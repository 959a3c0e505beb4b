"""The column `rank` of tables of a run, and the pieces that tables come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ttanalyze.format.columns import nullable
from ttanalyze.format.layout import Array
from ttanalyze.format.run import Run
from ttanalyze.util.progress import Progress

RANK = "rank"


class Piece(Protocol):
    """Some rows of a table, whose columns are made when they are requested."""

    def __len__(self) -> int: ...

    def take(self, columns: Sequence[str], rows: Array | None = None) -> pd.DataFrame:
        """Returns columns of some rows by number, by default of all."""
        ...


Pieces = Callable[[Any, Sequence[str], bool, Progress], Iterator[Piece]]


@dataclass
class _RankedPiece:
    """A piece with the column `rank`. ranks: of each process by number, -1 for none."""

    piece: Piece
    ranks: Array

    def __len__(self) -> int:
        return len(self.piece)

    def take(self, columns: Sequence[str], rows: Array | None = None) -> pd.DataFrame:
        made = self.piece.take(_without_rank(columns), rows)
        return made.assign(rank=nullable(self.ranks[made["process"]], -1))[list(columns)]


def _without_rank(columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(["process", *(column for column in columns if column != RANK)]))


def ranked(pieces: Pieces) -> Pieces:
    """Adds the column `rank` to a table with the column `process`."""

    def made(
        run: Run, columns: Sequence[str], ordered: bool, progress: Progress
    ) -> Iterator[Piece]:
        if RANK not in columns:
            yield from pieces(run, columns, ordered, progress)
            return
        ranks = np.full(max((p.index for p in run.processes), default=0) + 1, -1, "i8")
        for process in run.processes:
            if process.rank is not None:
                ranks[process.index] = process.rank.rank
        for piece in pieces(run, _without_rank(columns), ordered, progress):
            yield _RankedPiece(piece, ranks)

    return made
