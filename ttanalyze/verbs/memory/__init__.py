"""Analyses the allocations of a program: how much when, by which calls, where, and what was never
freed.
"""

from ttanalyze.core.allocations import (
    Moment,
    ProcessMemory,
    address_ranges,
    alive_at,
    allocation_sites,
    memory,
    timeline,
)

__all__ = [
    "Moment",
    "ProcessMemory",
    "address_ranges",
    "alive_at",
    "allocation_sites",
    "memory",
    "timeline",
]
