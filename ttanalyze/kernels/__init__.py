"""Kernels as the saved module images have them: checksums of their code."""

from ttanalyze.kernels.checksums import Checksums, checksums
from ttanalyze.kernels.fatbin import missing

__all__ = ["Checksums", "checksums", "missing"]
