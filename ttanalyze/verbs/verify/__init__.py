"""Is what a run stores what was there, and is it what a manifest says."""

from ttanalyze.verbs.verify.check import verify
from ttanalyze.verbs.verify.localise import Tamper
from ttanalyze.verbs.verify.report import Difference, VerifyReport

__all__ = ["Difference", "Tamper", "VerifyReport", "verify"]
