"""A binding space and what lies in it, as the backend sees it: small live objects.

They are typed as Any, so that tests can reach into them.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from reconciler import api
from reconciler.blueprints import export as exports_of
from reconciler.blueprints.export import Terms
from reconciler.blueprints.objects import build
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CRD, NAMESPACE, Kind
from reconciler.core.times import format_time

CONTROL_PLANE: Final = "control-plane/eu"
SPACE: Final = "cluster-a1"
NOW: Final = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
SECRETS: Any = {"group": "", "resource": "secrets", "version": "v1", "required": True}
CONFIG_MAPS: Any = {"group": "", "resource": "configmaps", "version": "v1", "required": False}


def ago(**span: float) -> str:
    """Return a time before NOW, as objects bear it."""
    return format_time(NOW - timedelta(**span))


def live(
    kind: Kind, name: str, *, namespace: str = "", age: timedelta = timedelta(hours=1), **more: Any
) -> Any:
    """Return an object with what a server adds; `metadata` among `more` is laid over that."""
    metadata: dict[str, JSON] = {
        "name": name,
        "uid": f"uid-of-{name}",
        "resourceVersion": "7",
        "creationTimestamp": format_time(NOW - age),
        **more.pop("metadata", {}),
    }
    if namespace:
        metadata["namespace"] = namespace
    return {**build(kind, name), **more, "metadata": metadata}


def served(manifest: Manifest) -> Any:
    return live_like(manifest, uid=f"uid-of-{manifest['kind']}", resourceVersion="7")


def live_like(manifest: Any, **metadata: JSON) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


def deleting(manifest: Manifest) -> Any:
    """Return the object on its way out, held by a finalizer."""
    return live_like(manifest, deletionTimestamp=ago(seconds=5), finalizers=["somebody.example/x"])


def space(**metadata: JSON) -> Any:
    return live(NAMESPACE, SPACE, metadata=metadata)


def cluster_binding(**status: JSON) -> Any:
    return live(api.CLUSTER_BINDING, "cluster", namespace=SPACE, status=status)


def crd(plural: str = "databases", *, scope: str = "Namespaced", **spec: JSON) -> Any:
    body: Manifest = {
        "group": "shop.example",
        "names": {"plural": plural, "kind": plural[:-1].title(), "shortNames": ["x"]},
        "scope": scope,
        "versions": [version("v1", storage=True)],
        **spec,
    }
    return live(CRD, f"{plural}.shop.example", spec=body)


def version(name: str, *, served: bool = True, storage: bool = False, **more: JSON) -> Any:
    schema: Manifest = {"openAPIV3Schema": {"type": "object"}}
    return {"name": name, "served": served, "storage": storage, "schema": schema, **more}


def template(plural: str = "databases", *, claims: JSON = (), name: str = "offer") -> Any:
    selector: Manifest = {"group": "shop.example", "resource": plural}
    spec: Manifest = {"APIServiceSelector": selector, "permissionClaims": claims}
    return live(api.API_SERVICE_EXPORT_TEMPLATE, name, namespace="platform", spec=spec)


def export(
    of: Manifest | None = None, *, claims: Any = (), terms: Terms | None = None, **status: JSON
) -> Any:
    """Return the export of a CRD, as this backend makes it."""
    defined = of or crd()
    followed = exports_of.exported(defined)
    assert not isinstance(followed, exports_of.Unexportable)
    made = exports_of.new_export(SPACE, followed, claims, terms=terms or Terms(), crd=defined)
    return {**served(made), "status": status}


def request(*plurals: str, age: timedelta = timedelta(), **status: JSON) -> Any:
    resources = [{"group": "shop.example", "resource": one} for one in plurals or ("databases",)]
    return live(
        api.API_SERVICE_EXPORT_REQUEST,
        "r",
        namespace=SPACE,
        age=age,
        spec={"resources": resources},
        status=status,
    )


def mapping(name: str = "dev", **status: JSON) -> Any:
    return live(api.API_SERVICE_NAMESPACE, name, namespace=SPACE, status=status)


def condition(type_: str, status: str, reason: str = "", **more: str) -> Any:
    """Return a condition as it is stored, since an hour unless `more` says so."""
    said: dict[str, JSON] = {"type": type_, "status": status, "lastTransitionTime": ago(hours=1)}
    if reason:
        said |= {"reason": reason, "severity": "Error", "message": "So it is"}
    return {**said, **more}
