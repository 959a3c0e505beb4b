"""Runs a program with the recorder in it."""

from ttanalyze.verbs.record.run import Recorded, record

__all__ = ["Recorded", "record"]
