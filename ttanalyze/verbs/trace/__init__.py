"""Writes a run as a trace for Perfetto or chrome://tracing."""

from ttanalyze.verbs.trace.build import FORMATS, Traced, trace

__all__ = ["FORMATS", "Traced", "trace"]
