"""One form for values that mean the same, so that only real differences are drift (mapping.md 0).

Knows, per kind, which arrays are sets or keyed by name, which texts are quantities and what a
permission claim leaves unsaid. The result is for comparing with `manifest.covers`, never for
sending. Refuses to know which object is ours or what is done about a difference.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reconciler.core.keys import KLUTCH_GROUP, TEMPLATE_GROUP
from reconciler.core.manifest import JSON, Manifest, canonical, fill, get, get_maps, map_items, put
from reconciler.core.quantities import canonical_quantity

RBAC_GROUP: Final = "rbac.authorization.k8s.io"

_CLAIM_DEFAULTS: Final[Manifest] = {
    "group": "",
    "required": False,
    "selector": {
        "names": ["*"],
        "namespaces": ["*"],
        "owner": "",
        "labelSelectors": [],
        "fieldSelectors": [],
    },
    "read": {
        "labels": [],
        "labelsOnProviderOwnedObjects": [],
        "annotations": [],
        "overrideAnnotations": [],
    },
    "create": {"replaceExisting": False},
    "autoAdopt": False,
    "autoDonate": False,
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
    "update": {
        "fields": [],
        "preserving": [],
        "alwaysRecreate": False,
        "labels": [],
        "labelsOnConsumerOwnedObjects": [],
        "annotations": [],
        "annotationsOnConsumerOwnedObjects": [],
    },
}


def normalize(manifest: Manifest) -> Manifest:
    """Return the object in its form for comparing; kinds without a rule come back as they are.

    Applied to both sides of a comparison; applying it twice is the same as once.
    """
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    rule = _RULES.get((group, kind)) if isinstance(kind, str) else None
    return manifest if rule is None else rule(manifest)


def normalize_claim(claim: Manifest) -> Manifest:
    """Return a permission claim that says everything.

    API servers fill in names and namespaces ["*"], read {}, onConflict
    {recreateWhenConsumerSideDeleted: true} and group "". The other fields, absent, mean their
    empty value; saying so makes a field that somebody else adds to a claim a difference.
    """
    return fill(claim, _CLAIM_DEFAULTS)


def normalize_container(container: Manifest) -> Manifest:
    """Return a container with its quantities in one form and its env keyed by name."""
    measured = _quantities(container)
    env = measured.get("env")
    return measured if env is None else put(measured, _by_name(env), "env")


def _as_set(items: Sequence[JSON]) -> list[JSON]:
    distinct = {canonical(item): item for item in items}
    return [distinct[key] for key in sorted(distinct)]


def _by_name(items: JSON) -> JSON:
    """Return named items as an object; as they are where a name is missing or doubled."""
    if not isinstance(items, list | tuple):
        return items
    named: dict[str, JSON] = {}
    for item in items:
        name = get(item, "name")
        if isinstance(name, str):
            named[name] = item
    return named if len(named) == len(items) else items


def _quantities(container: Manifest) -> Manifest:
    for field in ("limits", "requests"):
        amounts = get(container, "resources", field)
        if isinstance(amounts, Mapping):
            known = {name: _quantity(amount) for name, amount in amounts.items()}
            container = put(container, known, "resources", field)
    return container


def _quantity(amount: JSON) -> JSON:
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return amount
    try:
        return canonical_quantity(amount)
    except ValueError:
        return amount  # the API server will say what is wrong with it


def _claims(manifest: Manifest) -> Manifest:
    return map_items(manifest, normalize_claim, "spec", "permissionClaims")


def _request(manifest: Manifest) -> Manifest:
    def resource(item: Manifest) -> Manifest:
        return map_items(fill(item, {"group": ""}), normalize_claim, "permissionClaims")

    return map_items(manifest, resource, "spec", "resources")


def _app_cluster_binding(manifest: Manifest) -> Manifest:
    manifest = map_items(manifest, lambda item: fill(item, {"group": ""}), "spec", "apiExports")
    exports = get(manifest, "spec", "apiExports")
    if isinstance(exports, list):
        manifest = put(manifest, _as_set(exports), "spec", "apiExports")
    path = ("spec", "konnector", "overrides")
    overrides = get(manifest, *path)
    if not isinstance(overrides, Mapping):
        return manifest
    measured = _quantities(overrides)
    env = measured.get("env")
    if isinstance(env, list):
        # One owner has this array whole, so a variable that others add is a difference.
        measured = put(measured, _as_set(env), "env")
    return put(manifest, measured, *path)


def _deployment(manifest: Manifest) -> Manifest:
    for field in ("containers", "initContainers"):
        path = ("spec", "template", "spec", field)
        manifest = map_items(manifest, normalize_container, *path)
        containers = get(manifest, *path)
        if containers is not None:
            manifest = put(manifest, _by_name(containers), *path)
    return manifest


def _role(manifest: Manifest) -> Manifest:
    def rule(item: Manifest) -> Manifest:
        sets = {key: _as_set(value) for key, value in item.items() if isinstance(value, list)}
        return {**item, **sets}

    if manifest.get("rules") is None:
        return manifest
    rules: list[JSON] = [rule(item) for item in get_maps(manifest, "rules")]
    return put(manifest, _as_set(rules), "rules")


def _role_binding(manifest: Manifest) -> Manifest:
    def subject(item: Manifest) -> Manifest:
        group = "" if item.get("kind") == "ServiceAccount" else RBAC_GROUP
        return fill(item, {"apiGroup": group})

    if manifest.get("subjects") is not None:
        subjects: list[JSON] = [subject(item) for item in get_maps(manifest, "subjects")]
        manifest = put(manifest, _as_set(subjects), "subjects")
    role = manifest.get("roleRef")
    if not isinstance(role, Mapping):
        return manifest
    return put(manifest, fill(role, {"apiGroup": RBAC_GROUP}), "roleRef")


_RULES: Final[Mapping[tuple[str, str], Callable[[Manifest], Manifest]]] = {
    ("apps", "Deployment"): _deployment,
    (RBAC_GROUP, "Role"): _role,
    (RBAC_GROUP, "ClusterRole"): _role,
    (RBAC_GROUP, "RoleBinding"): _role_binding,
    (RBAC_GROUP, "ClusterRoleBinding"): _role_binding,
    (KLUTCH_GROUP, "APIServiceBinding"): _claims,
    (KLUTCH_GROUP, "APIServiceExport"): _claims,
    (TEMPLATE_GROUP, "APIServiceExportTemplate"): _claims,
    (KLUTCH_GROUP, "APIServiceExportRequest"): _request,
    (KLUTCH_GROUP, "AppClusterBinding"): _app_cluster_binding,
}
