"""Questions to a run's tables: conditions, groups, figures, the first and the largest."""

from ttanalyze.query.execute import Query, query, stream
from ttanalyze.query.files import EventsFile, RecordsFile
from ttanalyze.query.tables import TABLES
from ttanalyze.query.traces import TraceFile, open_file

__all__ = [
    "TABLES",
    "EventsFile",
    "Query",
    "RecordsFile",
    "TraceFile",
    "open_file",
    "query",
    "stream",
]
