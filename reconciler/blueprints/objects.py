"""The frame of every manifest that we state: what it is, its name, its labels.

Refuses to know any kind. Empty labels and annotations are left out, so that nothing is stated
that a server would drop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.core import keys
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind


@dataclass(frozen=True, slots=True)
class Marks:
    """The labels and annotations of an object."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


UNMARKED: Final = Marks()


def build(
    kind: Kind, name: str, *, namespace: str = "", marks: Marks = UNMARKED, **fields: JSON
) -> Manifest:
    """Return a manifest with `fields` at its top level."""
    metadata: dict[str, JSON] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if marks.labels:
        metadata["labels"] = marks.labels
    if marks.annotations:
        metadata["annotations"] = marks.annotations
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def ownership_labels(fleet: str, cluster: str, *, binding: str = "") -> dict[str, str]:
    """Return our labels (mapping.md 1). `binding` is information only."""
    labels = {keys.FLEET: fleet, keys.CLUSTER: cluster}
    return {**labels, keys.BINDING: binding} if binding else labels
