"""Collectives of NCCL, matched across ranks: mismatches, hangs, stragglers, wrong results."""

from ttanalyze.verbs.collectives.collectives import Collectives, collectives

__all__ = ["Collectives", "collectives"]
