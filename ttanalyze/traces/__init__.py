"""Instruction traces of CUTracer."""
