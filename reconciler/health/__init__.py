"""How bound units are: one unit, one cluster while an apply waits, a whole fleet for `status`."""

from reconciler.health.place import Place, place_at, place_of
from reconciler.health.reading import health_of
from reconciler.health.verdict import State, UnitFacts, UnitHealth, judge

__all__ = [
    "Place",
    "State",
    "UnitFacts",
    "UnitHealth",
    "health_of",
    "judge",
    "place_at",
    "place_of",
]
