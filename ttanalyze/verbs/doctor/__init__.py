"""Whether this machine can record: what is there, what is missing, what to do about it."""

from ttanalyze.verbs.doctor.checks import Check, Diagnosis, doctor

__all__ = ["Check", "Diagnosis", "doctor"]
