"""Kernels as the saved module images have them: checksums of their code, and what it uses."""

from ttanalyze.code.checksums import Checksums, checksums
from ttanalyze.code.fatbin import missing
from ttanalyze.code.uses import uses

__all__ = ["Checksums", "checksums", "missing", "uses"]
