"""The kinds of events by name, and the kinds that have a property, from format.h.

Names by number are layout.EVENT_KINDS. Code that treats several kinds alike uses one of the tuples
here, so a new kind is classified in one place.
"""

from __future__ import annotations

from ttanalyze.format import layout

KIND = {name: number for number, name in enumerate(layout.EVENT_KINDS) if name}


def _having(name: str) -> tuple[int, ...]:
    """Returns the kinds with the property TT_KIND_NAME, ascending."""
    bit = layout.enum("kind_property")[f"TT_KIND_{name}"]
    properties = layout.enum("event_properties")
    return tuple(
        number
        for kind, number in layout.enum("event_kind").items()
        if properties[kind.replace("EVENT", "PROPERTIES", 1)] & bit
    )


WORK = _having("WORK")
WRITES = _having("WRITES")
STREAM = _having("STREAM")
STORE = tuple(kind for kind in WRITES if kind not in _having("LAUNCH"))  # at dst
TIMED = _having("TIMED")
WAIT = _having("WAIT")
LAUNCH = _having("LAUNCH")
MOVE = _having("MOVE")
BIRTH = _having("BIRTH")
REGION = _having("REGION")
MODULE = _having("MODULE")
GRAPH = _having("GRAPH")
NAMED = _having("NAMED")
NVTX = _having("NVTX")
