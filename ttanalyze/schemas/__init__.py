"""Whether files of records are what their schemas say: ours, and those of CUTracer."""

from ttanalyze.schemas.files import KINDS, Fault, Report, document_faults, validate

__all__ = ["KINDS", "Fault", "Report", "document_faults", "validate"]
