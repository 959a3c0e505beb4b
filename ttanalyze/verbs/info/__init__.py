"""Summarises a run: programs, devices, epochs, regions, warnings. Reads no memory contents."""

from ttanalyze.verbs.info.summary import Info, ProcessSummary, info

__all__ = ["Info", "ProcessSummary", "info"]
