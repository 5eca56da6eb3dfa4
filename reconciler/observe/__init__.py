"""What is live in all clusters of a fleet: complete per cluster, or said to be unseen."""

from reconciler.observe.lanes import Pace
from reconciler.observe.observer import Clusters, answer, observe

__all__ = ["Clusters", "Pace", "answer", "observe"]
