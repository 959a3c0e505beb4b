"""Reads run directories: run.open_run gives a Run; docs/format.md says what the files hold."""

from ttanalyze.format.run import Run, open_run

__all__ = ["Run", "open_run"]
