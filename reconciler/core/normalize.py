"""Normalizes equal values to one form, so that only real differences are drift (mapping.md 0).

Knows, per kind, which arrays are sets or keyed by name, which texts are quantities and what a
permission claim leaves unsaid. The result is for comparing with `manifest.covers`, never for
sending. Does not know which object is ours or what is done about a difference.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from reconciler.core import manifest as m
from reconciler.core.keys import KLUTCH_GROUP, TEMPLATE_GROUP
from reconciler.core.manifest import JSON, Manifest

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
_CLAIM_FIELDS: Final = frozenset(_CLAIM_DEFAULTS) | {"resource", "version", "state"}
# Of a container's fields, those that a server keeps apart from absence; the others, such as
# `stdin: false`, it drops.
_ZERO_IS_A_VALUE: Final = frozenset(
    {"env", "optional", "securityContext", "terminationGracePeriodSeconds"}
)
_ZEROS: Final[tuple[JSON, ...]] = (False, 0, "")

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_MAX_QUANTITY: Final = 64
_NANO: Final = 9

# By group and kind.
Rules: TypeAlias = Mapping[tuple[str, str], Callable[[Manifest], Manifest]]


def normalize(manifest: Manifest) -> Manifest:
    """Return the object in its form for comparing; kinds without a rule come back as they are.

    Applied to both sides of a comparison; applying it twice is the same as once.
    """
    return by_kind(manifest, _RULES)


def by_kind(manifest: Manifest, rules: Rules) -> Manifest:
    """Return the object as the rule for its group and kind makes it, or as it is without one."""
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    rule = rules.get((group, kind)) if isinstance(kind, str) else None
    return manifest if rule is None else rule(manifest)


def normalize_claim(claim: Manifest) -> Manifest:
    """Return a permission claim with all defaults.

    API servers fill in names and namespaces ["*"], read {}, onConflict
    {recreateWhenConsumerSideDeleted: true} and group "". The other fields, absent, mean their
    empty value; saying so makes a field that somebody else adds to a claim a difference.
    What is selected is a set.
    """
    filled = m.fill(claim, _CLAIM_DEFAULTS)
    selector = m.get_map(filled, "selector")
    for name in ("names", "namespaces", "labelSelectors"):
        selected = selector.get(name)
        if isinstance(selected, list) and len(selected) > 1:
            filled = m.put(filled, _as_set(selected), "selector", name)
    return filled


def normalize_container(container: Manifest) -> Manifest:
    """Return a container with its quantities in one form and its env keyed by name.

    Zero values are left out where a server does the same: false, 0 and "", but for fields in
    which they differ from absence.
    """
    # An environment variable without any source is empty.
    measured = m.map_items(
        _without_zeros(_quantities(container)),
        lambda one: one if "valueFrom" in one else m.fill(one, {"value": ""}),
        "env",
    )
    env = measured.get("env")
    return measured if env is None else m.put(measured, _by_name(env), "env")


def canonical_quantity(quantity: str | int | float) -> str:
    """Return the quantity as a plain decimal number, such as `1073741824` or `0.5`.

    Digits below a billionth are rounded up, as API servers do. Raises ValueError with a sentence.
    """
    text = str(quantity)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_QUANTITY else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise ValueError(f"{text[:_MAX_QUANTITY]!r} is not a quantity such as 500m, 1.5 or 2Gi")
    fraction = match["fraction"] or ""
    power, factor = _scale(match["suffix"] or "")
    power += _NANO - len(fraction)
    nanos = int(match["whole"] + fraction) * factor
    nanos = nanos * 10**power if power >= 0 else -(-nanos // 10**-power)
    whole, rest = divmod(nanos, 10**_NANO)
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if nanos and match['sign'] == '-' else ''}{whole}{decimals}"


def _scale(suffix: str) -> tuple[int, int]:
    """Return the power of ten and the factor that a suffix stands for."""
    if suffix in _BINARY_SUFFIXES:
        return 0, 1 << _BINARY_SUFFIXES[suffix]
    decimal = _DECIMAL_SUFFIXES.get(suffix)
    return int(suffix[1:]) if decimal is None else decimal, 1


def _as_set(items: Sequence[JSON]) -> list[JSON]:
    if len(items) < 2:
        return list(items)
    distinct = {m.canonical(item): item for item in items}
    return [distinct[key] for key in sorted(distinct)]


def _by_name(items: JSON) -> JSON:
    """Return named items as an object; as they are where a name is missing or doubled."""
    if not isinstance(items, list | tuple):
        return items
    named: dict[str, JSON] = {}
    for item in items:
        name = m.get(item, "name")
        if isinstance(name, str):
            named[name] = item
    return named if len(named) == len(items) else items


def _without_zeros(container: Manifest) -> dict[str, JSON]:
    return {
        key: value if key in _ZERO_IS_A_VALUE else _inner_without_zeros(value)
        for key, value in container.items()
        if key in _ZERO_IS_A_VALUE or value not in _ZEROS
    }


def _inner_without_zeros(value: JSON) -> JSON:
    if isinstance(value, list | tuple):
        return [_inner_without_zeros(item) for item in value]
    return _without_zeros(value) if isinstance(value, Mapping) else value


def _quantities(container: Manifest) -> Manifest:
    for field in ("limits", "requests"):
        amounts = m.get(container, "resources", field)
        if isinstance(amounts, Mapping):
            known = {name: _quantity(amount) for name, amount in amounts.items()}
            container = m.put(container, known, "resources", field)
    return container


def _quantity(amount: JSON) -> JSON:
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return amount
    try:
        return canonical_quantity(amount)
    except ValueError:
        return amount  # the API server will say what is wrong with it


def _claims(manifest: Manifest) -> Manifest:
    claims = m.get(manifest, "spec", "permissionClaims")
    if claims is None or claims == []:
        return manifest
    if isinstance(claims, list):
        # A rejected claim is none.
        heeded = [one for one in claims if m.get(one, "state") != "Rejected"]
        manifest = m.put(manifest, heeded, "spec", "permissionClaims")
    return _claim_set(manifest, "spec", "permissionClaims")


def _claim_set(manifest: Manifest, *path: str) -> Manifest:
    normal = m.map_items(manifest, normalize_claim, *path)
    claims = m.get(normal, *path)
    if not isinstance(claims, list) or len(claims) < 2:
        return normal
    return m.put(normal, sorted(_as_set(claims), key=_claim_rank), *path)


def _claim_rank(claim: JSON) -> bytes:
    """Rank by the known fields, so that another's field does not move a claim."""
    if not isinstance(claim, Mapping):
        return m.canonical(claim)
    return m.canonical({key: value for key, value in claim.items() if key in _CLAIM_FIELDS})


def _request(manifest: Manifest) -> Manifest:
    def resource(item: Manifest) -> Manifest:
        return _claim_set(m.fill(item, {"group": ""}), "permissionClaims")

    return m.map_items(manifest, resource, "spec", "resources")


def _app_cluster_binding(manifest: Manifest) -> Manifest:
    manifest = m.map_items(manifest, lambda item: m.fill(item, {"group": ""}), "spec", "apiExports")
    exports = m.get(manifest, "spec", "apiExports")
    if isinstance(exports, list):
        manifest = m.put(manifest, _as_set(exports), "spec", "apiExports")
    if isinstance(m.get(manifest, "spec"), Mapping):
        # Nothing said is: not deployed.
        deploy = m.get(manifest, "spec", "konnector", "deploy")
        manifest = m.put(manifest, deploy is True, "spec", "konnector", "deploy")
    path = ("spec", "konnector", "overrides")
    overrides = m.get(manifest, *path)
    if not isinstance(overrides, Mapping):
        return manifest
    measured = _quantities(overrides)
    env = measured.get("env")
    if isinstance(env, list):
        # One owner has this array whole, so a variable that others add is a difference.
        measured = m.put(measured, _as_set(env), "env")
    return m.put(manifest, measured, *path)


def _deployment(manifest: Manifest) -> Manifest:
    for field in ("containers", "initContainers"):
        path = ("spec", "template", "spec", field)
        manifest = m.map_items(manifest, normalize_container, *path)
        containers = m.get(manifest, *path)
        if containers is not None:
            manifest = m.put(manifest, _by_name(containers), *path)
    return manifest


def _role(manifest: Manifest) -> Manifest:
    def rule(item: Manifest) -> Manifest:
        sets = {key: _as_set(value) for key, value in item.items() if isinstance(value, list)}
        return {**item, **sets}

    if manifest.get("rules") is None:
        return manifest
    rules: list[JSON] = [rule(item) for item in m.get_maps(manifest, "rules")]
    return m.put(manifest, _as_set(rules), "rules")


def _role_binding(manifest: Manifest) -> Manifest:
    def subject(item: Manifest) -> Manifest:
        group = "" if item.get("kind") == "ServiceAccount" else RBAC_GROUP
        return m.fill(item, {"apiGroup": group})

    if manifest.get("subjects") is not None:
        subjects: list[JSON] = [subject(item) for item in m.get_maps(manifest, "subjects")]
        manifest = m.put(manifest, _as_set(subjects), "subjects")
    role = manifest.get("roleRef")
    if not isinstance(role, Mapping):
        return manifest
    return m.put(manifest, m.fill(role, {"apiGroup": RBAC_GROUP}), "roleRef")


_RULES: Final[Rules] = {
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
