"""Writes a recorded launch as a program, and the tables of a run as SQLite or Parquet."""

from ttanalyze.verbs.export.tables import export_parquet, export_sqlite
from ttanalyze.verbs.export.write import Exported, export

__all__ = ["Exported", "export", "export_parquet", "export_sqlite"]
