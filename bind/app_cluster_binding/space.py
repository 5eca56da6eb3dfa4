"""The binding space: Namespace and ClusterBinding, then account, kubeconfig and rights in it.

Steps 2 and 3 of protocol-bind.md C.6.
"""

from collections.abc import Iterator
from dataclasses import replace

from bind import bounds, rbac_changes
from bind.app_cluster_binding import facts
from bind.app_cluster_binding.facts import Seen, Space, Terms
from reconciler.api import CLUSTER_BINDING, kubeconfig_content
from reconciler.blueprints import konnector, objects, rbac
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import conditions, keys, manifest, names, refs
from reconciler.core.conditions import Condition
from reconciler.core.decision import Create, Decision, Step, Task, writes
from reconciler.kube import kubeconfig


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
    fault = content if isinstance(content, str) else _fault(content, terms)
    if fault:
        message = f"Kubeconfig secret {place} {fault}"
        return conditions.false(conditions.KUBECONFIG_SECRET_INVALID, message)
    return None


def claim(seen: Seen, terms: Terms) -> Decision:
    """Return the part that makes the Namespace and its ClusterBinding, which proves whose it is.

    Whoever comes second fails at the ClusterBinding and has written nothing into the Namespace.
    """
    steps: list[Step] = []
    if seen.space is None:
        labels = {} if terms.all_overrides else bounds.RESTRICTED
        marks = Marks(labels, _uid(seen))
        steps.append(Create(refs.NAMESPACE, objects.namespace(seen.space_name, marks=marks)))
    made = objects.cluster_binding(
        seen.space_name,
        kubeconfig_name=seen.secret_name,
        spec={"providerPrettyName": seen.place[1]},
        marks=Marks(seen.labels),
    )
    steps.append(Create(CLUSTER_BINDING, made))
    waiting = conditions.false(facts.KONNECTOR_PROGRESSING, "Waiting for the binding space.")
    said = conditions.said(seen.app_cluster_binding, conditions.KONNECTOR_DEPLOYED) is not None
    made_now = writes(*steps, failure=facts.SPACE_FAILED)
    return made_now if said else replace(made_now, conditions=(waiting,))


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
    tasks = tuple(Task(steps, facts.SPACE_FAILED) for steps in changes if steps)
    return Decision(tasks=tasks)


def _marks(seen: Seen, space: Space, terms: Terms) -> Iterator[tuple[Step, ...]]:
    live = space.cluster_binding
    if live is not None and not manifest.covers(manifest.labels_of(live), seen.labels):
        yield (terms.change(CLUSTER_BINDING, live, metadata={"labels": seen.labels}),)
    held, wanted = manifest.annotations_of(space.namespace), dict[str, manifest.JSON](_uid(seen))
    retired = keys.RELEASED in manifest.annotations_of(seen.app_cluster_binding)
    if keys.RELEASED in held and not retired:
        wanted[keys.RELEASED] = None
    if any(held.get(key) != value for key, value in wanted.items()):
        yield (terms.change(refs.NAMESPACE, space.namespace, metadata={"annotations": wanted}),)


def _uid(seen: Seen) -> dict[str, str]:
    return {keys.APP_CLUSTER_BINDING_UID: manifest.uid_of(seen.app_cluster_binding)}


def _account(seen: Seen, space: Space) -> tuple[Step, ...]:
    if space.account is not None:
        return ()
    made = objects.service_account(seen.space_name, names.BINDER, marks=UNMARKED)
    return (Create(refs.SERVICE_ACCOUNT, made),)


def _bounds(seen: Seen, space: Space, terms: Terms) -> tuple[Step, ...]:
    """Bound the Pods of a space, once: an administrator may say something else."""
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
    if (manifest.get_text(ref, "namespace"), manifest.get_text(ref, "name")) == (
        seen.space_name,
        seen.secret_name,
    ):
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
    held = manifest.get_map(live, "data")
    same_type = manifest.get_text(live, "type") == manifest.get_text(source, "type")
    if not same_type or (manifest.get_bool(live, "immutable") and held != data):
        return (terms.deletion(refs.SECRET, live), Create(refs.SECRET, made))
    if held == data and manifest.covers(manifest.labels_of(live), seen.labels):
        return ()
    content = {**dict.fromkeys(held), **data}
    return (terms.change(refs.SECRET, live, metadata={"labels": seen.labels}, data=content),)


def _fault(content: bytes, terms: Terms) -> str:
    connection = kubeconfig.from_content(content, name="the app cluster", networks=terms.networks)
    return connection if isinstance(connection, str) else ""


def _is_granted(seen: Seen, namespace: str) -> bool:
    if namespace == seen.place[0]:
        return True
    notes = {} if seen.source is None else manifest.annotations_of(seen.source)
    return notes.get(keys.ALLOW_APP_CLUSTER_BINDING) == "/".join(seen.place)
