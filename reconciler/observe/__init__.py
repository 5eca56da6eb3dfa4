"""What is live in all clusters of a fleet: complete per cluster, or said to be unseen."""

from reconciler.observe.observer import Clusters, answer, observe
from reconciler.observe.reading import Pace

__all__ = ["Clusters", "Pace", "answer", "observe"]
