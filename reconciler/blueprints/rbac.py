"""Builds Klutch's RBAC objects: rights of konnectors on the control plane and in app clusters.

On the control plane (protocol-bind.md B.5, C.6) names and rules are those of the original, so that
either backend can take over from the other; but rules are sorted and none is there twice (F21).

In an app cluster (`rbac: Full` and `Minimal` of the fleet) the minimal rules follow from what is
bound and claimed, by what a konnector does there (protocol-konnector.md A to E), which never
replaces a whole object. They are enough for our konnector only: the original's expects to do
anything, which is Full.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api import permission_claims_of
from reconciler.blueprints import machinery
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import identity, keys, names, refs
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    controller_to,
    covers,
    get_maps,
    get_text,
    identity_of,
    name_of,
    namespace_of,
    put,
)
from reconciler.core.times import created

FULL: Final[tuple[Manifest, ...]] = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)

# Verbs on the control plane, in the order of the original.
_EVERYTHING: Final = ("get", "list", "watch", "update", "patch", "delete", "create")
_HANDLE: Final = ("create", "delete", "patch", "update", "get", "list", "watch")
_HANDLE_BINDINGS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
_READ: Final = ("get", "watch", "list")
_STATUS: Final = ("get", "patch", "update")
# Verbs in app clusters.
_LOOK: Final = ("get", "list", "watch")
_CHANGE: Final = ("patch",)
_ALL: Final = ("create", "delete", *_LOOK, *_CHANGE)
_BINDINGS: Final = "apiservicebindings"


def binder_role() -> Manifest:
    """Return ClusterRole `klutch-binder`: the rights of every konnector in its own space."""
    rules = (
        _rule(KLUTCH_GROUP, ["apiserviceexportrequests"], _HANDLE),
        _rule(refs.NAMESPACE.group, [refs.NAMESPACE.plural], ("get",)),
        _rule(refs.SECRET.group, [refs.SECRET.plural], _READ),
        _rule(KLUTCH_GROUP, ["clusterbindings"], _READ),
        _rule(KLUTCH_GROUP, ["clusterbindings/status"], _STATUS),
        _rule(KLUTCH_GROUP, ["apiserviceexports"], _READ),
        _rule(KLUTCH_GROUP, ["apiserviceexports/status"], _STATUS),
        _rule(KLUTCH_GROUP, ["apiservicenamespaces"], _HANDLE),
    )
    return build(refs.CLUSTER_ROLE, names.BINDER, rules=rules)


def binding_in_space(space: str) -> Manifest:
    """Return the RoleBinding in a space that gives its konnector ClusterRole `klutch-binder`."""
    role = (refs.CLUSTER_ROLE, names.BINDER)
    return _binding(refs.ROLE_BINDING, names.BINDER, role, (space, names.BINDER), namespace=space)


def binding_in_service_namespace(space: str, namespace: str) -> Manifest:
    role = (refs.CLUSTER_ROLE, names.space_cluster_role(space))
    return _binding(
        refs.ROLE_BINDING, names.BINDER, role, (space, names.BINDER), namespace=namespace
    )


def left_over(space: Manifest, namespaces: Iterable[Manifest], bindings: Iterable[Manifest]) -> str:
    """Return a sentence about rights or data that an earlier space of this name left, or "".

    An account of its name would have them at once. `space` is the Namespace as it is to be, or is;
    `namespaces` and `bindings` are all Namespaces, RoleBindings and ClusterRoleBindings.
    """
    name, lives = name_of(space), identity.lives(space)
    own = {name}
    for one in namespaces:
        mark = annotations_of(one).get(keys.API_SERVICE_NAMESPACE, "")
        if mark.partition("/")[0] != name:
            continue
        former = identity.recorded(one, keys.SPACE_UID)
        if former not in lives and not (former == identity.NONE and _is_older(space, one)):
            line = identity.confirmation(refs.NAMESPACE, space, former)
            return _left(
                space, f"Namespace {name_of(one)}", f"give all that it left to this one: {line}"
            )
        own.add(name_of(one))
    account = {"kind": refs.SERVICE_ACCOUNT.kind, "name": names.BINDER, "namespace": name}
    for one in bindings:
        given = any(covers(subject, account) for subject in get_maps(one, "subjects"))
        owners = {owner.get("uid") for owner in get_maps(one, "metadata", "ownerReferences")}
        if given and namespace_of(one) not in own and not owners & lives:
            kind = refs.ROLE_BINDING if namespace_of(one) else refs.CLUSTER_ROLE_BINDING
            holder = f"{kind.kind} {'/'.join(filter(None, identity_of(one)))}"
            return _left(space, holder, "take the account off it")
    return ""


def _is_older(space: Manifest, other: Manifest) -> bool:
    """Return whether a live space was there before an object, which names no uid."""
    born, made = created(space), created(other)
    return born is not None and made is not None and born <= made


def _left(space: Manifest, one: str, way_out: str) -> str:
    return (
        f"{one} is of an earlier space {name_of(space)}: the account {names.BINDER} of a new one "
        f"would have its rights or data. Delete what is not needed any more, or {way_out}"
    )


def space_role(space: Manifest, exports: Iterable[Manifest]) -> Manifest:
    """Return ClusterRole `klutch-binder-<space>`: all rights on exported and claimed kinds.

    It goes with the space, which is a live Namespace.
    """
    role = build(
        refs.CLUSTER_ROLE, names.space_cluster_role(name_of(space)), rules=space_rules(exports)
    )
    return put(role, [controller_to(refs.NAMESPACE, space)], "metadata", "ownerReferences")


def binding_everywhere(space: Manifest) -> Manifest:
    """Return the ClusterRoleBinding to that ClusterRole: rights in the namespaces of everybody.

    For consumer scope `Cluster` only; in any other it must not exist for a moment (F1).
    """
    name = names.space_cluster_role(name_of(space))
    account = (name_of(space), names.BINDER)
    binding = _binding(refs.CLUSTER_ROLE_BINDING, name, (refs.CLUSTER_ROLE, name), account)
    return put(binding, [controller_to(refs.NAMESPACE, space)], "metadata", "ownerReferences")


def space_rules(exports: Iterable[Manifest]) -> Sequence[Manifest]:
    """Return one rule for each kind that an export exports or claims, by group and plural.

    For kinds of Crossplane there is one more, which gives no right: the admission policy of the
    account reads in it which fields are kept from it. So both come in one write, and a backend that
    may read exports may write it.
    """
    kinds, marks = set[refs.GroupResource](), list[str]()
    for export in exports:
        own = get_text(export, "spec", "group"), get_text(export, "spec", "names", "plural")
        kinds.add(refs.GroupResource(*own))
        marks += machinery.marks(refs.GroupResource(*own).name, export)
        for claim in permission_claims_of(export):
            kinds.add(refs.GroupResource(get_text(claim, "group"), get_text(claim, "resource")))
    rules = everything_on(kinds)
    if not marks:
        return rules
    return [*rules, _least(KLUTCH_GROUP, ["apiserviceexports"], ("get",), only=sorted(marks))]


def everything_on(kinds: Iterable[refs.GroupResource]) -> Sequence[Manifest]:
    """Return a rule for each kind, in order: the verbs of an account with all rights on it."""
    pairs = sorted((one.group, one.plural) for one in kinds)
    return [_rule(group, [plural], _EVERYTHING) for group, plural in pairs]


def control_plane_role(space: str) -> Manifest:
    """Return the Role of a konnector that runs on the control plane, for its objects there."""
    rules = (
        _rule(KLUTCH_GROUP, [_BINDINGS], _HANDLE_BINDINGS),
        _rule(KLUTCH_GROUP, [f"{_BINDINGS}/status"], ("patch", "update")),
        _rule(refs.LEASE.group, [refs.LEASE.plural], _HANDLE_BINDINGS),
    )
    return build(refs.ROLE, names.CONTROL_PLANE_CONNECTOR, namespace=space, rules=rules)


def control_plane_role_binding(space: str) -> Manifest:
    """Return the binding of that Role to the space's ServiceAccount."""
    name = names.CONTROL_PLANE_CONNECTOR
    return _binding(
        refs.ROLE_BINDING, name, (refs.ROLE, name), (space, names.BINDER), namespace=space
    )


def cluster_role(name: str, rules: Sequence[Manifest], *, marks: Marks) -> Manifest:
    return build(refs.CLUSTER_ROLE, name, marks=marks, rules=list(rules))


def cluster_role_binding(name: str, account: str, *, marks: Marks) -> Manifest:
    """Return the binding of this ClusterRole to an account in namespace klutch-bind."""
    holder = (names.KLUTCH_NAMESPACE, account)
    return _binding(refs.CLUSTER_ROLE_BINDING, name, (refs.CLUSTER_ROLE, name), holder, marks=marks)


@dataclass(frozen=True, slots=True, order=True)
class Claimed:
    """A kind that an accepted permission claim names. `down`: its objects come from the provider.

    What goes up only is never created or deleted in the app cluster (mapping.md 0).
    """

    group: str
    plural: str
    down: bool


def minimal(
    bound: Collection[refs.GroupResource], claimed: Iterable[Claimed]
) -> tuple[Manifest, ...]:
    """Return the rules for any konnector that serves these.

    It may create any CRD: a POST, unlike an apply, has no name that a rule could be about.
    """
    crds = sorted(resource.name for resource in bound)
    rules = [
        # Which app namespaces there are, and whose cluster this is.
        _least(refs.NAMESPACE.group, [refs.NAMESPACE.plural], _LOOK),
        _least(refs.CRD.group, [refs.CRD.plural], (*_LOOK, "create")),
        _least(refs.EVENT.group, [refs.EVENT.plural], ("create", *_CHANGE)),
    ]
    if crds:
        rules.append(_least(refs.CRD.group, [refs.CRD.plural], ("delete", *_CHANGE), only=crds))
    return (*rules, *_bound(bound), *_claimed(claimed))


def minimal_inside(kubeconfig_secret: str) -> tuple[Manifest, ...]:
    """Return the rights that a konnector needs beside those where it runs.

    It installs the CRD of APIServiceBindings, reads them, mirrors the kubeconfig into that Secret
    and holds a Lease. Of Secrets it can create that one only, and only by an apply, which says
    the name before it is authorized.
    """
    crd = refs.GroupResource(KLUTCH_GROUP, _BINDINGS).name
    return (
        _least(refs.CRD.group, [refs.CRD.plural], _CHANGE, only=[crd]),
        _least(KLUTCH_GROUP, [_BINDINGS], ("list", "watch", *_CHANGE)),
        _least(KLUTCH_GROUP, [f"{_BINDINGS}/status"], _CHANGE),
        _least(
            refs.SECRET.group,
            [refs.SECRET.plural],
            ("create", *_LOOK, *_CHANGE),
            only=[kubeconfig_secret],
        ),
        _least(refs.LEASE.group, [refs.LEASE.plural], ("create",)),
        _least(
            refs.LEASE.group, [refs.LEASE.plural], ("get", *_CHANGE), only=[names.KONNECTOR_LEASE]
        ),
    )


def _bound(resources: Iterable[refs.GroupResource]) -> Iterable[Manifest]:
    """Instances go up and, where they are born on the control plane, come down; statuses too.

    Only their owners delete them.
    """
    for group, plurals in by_group(resources):
        yield _least(group, plurals, ("create", *_LOOK, *_CHANGE))
        yield _least(group, [f"{plural}/status" for plural in plurals], _CHANGE)


def _claimed(claims: Iterable[Claimed]) -> Iterable[Manifest]:
    known = set(claims)
    down = {refs.GroupResource(claim.group, claim.plural) for claim in known if claim.down}
    up = {refs.GroupResource(claim.group, claim.plural) for claim in known} - down
    yield from (_least(group, plurals, _ALL) for group, plurals in by_group(down))
    yield from (_least(group, plurals, (*_LOOK, *_CHANGE)) for group, plurals in by_group(up))


def by_group(resources: Iterable[refs.GroupResource]) -> Iterable[tuple[str, list[str]]]:
    plurals: dict[str, set[str]] = {}
    for resource in resources:
        plurals.setdefault(resource.group, set()).add(resource.plural)
    return [(group, sorted(plurals[group])) for group in sorted(plurals)]


def _least(
    group: str, resources: list[str], verbs: Iterable[str], *, only: list[str] | None = None
) -> Manifest:
    rule = _rule(group, resources, sorted(verbs))
    return rule if only is None else {**rule, "resourceNames": only}


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _binding(
    kind: refs.Kind,
    name: str,
    role: tuple[refs.Kind, str],
    account: tuple[str, str],
    *,
    namespace: str = "",
    marks: Marks = UNMARKED,
) -> Manifest:
    """Return the binding of a role to the ServiceAccount `account` (namespace, name)."""
    subject = {"kind": refs.SERVICE_ACCOUNT.kind, "name": account[1], "namespace": account[0]}
    given = {"apiGroup": role[0].group, "kind": role[0].kind, "name": role[1]}
    return build(kind, name, namespace=namespace, marks=marks, subjects=[subject], roleRef=given)
