"""What the konnector of a space may do on the control plane (protocol-bind.md B.5).

Names and rules are those of the original, so that either backend can take over from the other;
but rules are sorted and none is there twice (F21). Refuses to know what is live.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from reconciler.blueprints.export import claims_of
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import Manifest, get_text, name_of, put, uid_of
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
)

_EVERYTHING: Final = ("get", "list", "watch", "update", "patch", "delete", "create")
_HANDLE: Final = ("create", "delete", "patch", "update", "get", "list", "watch")
_LOOK: Final = ("get", "watch", "list")
_STATUS: Final = ("get", "patch", "update")


def binder_role() -> Manifest:
    """Return ClusterRole `klutch-binder`: what every konnector may do in its own space."""
    rules = (
        _rule(KLUTCH_GROUP, "apiserviceexportrequests", _HANDLE),
        _rule(NAMESPACE.group, NAMESPACE.plural, ("get",)),
        _rule(SECRET.group, SECRET.plural, _LOOK),
        _rule(KLUTCH_GROUP, "clusterbindings", _LOOK),
        _rule(KLUTCH_GROUP, "clusterbindings/status", _STATUS),
        _rule(KLUTCH_GROUP, "apiserviceexports", _LOOK),
        _rule(KLUTCH_GROUP, "apiserviceexports/status", _STATUS),
        _rule(KLUTCH_GROUP, "apiservicenamespaces", _HANDLE),
    )
    return build(CLUSTER_ROLE, names.BINDER, rules=rules)


def in_space(space: str) -> Manifest:
    """Return the RoleBinding in a space that gives its konnector ClusterRole `klutch-binder`."""
    return _binding(ROLE_BINDING, names.BINDER, names.BINDER, space=space, namespace=space)


def in_service_namespace(space: str, namespace: str) -> Manifest:
    """Return the RoleBinding in a service namespace to the ClusterRole of its space."""
    role = names.space_cluster_role(space)
    return _binding(ROLE_BINDING, names.BINDER, role, space=space, namespace=namespace)


def space_role(space: Manifest, exports: Iterable[Manifest]) -> Manifest:
    """Return ClusterRole `klutch-binder-<space>`: everything with what is exported and claimed.

    It goes with the space, which is a live Namespace.
    """
    role = build(CLUSTER_ROLE, names.space_cluster_role(name_of(space)), rules=space_rules(exports))
    return put(role, [_owner(space)], "metadata", "ownerReferences")


def everywhere(space: Manifest) -> Manifest:
    """Return the ClusterRoleBinding to that ClusterRole: rights in the namespaces of everybody.

    For consumer scope `Cluster` only; in any other it must not exist for a moment (F1).
    """
    name = names.space_cluster_role(name_of(space))
    binding = _binding(CLUSTER_ROLE_BINDING, name, name, space=name_of(space))
    return put(binding, [_owner(space)], "metadata", "ownerReferences")


def space_rules(exports: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return one rule for each kind that an export exports or claims, by group and plural."""
    kinds = set[tuple[str, str]]()
    for export in exports:
        plural = get_text(export, "spec", "names", "plural")
        kinds.add((get_text(export, "spec", "group"), plural))
        for claim in claims_of(export):
            kinds.add((get_text(claim, "group"), get_text(claim, "resource")))
    return [_rule(group, plural, _EVERYTHING) for group, plural in sorted(kinds)]


def _binding(kind: Kind, name: str, role: str, *, space: str, namespace: str = "") -> Manifest:
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": names.BINDER, "namespace": space}
    to = {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": role}
    return build(kind, name, namespace=namespace, subjects=[subject], roleRef=to)


def _owner(space: Manifest) -> Manifest:
    return {
        "apiVersion": NAMESPACE.api_version,
        "kind": NAMESPACE.kind,
        "name": name_of(space),
        "uid": uid_of(space),
        "controller": True,
    }


def _rule(group: str, resource: str, verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
