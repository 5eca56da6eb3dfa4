"""How bound units are: one unit, one cluster while an apply waits, a whole fleet for `status`."""

from reconciler.health.survey import health_of
from reconciler.health.verdict import Location, State, UnitFacts, UnitHealth, judge

__all__ = ["Location", "State", "UnitFacts", "UnitHealth", "health_of", "judge"]
