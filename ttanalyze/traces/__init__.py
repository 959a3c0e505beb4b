"""Traces of instructions: of runs, and in the formats of CUTracer."""
