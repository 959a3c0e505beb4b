"""Summaries of a run: kernels, copies, calls, memory by site, NVTX ranges."""

from ttanalyze.verbs.stats.stats import SUMMARIES, Summary, stats

__all__ = ["SUMMARIES", "Summary", "stats"]
