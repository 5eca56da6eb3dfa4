"""The rights of the table as roles, for a ServiceAccount that runs klutchctl. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from reconciler.core import names, refs
from reconciler.core.manifest import JSON, Manifest
from reconciler.doctor.rights import Right, Scope, Side, Task, account, needed


def manifests(task: Task, side: Side, scope: Scope) -> tuple[Manifest, ...]:
    """Return a ServiceAccount in namespace klutch-bind that may do just what the task needs.

    With its roles, and the namespaces that those are in: a role can be in no other.
    """
    return tuple(_manifests(account(scope.fleet, task), needed(task, side, scope)))


def _manifests(name: str, rights: Sequence[Right]) -> Iterator[Manifest]:
    by_namespace: dict[str, list[Right]] = defaultdict(list)
    for right in rights:
        by_namespace[right.namespace].append(right)
    inside = sorted({names.KLUTCH_NAMESPACE, *by_namespace} - {""})
    yield from (_object(refs.NAMESPACE, one) for one in inside)
    yield _object(refs.SERVICE_ACCOUNT, name, names.KLUTCH_NAMESPACE)
    yield _object(refs.CLUSTER_ROLE, name, rules=_rules(by_namespace[""]))
    yield _given(refs.CLUSTER_ROLE_BINDING, refs.CLUSTER_ROLE, name)
    for namespace in inside:
        if by_namespace[namespace]:
            yield _object(refs.ROLE, name, namespace, rules=_rules(by_namespace[namespace]))
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
    subject = {
        "kind": refs.SERVICE_ACCOUNT.kind,
        "name": name,
        "namespace": names.KLUTCH_NAMESPACE,
    }
    reference = {"apiGroup": role.group, "kind": role.kind, "name": name}
    return _object(kind, name, namespace, roleRef=reference, subjects=[subject])


def _object(kind: refs.Kind, name: str, namespace: str = "", **more: JSON) -> Manifest:
    place = {"namespace": namespace} if namespace else {}
    metadata: Manifest = {"name": name, **place}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
