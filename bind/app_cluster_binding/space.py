"""Builds a binding space: Namespace, ClusterBinding, account, kubeconfig and rights.

Steps 2 and 3 of protocol-bind.md C.6. `klutch-bind-a-b-c` is the name for `a`/`b-c` and for
`a-b`/`c`, and a service namespace of a third tenant may be called so, too. Nothing is written into
a Namespace, and nothing deleted, before it is proven to be the AppClusterBinding's own (F6, F33):
that of its uid, not of its name (rule S1). To give it to another one takes an annotation on the
Namespace, which no author of AppClusterBindings may write.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Final

from bind import bounds, rbac_changes
from bind.app_cluster_binding import facts
from bind.app_cluster_binding.facts import Seen, Space, Terms
from reconciler import api
from reconciler.api import CLUSTER_BINDING, kubeconfig_content
from reconciler.blueprints import konnector, objects, rbac
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import conditions, identity, keys, manifest, names, refs
from reconciler.core.conditions import Condition
from reconciler.core.decision import Create, Decision, Step, Task, writes
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of, uid_of
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, SECRET, Kind
from reconciler.core.times import created
from reconciler.kube import kubeconfig

# The backend makes Namespace and ClusterBinding one after the other; it may be restarted between.
_AT_ONCE: Final = timedelta(minutes=5)


def kubeconfig_problem(seen: Seen, terms: Terms) -> Condition | None:
    """Return why the app cluster's kubeconfig cannot be used (SecretValid), or None.

    A kubeconfig in a Secret was written by whoever may write that Secret, so it is read as hostile
    input: nothing in it may run a program or read a file of the konnector's machine.
    """
    ref = ("spec", "kubeconfigSecretRef")
    namespace, name, key = (
        manifest.get_text(seen.app_cluster_binding, *ref, part)
        for part in ("namespace", "name", "key")
    )
    place = f"{namespace}/{name}"
    if not terms.allow_cross_namespace_secrets and not _is_granted(seen, namespace):
        # The same whether there is such a Secret or not: that is nobody else's business.
        message = (
            f"Kubeconfig secret {place} is in another namespace, which nobody has allowed: annotate"
            f" it with {keys.ALLOW_APP_CLUSTER_BINDING}={'/'.join(seen.place)}."
        )
        return conditions.false(facts.SECRET_NOT_GRANTED, message)
    if seen.source is None:
        message = f"Kubeconfig secret {place} not found."
        return conditions.false(conditions.KUBECONFIG_SECRET_NOT_FOUND, message)
    content = kubeconfig_content(seen.source, key)
    fault = (
        content
        if isinstance(content, str)
        else kubeconfig.from_content(content, name="the app cluster", networks=terms.networks)
    )
    if isinstance(fault, str):
        message = f"Kubeconfig secret {place} {fault}"
        return conditions.false(conditions.KUBECONFIG_SECRET_INVALID, message)
    return None


def claim(seen: Seen, terms: Terms) -> Decision:
    """Return the part that makes the Namespace and its ClusterBinding, which proves whose it is.

    Whoever comes second fails at the ClusterBinding and has written nothing into the Namespace.
    """
    steps: list[Step] = []
    if seen.space is None:
        marks = Marks({} if terms.all_overrides else bounds.RESTRICTED, _uid(seen))
        steps.append(Create(refs.NAMESPACE, objects.namespace(seen.space_name, marks=marks)))
    made = objects.cluster_binding(
        seen.space_name,
        kubeconfig_name=seen.secret_name,
        spec={"providerPrettyName": seen.place[1]},
        marks=Marks(seen.labels),
    )
    steps.append(Create(CLUSTER_BINDING, made))
    waiting = conditions.false(facts.KONNECTOR_PROGRESSING, "Waiting for the binding space.")
    known = conditions.get(seen.app_cluster_binding, conditions.KONNECTOR_DEPLOYED) is not None
    made_now = writes(*steps, failure=facts.SPACE_FAILED)
    return made_now if known else replace(made_now, conditions=(waiting,))


def content(seen: Seen, space: Space, terms: Terms) -> Decision:
    """Return the part that fills a space which is the AppClusterBinding's own, and repairs it."""
    if space.account is None and seen.left:
        return facts.trouble(facts.SPACE_LEFT_OVERS, seen.left)
    changes = (
        *_marks(seen, space, terms),
        _account(seen, space),
        _bounds(seen, space, terms),
        _kubeconfig(seen, space, terms),
        rbac_changes.role(
            terms.control_plane, refs.ROLE, space.role, rbac.control_plane_role(seen.space_name)
        ),
        rbac_changes.role_binding(
            terms.control_plane,
            refs.ROLE_BINDING,
            space.role_binding,
            rbac.control_plane_role_binding(seen.space_name),
        ),
    )
    return Decision(tasks=tuple(Task(steps, facts.SPACE_FAILED) for steps in changes if steps))


def _marks(seen: Seen, space: Space, terms: Terms) -> Iterator[tuple[Step, ...]]:
    live = space.cluster_binding
    if live is not None and not manifest.covers(manifest.labels_of(live), seen.labels):
        yield (terms.change(CLUSTER_BINDING, live, metadata={"labels": seen.labels}),)
    noted, wanted = manifest.annotations_of(space.namespace), dict[str, manifest.JSON](_uid(seen))
    retired = keys.RELEASED in manifest.annotations_of(seen.app_cluster_binding)
    if keys.RELEASED in noted and not retired:
        wanted[keys.RELEASED] = None
    if any(noted.get(key) != value for key, value in wanted.items()):
        yield (terms.change(refs.NAMESPACE, space.namespace, metadata={"annotations": wanted}),)


def _uid(seen: Seen) -> dict[str, str]:
    return {keys.APP_CLUSTER_BINDING_UID: manifest.uid_of(seen.app_cluster_binding)}


def _account(seen: Seen, space: Space) -> tuple[Step, ...]:
    if space.account is not None:
        return ()
    made = objects.service_account(seen.space_name, names.BINDER, marks=UNMARKED)
    return (Create(refs.SERVICE_ACCOUNT, made),)


def _bounds(seen: Seen, space: Space, terms: Terms) -> tuple[Step, ...]:
    """Bound the Pods of a space, once: an administrator may change it."""
    if terms.all_overrides or not seen.deployments_served:
        return ()
    made = (
        (refs.NETWORK_POLICY, space.network_policy, konnector.network_policy(seen.space_name)),
        (refs.LIMIT_RANGE, space.limit_range, konnector.limit_range(seen.space_name)),
    )
    return tuple(Create(kind, stated) for kind, live, stated in made if live is None)


def _kubeconfig(seen: Seen, space: Space, terms: Terms) -> tuple[Step, ...]:
    """Mirror the referenced key and nothing else. The type of a Secret cannot be changed."""
    source = seen.source
    assert source is not None  # it is valid
    ref = manifest.get_map(seen.app_cluster_binding, "spec", "kubeconfigSecretRef")
    if api.secret_of(seen.app_cluster_binding) == (seen.space_name, seen.secret_name):
        return ()
    key = manifest.get_text(ref, "key")
    data: dict[str, manifest.JSON] = {key: manifest.get(source, "data", key)}
    made = build(
        refs.SECRET,
        seen.secret_name,
        namespace=seen.space_name,
        marks=Marks(seen.labels),
        type=manifest.get_text(source, "type"),
        data=data,
    )
    live = next((one for one in space.secrets if manifest.name_of(one) == seen.secret_name), None)
    if live is None:
        return (Create(refs.SECRET, made),)
    if manifest.is_deleting(live):
        return ()
    present = manifest.get_map(live, "data")
    same_type = manifest.get_text(live, "type") == manifest.get_text(source, "type")
    if not same_type or (manifest.get_bool(live, "immutable") and present != data):
        return (terms.deletion(refs.SECRET, live), Create(refs.SECRET, made))
    if present == data and manifest.covers(manifest.labels_of(live), seen.labels):
        return ()
    content = {**dict.fromkeys(present), **data}
    return (terms.change(refs.SECRET, live, metadata={"labels": seen.labels}, data=content),)


def _is_granted(seen: Seen, namespace: str) -> bool:
    if namespace == seen.place[0]:
        return True
    notes = {} if seen.source is None else manifest.annotations_of(seen.source)
    return notes.get(keys.ALLOW_APP_CLUSTER_BINDING) == "/".join(seen.place)


class Ownership(Enum):
    """The relation of a Namespace to an AppClusterBinding."""

    ABSENT = "absent"
    OURS = "ours"
    FREE = "free"  # nobody's, and nothing of value is in it
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is a sentence about the Namespace where it is taken, else ""."""

    standing: Ownership
    reason: str = ""


def name_problem(seen: Seen) -> str:
    """Return why there can be no binding space for this AppClusterBinding, or ""."""
    wrong = names.label_problem(seen.space_name)
    if not wrong:
        return ""
    return f"The binding space cannot have its name: {wrong}. Use a shorter or simpler name."


def verdict(seen: Seen) -> Verdict:
    """Return the owner of the Namespace.

    The ClusterBinding decides, because there is only one in a Namespace and no konnector may
    write it. Without one its labels do, which only an administrator may write, then what else
    is in it: klutchctl makes the APIServiceBindings before the AppClusterBinding.
    """
    space = seen.space
    if space is None:
        return Verdict(Ownership.ABSENT)
    for marked in (_cluster_binding(space), space.namespace):
        owner = _owner(marked, seen)
        if owner is not None and owner != seen.place:
            return _of_another(seen, owner)
        if owner is not None:
            return _of_earlier(seen, space) or Verdict(Ownership.OURS)
    used = _other_use(space)
    return _taken(seen, used) if used else _by_content(seen, space)


def was_found(seen: Seen, space: Space) -> bool:
    """Return whether the Namespace may have been there before it became a binding space.

    Then it may hold what is nobody's here. One that the backend makes has its ClusterBinding at
    once; and with both labels an administrator hands over whatever is in it.
    """
    if is_ours(space.namespace, seen):
        return False
    binding = _cluster_binding(space)
    bound = None if binding is None else created(binding)
    made = created(space.namespace)
    return bound is None or made is None or bound - made > _AT_ONCE


def is_ours(manifest: Manifest, seen: Seen) -> bool:
    """Return whether an object bears both labels of the AppClusterBinding."""
    return seen.labels.items() <= labels_of(manifest).items()


def _cluster_binding(space: Space) -> Manifest | None:
    """Return the ClusterBinding, but none of an earlier Namespace of that name.

    The two come through two watches, of which one may lag.
    """
    bound = None if space.cluster_binding is None else created(space.cluster_binding)
    made = created(space.namespace)
    older = bound is not None and made is not None and bound < made
    return None if older else space.cluster_binding


def _by_content(seen: Seen, space: Space) -> Verdict:
    owners = {_owner(one, seen) for _, one in _content(space)} - {None}
    others = sorted(owner for owner in owners if owner is not None and owner != seen.place)
    if others:
        return _of_another(seen, others[0])
    if owners:
        return _of_earlier(seen, space) or Verdict(Ownership.OURS)
    foreign = next(_content(space), None)
    if foreign is None:
        return Verdict(Ownership.FREE)
    kind, one = foreign
    return _taken(seen, f"contains {kind} {name_of(one)}, which is of no AppClusterBinding")


def _other_use(space: Space) -> str:
    notes = annotations_of(space.namespace)
    if keys.API_SERVICE_NAMESPACE in notes:
        return f"is the service namespace of {notes[keys.API_SERVICE_NAMESPACE]}"
    if keys.IDENTITY in notes:
        return "is the binding space of an app cluster without AppClusterBinding"
    return ""


def _content(space: Space) -> Iterator[tuple[Kind, Manifest]]:
    if (bound := _cluster_binding(space)) is not None:
        yield api.CLUSTER_BINDING, bound
    if space.deployment is not None:
        yield DEPLOYMENT, space.deployment
    for kind, found in (
        (api.API_SERVICE_BINDING, space.bindings),
        (api.API_SERVICE_EXPORT, space.exports),
        (api.API_SERVICE_EXPORT_REQUEST, space.requests),
        (api.API_SERVICE_NAMESPACE, space.service_namespaces),
        (SECRET, space.secrets),
    ):
        for one in found:
            yield kind, one


def _owner(manifest: Manifest | None, seen: Seen) -> tuple[str, str] | None:
    """Return the owner in the labels, (namespace, name); None without any. One may be missing."""
    labels = {} if manifest is None else labels_of(manifest)
    owner = (keys.APP_CLUSTER_BINDING_NAMESPACE, keys.APP_CLUSTER_BINDING_NAME)
    if not any(key in labels for key in owner):
        return None
    namespace, name = seen.place
    return labels.get(owner[0], namespace), labels.get(owner[1], name)


def _of_another(seen: Seen, owner: tuple[str, str]) -> Verdict:
    return _taken(seen, f"is of AppClusterBinding {'/'.join(owner)}")


def _of_earlier(seen: Seen, space: Space) -> Verdict | None:
    """Refuse a space of an earlier AppClusterBinding of this name, maybe another tenant's.

    Without a recorded uid, its ClusterBinding tells: nobody makes it before the AppClusterBinding.
    """
    recorded = identity.recorded(space.namespace, keys.APP_CLUSTER_BINDING_UID)
    if recorded in identity.lives(space.namespace) | {uid_of(seen.app_cluster_binding)}:
        return None
    binding = _cluster_binding(space)
    bound = None if binding is None else created(binding)
    asked = created(seen.app_cluster_binding)
    if recorded == identity.NONE and not (bound and asked and bound < asked):
        return None
    line = identity.confirmation(NAMESPACE, space.namespace, recorded)
    return Verdict(
        Ownership.TAKEN,
        f"Namespace {seen.space_name} is of an earlier AppClusterBinding {'/'.join(seen.place)}, "
        f"and has its data. To give it to this one: {line}; else name this AppClusterBinding "
        "otherwise.",
    )


def _taken(seen: Seen, reason: str) -> Verdict:
    return Verdict(
        Ownership.TAKEN,
        f"Namespace {seen.space_name} {reason}, so it is not used: name this AppClusterBinding"
        " otherwise.",
    )
