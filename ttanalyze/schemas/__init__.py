"""JSON schemas of our files and of CUTracer's, and checks against them."""

from ttanalyze.schemas.files import KINDS, Fault, Report, document_faults, validate

__all__ = ["KINDS", "Fault", "Report", "document_faults", "validate"]
