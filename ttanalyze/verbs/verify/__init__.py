"""Checks a run against a manifest, and its stored contents against their digests."""

from ttanalyze.verbs.verify.compare import verify
from ttanalyze.verbs.verify.localise import Tamper
from ttanalyze.verbs.verify.report import Difference, VerifyReport

__all__ = ["Difference", "Tamper", "VerifyReport", "verify"]
