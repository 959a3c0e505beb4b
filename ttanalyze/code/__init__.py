"""Reads kernels' code: cubins, fatbins and PTX. Names, symbols, checksums, features."""

from ttanalyze.code.checksums import checksums
from ttanalyze.code.uses import uses

__all__ = ["checksums", "uses"]
