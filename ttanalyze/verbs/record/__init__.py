"""Runs a program under the recorder."""

from ttanalyze.verbs.record.run import Recorded, record

__all__ = ["Recorded", "record"]
