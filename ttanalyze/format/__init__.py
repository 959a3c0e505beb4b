"""The reader of run directories.

`model.Run` is `tt.Run`, and `model.open_run` is `tt.open`. docs/format.md describes the files.
"""

from ttanalyze.format.run import Run, open_run

__all__ = ["Run", "open_run"]
