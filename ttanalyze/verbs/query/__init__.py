"""Questions to a run's tables: conditions, groups, figures, the first and the largest."""

from ttanalyze.core.run_tables import TABLES
from ttanalyze.verbs.query.execute import Query, query, stream
from ttanalyze.verbs.query.files import EventsFile, RecordsFile
from ttanalyze.verbs.query.traces import TraceFile, open_file

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
