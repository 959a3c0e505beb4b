"""The package zstandard, which is not always installed."""

from __future__ import annotations

from types import ModuleType

from ttanalyze.errors import Error


def zstandard(why: str) -> ModuleType:
    """Returns the module. Raises Error if it is missing. why: what needs it, a sentence's begin."""
    try:
        import zstandard
    except ImportError:
        raise Error(f"{why}: pip install 'ttanalyze[zstd]'") from None
    return zstandard
