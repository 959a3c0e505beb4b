"""The reader of run directories.

`model.Run` is `tt.Run`, and `model.open_run` is `tt.open`. docs/format.md describes the files.
"""

from ttanalyze.format.instruction_traces import TraceRecords
from ttanalyze.format.run import Run, open_run

__all__ = ["Run", "TraceRecords", "open_run"]
