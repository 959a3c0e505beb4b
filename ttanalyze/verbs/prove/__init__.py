"""Finds kernels that are not deterministic: runs each launch many times from the same memory.

A kernel that varies is proven to: two runs differ. One that never varied may still do so.
"""

from ttanalyze.verbs.prove.determinism import Variation, Verdict, prove

__all__ = ["Variation", "Verdict", "prove"]
