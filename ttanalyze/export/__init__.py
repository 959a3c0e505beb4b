"""A recorded launch as a program of its own."""

from ttanalyze.export.needs import Needs, find, needs
from ttanalyze.export.write import Exported, export

__all__ = ["Exported", "Needs", "export", "find", "needs"]
