"""Queries over the tables of a run: filter, group, aggregate, sort.

The expressions of filters are described in the guide Query.
"""

from ttanalyze.core.run_tables import TABLES
from ttanalyze.verbs.query.execute import Query, query, stream
from ttanalyze.verbs.query.several import open_sources
from ttanalyze.verbs.query.sql import sql

__all__ = [
    "TABLES",
    "Query",
    "open_sources",
    "query",
    "sql",
    "stream",
]
