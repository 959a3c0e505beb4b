"""Writes the times of one process by the clock of another: see core/clocks.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ttanalyze.format.layout import Array
from ttanalyze.verbs.trace.rows import Group, Lane, Part, Rows, Template, Writer


class Shifted:
    """A writer that adds an offset in nanoseconds to all times."""

    def __init__(self, writer: Writer, offset: int) -> None:
        self._writer = writer
        self._offset = offset

    def group(self, group: Group) -> None:
        """Writes a group, before its lanes."""
        self._writer.group(group)

    def lane(self, lane: Lane) -> None:
        """Writes a lane, before what is in it."""
        self._writer.lane(lane)

    def template(self, parts: Sequence[Part]) -> Template:
        """Returns a template of rows with these parts."""
        return self._writer.template(parts)

    def rows(self, templates: Sequence[Template], rows: Rows) -> None:
        """Writes rows."""
        first, second = ((self._moved(a), self._moved(b)) for a, b in rows.spans)
        self._writer.rows(templates, replace(rows, spans=(first, second)))

    def end(self) -> None:
        """Ends the trace."""
        self._writer.end()

    def _moved(self, times: Array) -> Array:
        return times.astype("i8") + self._offset
