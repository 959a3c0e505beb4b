"""Is what a run stores what was there, and is it what a manifest says."""

from ttanalyze.verbs.verify.check import Difference, VerifyReport, verify
from ttanalyze.verbs.verify.localise import Tamper

__all__ = ["Difference", "Tamper", "VerifyReport", "verify"]
