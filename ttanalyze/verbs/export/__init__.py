"""Writes a recorded launch as a program of its own."""

from ttanalyze.verbs.export.needs import Needs, find, needs
from ttanalyze.verbs.export.write import Exported, export

__all__ = ["Exported", "Needs", "export", "find", "needs"]
