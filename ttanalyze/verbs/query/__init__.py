"""Queries over the tables of a run: filter, group, aggregate, sort.

The expressions of filters are described in the guide Query.
"""

from ttanalyze.core.run_tables import TABLES
from ttanalyze.verbs.query.execute import Query, query, stream
from ttanalyze.verbs.query.files import EventsFile, RecordsFile
from ttanalyze.verbs.query.native import TRACE_TABLES, TracedRun
from ttanalyze.verbs.query.several import open_sources
from ttanalyze.verbs.query.sql import sql
from ttanalyze.verbs.query.traces import Regions, TraceFile, open_file

__all__ = [
    "TABLES",
    "TRACE_TABLES",
    "EventsFile",
    "Query",
    "RecordsFile",
    "Regions",
    "TraceFile",
    "TracedRun",
    "open_file",
    "open_sources",
    "query",
    "sql",
    "stream",
]
