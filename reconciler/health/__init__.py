"""Evaluates health: of one unit, of a cluster during an apply, and of a fleet for `status`."""
