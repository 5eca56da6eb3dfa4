"""How kstatus (sigs.k8s.io/cli-utils), and so Flux and others, reads any custom resource."""

from typing import Any


def kstatus(live: Any) -> str:
    """Return Current, InProgress, Failed or Terminating, by its rules in their order.

    An object that is going is Terminating. One whose newest generation was not observed is
    InProgress. The first that is True of Reconciling and Stalled makes it InProgress, or Failed.
    Else Ready decides: True is Current, anything else InProgress, and without it, Current.
    """
    metadata, status = live["metadata"], live.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions", [])
    for one in conditions:
        if one["status"] == "True" and one["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if one["type"] == "Reconciling" else "Failed"
    ready = [one["status"] for one in conditions if one["type"] == "Ready"]
    return "Current" if not ready or ready[0] == "True" else "InProgress"
