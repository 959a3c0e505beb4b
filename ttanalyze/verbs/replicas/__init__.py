"""Compares the memory of ranks that should hold the same."""

from ttanalyze.verbs.replicas.compare import replicas
from ttanalyze.verbs.replicas.report import Replica, ReplicasReport

__all__ = ["Replica", "ReplicasReport", "replicas"]
