"""The binding space: Namespace and ClusterBinding, then account, kubeconfig and rights in it.

Steps 2 and 3 of protocol-bind.md C.6.
"""

from collections.abc import Iterator

from bind import bounds
from bind.app_cluster_binding import causes as own_causes
from bind.app_cluster_binding.part import Part
from bind.app_cluster_binding.seen import Seen, Space, Terms
from bind.export_request import rbac_changes
from reconciler.api.bindings import CLUSTER_BINDING
from reconciler.blueprints import rbac
from reconciler.blueprints import space as spaces
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import conditions, keys, names, reasons
from reconciler.core.decision import Create, Patch, Step, Task, preconditions_of
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    covers,
    get,
    get_bool,
    get_list,
    get_map,
    get_text,
    is_deleting,
    labels_of,
    name_of,
)
from reconciler.core.refs import NAMESPACE, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT


def claim(seen: Seen, terms: Terms) -> Part:
    """Return the part that makes the Namespace and its ClusterBinding, which proves whose it is.

    Whoever comes second fails at the ClusterBinding and has written nothing into the Namespace.
    """
    steps: list[Step] = []
    if seen.space is None:
        labels = {} if terms.all_overrides else bounds.RESTRICTED
        steps.append(Create(NAMESPACE, spaces.namespace(seen.space_name, marks=Marks(labels))))
    made = spaces.cluster_binding(
        seen.space_name,
        kubeconfig_name=seen.secret_name,
        spec={"providerPrettyName": seen.place[1]},
        marks=Marks(seen.labels),
    )
    steps.append(Create(CLUSTER_BINDING, made))
    held = conditions.parse(get_list(seen.app_cluster_binding, "status", "conditions"))
    waiting = (own_causes.KONNECTOR_PROGRESSING, "Waiting for the binding space.")
    said = conditions.find(held, reasons.KONNECTOR_DEPLOYED) is not None
    return Part(
        tasks=(Task(tuple(steps), own_causes.SPACE_FAILED),), problems=() if said else (waiting,)
    )


def content(seen: Seen, space: Space, terms: Terms) -> Part:
    """Return the part that fills a space which is the AppClusterBinding's own, and repairs it."""
    changes = (
        *_marks(seen, space, terms),
        _account(seen, space),
        _kubeconfig(seen, space, terms),
        rbac_changes.role(
            terms.control_plane, ROLE, space.role, rbac.control_plane_role(seen.space_name)
        ),
        rbac_changes.role_binding(
            terms.control_plane,
            ROLE_BINDING,
            space.role_binding,
            rbac.control_plane_role_binding(seen.space_name),
        ),
    )
    tasks = tuple(Task(steps, own_causes.SPACE_FAILED) for steps in changes if steps)
    return Part(tasks=tasks)


def _marks(seen: Seen, space: Space, terms: Terms) -> Iterator[tuple[Step, ...]]:
    live = space.cluster_binding
    if live is not None and not covers(labels_of(live), seen.labels):
        metadata: Manifest = {**preconditions_of(live), "labels": seen.labels}
        yield (Patch(terms.ref(CLUSTER_BINDING, live), {"metadata": metadata}),)
    namespace = space.namespace
    retired = keys.RELEASED in annotations_of(seen.app_cluster_binding)
    if keys.RELEASED in annotations_of(namespace) and not retired:
        metadata = {**preconditions_of(namespace), "annotations": {keys.RELEASED: None}}
        yield (Patch(terms.ref(NAMESPACE, namespace), {"metadata": metadata}),)


def _account(seen: Seen, space: Space) -> tuple[Step, ...]:
    if space.account is not None:
        return ()
    made = spaces.service_account(seen.space_name, names.BINDER, marks=UNMARKED)
    return (Create(SERVICE_ACCOUNT, made),)


def _kubeconfig(seen: Seen, space: Space, terms: Terms) -> tuple[Step, ...]:
    """Mirror the referenced key and nothing else. The type of a Secret cannot be changed."""
    source = seen.source
    assert source is not None  # it is valid
    ref = get_map(seen.app_cluster_binding, "spec", "kubeconfigSecretRef")
    if (get_text(ref, "namespace"), get_text(ref, "name")) == (seen.space_name, seen.secret_name):
        return ()
    key = get_text(ref, "key")
    data: dict[str, JSON] = {key: get(source, "data", key)}
    made = build(
        SECRET,
        seen.secret_name,
        namespace=seen.space_name,
        marks=Marks(seen.labels),
        type=get_text(source, "type"),
        data=data,
    )
    live = next((one for one in space.secrets if name_of(one) == seen.secret_name), None)
    if live is None:
        return (Create(SECRET, made),)
    if is_deleting(live):
        return ()
    held = get_map(live, "data")
    same_type = get_text(live, "type") == get_text(source, "type")
    if not same_type or (get_bool(live, "immutable") and held != data):
        return (terms.deletion(SECRET, live), Create(SECRET, made))
    if held == data and covers(labels_of(live), seen.labels):
        return ()
    metadata: Manifest = {**preconditions_of(live), "labels": seen.labels}
    changed: Manifest = {"metadata": metadata, "data": {**dict.fromkeys(held), **data}}
    return (Patch(terms.ref(SECRET, live), changed),)
