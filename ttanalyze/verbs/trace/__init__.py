"""A run as a trace for Perfetto and chrome://tracing: calls, streams, epochs, memory over time."""

from ttanalyze.verbs.trace.build import FORMATS, Traced, trace

__all__ = ["FORMATS", "Traced", "trace"]
