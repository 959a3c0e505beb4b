"""The code of kernels in cubins, fatbins and PTX: names, symbols, checksums, what it uses."""

from ttanalyze.code.checksums import checksums
from ttanalyze.code.fatbin import missing
from ttanalyze.code.uses import uses

__all__ = ["checksums", "missing", "uses"]
