"""CRDs of tests."""

from collections.abc import Sequence
from typing import Any, Final

from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, Kind

OBJECT: Final[Manifest] = {"type": "object"}
OPEN: Final[Manifest] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version_of(
    schema: Manifest = OBJECT, name: str = "v1", *, storage: bool = True, status: bool = False
) -> Any:
    """Return a served version of a CRD."""
    one = {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}
    return {**one, "subresources": {"status": {}}} if status else one


def spec_of(kind: Kind, versions: Sequence[Manifest]) -> Any:
    """Return the spec of a CRD, whose form an export has, too."""
    names = {"plural": kind.plural, "kind": kind.kind}
    scope = "Namespaced" if kind.namespaced else "Cluster"
    return {"group": kind.group, "names": names, "scope": scope, "versions": list(versions)}


def definition(
    kind: Kind, schema: Manifest = OBJECT, *, status: bool = False, marks: Marks = UNMARKED
) -> Manifest:
    """Return the CRD of a kind with one version."""
    version = version_of(schema, kind.version, status=status)
    return build(CRD, kind.resource, marks=marks, spec=spec_of(kind, [version]))
