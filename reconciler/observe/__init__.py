"""Reads the live state of all clusters of a fleet: complete per cluster, or unseen."""

from reconciler.observe.observer import answer, observe
from reconciler.observe.visits import Clusters, Pace

__all__ = ["Clusters", "Pace", "answer", "observe"]
