"""Questions to a run's tables: conditions, groups, figures, the first and the largest."""

from ttanalyze.query.execute import Query, query, stream
from ttanalyze.query.files import EventsFile
from ttanalyze.query.tables import TABLES

__all__ = ["TABLES", "EventsFile", "Query", "query", "stream"]
