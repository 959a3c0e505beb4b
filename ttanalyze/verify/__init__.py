"""Is what a run stores what was there, and is it what a manifest says."""

from ttanalyze.verify.check import Difference, VerifyReport, verify
from ttanalyze.verify.localise import Tamper

__all__ = ["Difference", "Tamper", "VerifyReport", "verify"]
