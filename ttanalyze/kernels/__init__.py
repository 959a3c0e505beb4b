"""Kernels as the saved module images have them: checksums of their code."""

from ttanalyze.kernels.checksums import Checksums, checksums

__all__ = ["Checksums", "checksums"]
