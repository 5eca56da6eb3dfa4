"""Lists the rights that plan and apply need, for each kind of cluster, in one table.

`doctor` asks for each of them, and the roles of the accounts that run klutchctl are made of them.
Derived from what is read and written (mapping.md 3, 4, 8, 9, 12). Pure.

No row of a plan reads a Secret: the plan role gives no credential away (trust.md T2). An apply
reads those of binding spaces by their names, and namespace klutch-bind of an app cluster whole.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconciler import api
from reconciler.blueprints.objects import Marks, build
from reconciler.blueprints.rbac import Claimed, by_group
from reconciler.core import keys, names, refs
from reconciler.core.manifest import JSON, Manifest, grouped
from reconciler.fleet import values, wanted
from reconciler.observe import reads


class Task(StrEnum):
    """The use of klutchctl that rights are for. An apply needs all that a plan does."""

    PLAN = "plan"
    APPLY = "apply"


class Side(StrEnum):
    """The kinds of cluster."""

    CONTROL_PLANE = "control-plane"
    APP_CLUSTER = "app-cluster"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """Verbs on a resource. `namespace` "" is everywhere; `only` are object names, () is any."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of a fleet that decides about rights on a cluster, or on all of one kind.

    `services` are what is bound. `kubeconfigs` are namespace and name of the Secrets beside
    AppClusterBindings, `secrets` those in namespace klutch-bind that `spec.access` names.
    `deploys`: klutchctl makes a konnector, or its account, with rights of its own. `full`: with
    all rights; else with those for `services` and `claimed`. `named` are the namespaces that
    permission claims name. `deletes`: something that leaves the files may be deleted.
    """

    fleet: str
    services: frozenset[refs.GroupResource] = frozenset()
    modes: frozenset[values.Mode] = frozenset()
    kubeconfigs: frozenset[tuple[str, str]] = frozenset()
    secrets: frozenset[str] = frozenset()
    claimed: frozenset[Claimed] = frozenset()
    named: frozenset[str] = frozenset()
    deploys: bool = False
    full: bool = False
    deletes: bool = False


def scope_of(
    fleet: values.Fleet,
    clusters: Iterable[values.AppCluster],
    planes: Iterable[values.ControlPlane],
    *,
    units: Collection[values.Unit],
) -> Scope:
    chosen = {one.name: one for one in clusters}
    modes = frozenset(one.mode for one in planes)
    whole = {
        one.name
        for one in chosen.values()
        if fleet.control_planes[one.control_plane].mode is values.Mode.APP_CLUSTER_BINDING
    }
    policies = {fleet.guards.on_cluster_leave, *(unit.deletion_policy for unit in units)}
    accesses = (one.access.secret for one in chosen.values())
    return Scope(
        fleet=fleet.name,
        services=frozenset(unit.key.service for unit in units),
        modes=modes,
        kubeconfigs=frozenset(
            (chosen[name].app_cluster_binding[0], names.app_cluster_kubeconfig_secret(name))
            for name in whole
        ),
        secrets=frozenset(secret[0] for secret in accesses if secret is not None),
        claimed=frozenset(one for unit in units for one in wanted.claimed(unit)),
        named=frozenset(name for unit in units for one in unit.claims for name in one.namespaces),
        deploys=bool(whole) or any(one.konnector.deploy for one in chosen.values()),
        full=any(one.konnector.rbac is values.Rbac.FULL for one in chosen.values()),
        deletes=values.DeletionPolicy.DELETE in policies,
    )


def scope_of_fleet(fleet: values.Fleet, only: Collection[str] | None = None) -> Scope:
    """Return the scope of a whole fleet, or of these app clusters and their control planes."""
    if only is None:
        everything = fleet.clusters.values(), fleet.control_planes.values()
        return scope_of(fleet, *everything, units=fleet.units.values())
    chosen = [fleet.clusters[name] for name in sorted(only)]
    planes = [fleet.control_planes[name] for name in sorted({one.control_plane for one in chosen})]
    units = [unit for unit in fleet.units.values() if unit.key.cluster in only]
    return scope_of(fleet, chosen, planes, units=units)


KONNECTOR: Final = (names.AGENTLESS_SERVICE_ACCOUNT, names.KONNECTOR)
KONNECTOR_ROLES: Final = (names.AGENTLESS_SERVICE_ACCOUNT, names.KONNECTOR_CLUSTER_ROLE)
_SPACE_SECRETS: Final = (names.BINDER, names.KUBECONFIG)
_BIND: Final = names.KLUTCH_NAMESPACE


def account(fleet: str, task: Task) -> str:
    """Return the ServiceAccount in namespace klutch-bind, and its roles, and admission policies."""
    return f"klutchctl-{fleet}-{task}"


def needed(task: Task, side: Side, scope: Scope) -> tuple[Right, ...]:
    """Return every right, each once, in order."""
    on_plane = side is Side.CONTROL_PLANE
    rows = [*(_plan_on_plane(scope) if on_plane else _plan_in_app(scope))]
    if task is Task.APPLY:
        rows += _apply_on_plane(scope) if on_plane else _apply_in_app(scope)
        rows += _to_examine(side, scope)
    return tuple(_merged(rows))


def _merged(rows: Iterable[Right]) -> Iterator[Right]:
    """Yield the rights with the verbs on the same objects together."""
    verbs: dict[tuple[str, str, str, tuple[str, ...]], set[str]] = {}
    for row in rows:
        verbs.setdefault((row.namespace, row.group, row.resource, row.only), set()).update(
            row.verbs
        )
    for (namespace, group, resource, only), found in sorted(verbs.items()):
        yield Right(group, resource, tuple(sorted(found)), namespace, only)


def _to_examine(side: Side, scope: Scope) -> Iterator[Right]:
    """Yield the rights of a doctor: to see whether the admission policies of an apply are there."""
    konnectors = (names.KONNECTOR_CLUSTER_ROLE,) if side is Side.APP_CLUSTER else ()
    for kind in (refs.ADMISSION_POLICY, refs.ADMISSION_POLICY_BINDING):
        yield _right(kind, "get", only=(*konnectors, account(scope.fleet, Task.APPLY)))


def _plan_on_plane(scope: Scope) -> Iterator[Right]:
    yield from (_right(kind, "list") for kind in (refs.NAMESPACE, refs.CRD, *reads.WHOLE))
    yield _right(api.API_SERVICE_EXPORT, "get", "list")
    yield _right(api.API_SERVICE_NAMESPACE, "list")  # what was released
    yield _right(refs.SERVICE_ACCOUNT, "list", only=(names.BINDER,))
    # In whichever namespace an agent runs, and was started by hand.
    yield _right(refs.LEASE, "get", only=(names.BACKEND_LEASE,))
    if values.Mode.DIRECT in scope.modes:
        # What an earlier space of the name of a new one left to its account.
        yield _right(refs.ROLE_BINDING, "list")
        yield _right(refs.CLUSTER_ROLE_BINDING, "list")
    if values.Mode.APP_CLUSTER_BINDING in scope.modes:
        yield _right(refs.LEASE, "get", only=(names.KONNECTOR_LEASE,))


def _plan_in_app(scope: Scope) -> Iterator[Right]:
    yield _right(refs.NAMESPACE, "get", only=(_BIND, names.KUBE_SYSTEM))
    yield _right(refs.CRD, "get", "list")
    yield _right(api.API_SERVICE_BINDING, "list")
    if values.Mode.DIRECT in scope.modes:
        yield _right(refs.LEASE, "get", only=(names.KONNECTOR_LEASE,))
    yield _right(refs.DEPLOYMENT, "get", at=_BIND, only=(names.KONNECTOR,))
    yield _right(refs.SERVICE_ACCOUNT, "get", at=_BIND, only=KONNECTOR)
    for kind in (refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING):
        yield _right(kind, "get", only=KONNECTOR_ROLES)
    yield from _services(scope, "list")


def _apply_on_plane(scope: Scope) -> Iterator[Right]:
    yield _right(refs.NAMESPACE, "create", "get", "patch")
    yield _right(refs.CRD, "get")
    yield _right(api.CLUSTER_BINDING, "create", "get", "patch")
    yield _right(api.API_SERVICE_EXPORT_REQUEST, "create", "delete", "get", "patch")
    yield _right(api.API_SERVICE_EXPORT, "delete")
    # A name cannot be granted before the object exists.
    yield _right(refs.SERVICE_ACCOUNT, "create")
    yield _right(refs.SERVICE_ACCOUNT, "get", "patch", only=(names.BINDER,))
    yield _right(refs.SECRET, "create")
    yield _right(refs.SECRET, "delete", "get", "list", "patch", only=_SPACE_SECRETS)
    if scope.secrets:
        yield _right(refs.SECRET, "get", at=_BIND, only=tuple(sorted(scope.secrets)))
    yield from _services(scope, "get", "list", "patch")
    yield _right(refs.LEASE, "create", at=_BIND)
    yield _right(refs.LEASE, "get", "patch", at=_BIND, only=(names.lock_lease(scope.fleet),))
    yield _right(refs.EVENT, "create", at=_BIND)
    if values.Mode.APP_CLUSTER_BINDING in scope.modes:
        yield _right(api.APP_CLUSTER_BINDING, "create", "get", "patch")
        yield _right(api.API_SERVICE_BINDING, "create", "get", "patch")
        for at, name in scope.kubeconfigs:
            yield _right(refs.SECRET, "get", "list", "patch", at=at, only=(name,))
    if scope.deletes:
        yield _right(refs.NAMESPACE, "delete")
        if values.Mode.APP_CLUSTER_BINDING in scope.modes:
            yield _right(api.APP_CLUSTER_BINDING, "delete")


def _apply_in_app(scope: Scope) -> Iterator[Right]:
    crds = tuple(sorted(one.name for one in scope.services))
    yield _right(refs.NAMESPACE, "create")
    yield _right(refs.SECRET, "create", "delete", "get", "list", "patch", at=_BIND)
    yield _right(api.API_SERVICE_BINDING, "create", "delete", "get", "patch")
    yield _right(refs.CRD, "create")
    if crds:
        yield _right(refs.CRD, "patch", *_deleting(scope), only=crds)
    yield from _services(scope, "get", "patch", *_deleting(scope))
    if scope.deploys:
        yield from _konnector()


def _konnector() -> Iterator[Right]:
    yield _right(refs.DEPLOYMENT, "create", at=_BIND)
    yield _right(refs.DEPLOYMENT, "delete", "patch", at=_BIND, only=(names.KONNECTOR,))
    yield _right(refs.SERVICE_ACCOUNT, "create", at=_BIND)
    yield _right(refs.SERVICE_ACCOUNT, "delete", "patch", at=_BIND, only=KONNECTOR)
    for kind in (refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING):
        yield _right(kind, "create")
        yield _right(kind, "delete", "patch", only=KONNECTOR_ROLES)
    # To give a konnector rights that one has not: `escalate` has no name to check in a POST.
    yield _right(refs.CLUSTER_ROLE, "escalate")
    yield _right(refs.CLUSTER_ROLE, "bind", only=KONNECTOR_ROLES)


def _services(scope: Scope, *verbs: str) -> Iterator[Right]:
    return (Right(one.group, one.plural, verbs) for one in scope.services)


def _right(kind: refs.Kind, *verbs: str, at: str = "", only: tuple[str, ...] = ()) -> Right:
    return Right(kind.group, kind.plural, verbs, at, tuple(sorted(only)))


def _deleting(scope: Scope) -> tuple[str, ...]:
    return ("delete",) if scope.deletes else ()


def manifests(task: Task, side: Side, scope: Scope) -> tuple[Manifest, ...]:
    """Return a ServiceAccount in namespace klutch-bind with just the rights of the task.

    With its roles, and the namespaces that those are in: a role can be in no other.
    """
    rows = _merged([*needed(task, side, scope), *optional(side)])
    return tuple(_manifests(account(scope.fleet, task), tuple(rows)))


_READ: Final = ("get", "list", "watch")
# By the usual ClusterRole that takes the rights in: `edit` is part of `admin` there.
_OF_DEVELOPERS: Final = {
    "edit": (*_READ, "create", "update", "patch", "delete", "deletecollection"),
    "view": _READ,
}


def of_developers(scope: Scope) -> tuple[Manifest, ...]:
    """Return ClusterRoles by which developers with `view`, `edit` or `admin` use all services."""
    marks = {one: f"rbac.authorization.k8s.io/aggregate-to-{one}" for one in _OF_DEVELOPERS}
    return tuple(
        build(
            refs.CLUSTER_ROLE,
            f"klutchctl-{scope.fleet}-services-{usual}",
            marks=Marks(labels={marks[usual]: "true"}),
            rules=[
                {"apiGroups": [group], "resources": plurals, "verbs": list(verbs)}
                for group, plurals in by_group(scope.services)
            ],
        )
        for usual, verbs in _OF_DEVELOPERS.items()
    )


# What a doctor reads of Crossplane, and its Deployment, which shows the version.
CROSSPLANE: Final = (
    refs.COMPOSITION,
    refs.COMPOSITION_REVISION,
    refs.COMPOSITE_DEFINITION,
    refs.FUNCTION_REVISION,
    api.API_SERVICE_EXPORT_TEMPLATE,
)
CROSSPLANE_DEPLOYMENT: Final = "crossplane"


def optional(side: Side) -> tuple[Right, ...]:
    """Return the rights that no plan needs; without them a doctor reports a gap."""
    if side is Side.APP_CLUSTER:
        return ()
    version = _right(refs.DEPLOYMENT, "get", only=(CROSSPLANE_DEPLOYMENT,))
    return (*(_right(kind, "list") for kind in CROSSPLANE), version)


def _manifests(name: str, rights: Sequence[Right]) -> Iterator[Manifest]:
    by_namespace = grouped(rights, lambda right: right.namespace)
    inside = sorted({names.KLUTCH_NAMESPACE, *by_namespace} - {""})
    yield from (build(refs.NAMESPACE, one, marks=Marks(annotations=keys.KEPT)) for one in inside)
    yield build(refs.SERVICE_ACCOUNT, name, namespace=_BIND)
    yield build(refs.CLUSTER_ROLE, name, rules=_rules(by_namespace[""]))
    yield _given(refs.CLUSTER_ROLE_BINDING, refs.CLUSTER_ROLE, name)
    for namespace in inside:
        if by_namespace[namespace]:
            yield build(refs.ROLE, name, namespace=namespace, rules=_rules(by_namespace[namespace]))
            yield _given(refs.ROLE_BINDING, refs.ROLE, name, namespace)


def _rules(rights: Sequence[Right]) -> list[JSON]:
    """Return the rules, with the resources of one group that share verbs together."""
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for right in rights:
        alike[right.group, right.only, right.verbs].append(right.resource)
    return [
        _rule(group, only, verbs, resources)
        for (group, only, verbs), resources in sorted(alike.items())
    ]


def _rule(
    group: str, only: tuple[str, ...], verbs: tuple[str, ...], resources: list[str]
) -> Mapping[str, JSON]:
    rule: dict[str, JSON] = {"apiGroups": [group], "resources": sorted(resources)}
    named: dict[str, JSON] = {"resourceNames": list(only)} if only else {}
    return {**rule, **named, "verbs": list(verbs)}


def _given(kind: refs.Kind, role: refs.Kind, name: str, namespace: str = "") -> Manifest:
    subject = {"kind": refs.SERVICE_ACCOUNT.kind, "name": name, "namespace": _BIND}
    reference = {"apiGroup": role.group, "kind": role.kind, "name": name}
    return build(kind, name, namespace=namespace, roleRef=reference, subjects=[subject])
