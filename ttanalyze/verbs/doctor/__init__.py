"""Checks whether programs can be recorded on this machine, and what to do if they cannot."""

from ttanalyze.verbs.doctor.checks import Check, Diagnosis, doctor

__all__ = ["Check", "Diagnosis", "doctor"]
