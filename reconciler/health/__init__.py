"""The health of units: one unit, one cluster while an apply waits, a whole fleet for `status`."""
