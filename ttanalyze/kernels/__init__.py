"""Kernels as the saved module images have them: checksums of their code, and what it uses."""

from ttanalyze.kernels.checksums import Checksums, checksums
from ttanalyze.kernels.fatbin import missing
from ttanalyze.kernels.uses import uses

__all__ = ["Checksums", "checksums", "missing", "uses"]
