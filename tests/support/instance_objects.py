"""An instance on both sides, and what was decided about it, in words."""

from typing import Any

from konnector import APP_CLUSTER
from konnector.claim.copies import Pair
from konnector.claim.decide import Seen, decide
from konnector.claim.orphans import Terms
from reconciler.core.decision import Apply, Create, Decision, Delete, JsonPatch, Patch
from reconciler.core.manifest import annotations_of, get_map, get_texts
from reconciler.core.refs import Kind, ObjectKey
from tests.support.space_objects import NOW

KIND = Kind("shop.example", "v1", "Database", "databases")
PAIR = Pair(KIND, "cluster-a1", "uid-of-space", True, frozenset({"team", "note"}))
PLACE, COPY_PLACE = ObjectKey("dev", "orders"), ObjectKey("cluster-a1-dev", "orders")
BOUND, OWNER = "klutch.anynines.com/bound", "klutch.anynines.com/resource-owner"
SYNCER = "klutch.anynines.com/syncer"
RELEASED = "klutchctl.dev/released"
ORPHANED = "klutchctl.dev/orphaned"
CLAIM_UID = "klutchctl.dev/claim-uid"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
HELD: Any = {"annotations": {BOUND: "true"}, "finalizers": [SYNCER]}
GONE = "2026-06-01T12:00:00Z"
SMALL, LARGE = {"size": "1Gi"}, {"size": "2Gi"}
READY = {"status": {"phase": "Ready"}}


def on(place, metadata=None, *, spec=SMALL, **more) -> Any:
    identity = {"name": place.name, "uid": f"uid-{place.namespace}", "resourceVersion": "7"}
    if place.namespace:
        identity["namespace"] = place.namespace
    content = {} if spec is None else {"spec": spec}
    kind = {"apiVersion": KIND.api_version, "kind": KIND.kind}
    return {**kind, "metadata": {**identity, **(metadata or {})}, **content, **more}


def claim(metadata=HELD, **more):
    return on(PLACE, metadata, **more)


def copy(metadata=None, **more):
    return on(COPY_PLACE, metadata or {"annotations": {BOUND: "true"}}, **more)


def leaving(live, *finalizers):
    held = {"deletionTimestamp": GONE, "finalizers": list(finalizers)}
    return {**live, "metadata": {**live["metadata"], **held}}


def written_by(live, manager, fields, operation="Update"):
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields}
    return {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}


def look(one, other, **more):
    return decide(PAIR, seen(one, other, **more))


def seen(one, other, **more):
    facts = {"terms": Terms(KIND.resource), "now": NOW, **more}
    return Seen(PLACE, COPY_PLACE, one, other, **facts)


def reported(found):
    if not isinstance(found, Decision):
        return found
    return [_words(step) for task in found.tasks for step in task.steps]


def _words(step: Any) -> str:
    match step:
        case Create(_, _, cluster):
            return "create claim" if cluster == APP_CLUSTER else "create copy"
        case Apply():
            return "apply copy"
        case JsonPatch(ref, _, subresource):
            if ref.cluster == APP_CLUSTER:
                return f"status to {subresource or 'the object'}"
            return "take the copy over"
        case Delete(ref):
            assert ref.cluster != APP_CLUSTER
            return "delete copy"
        case Patch():
            return _patched(step)
    raise AssertionError(step)


def _patched(step: Patch) -> str:
    if step.ref.cluster != APP_CLUSTER:
        return "mark copy"
    said = []
    metadata = get_map(step.body, "metadata")
    if "finalizers" in metadata:
        held = SYNCER in get_texts(metadata, "finalizers")
        said.append("hold claim" if held else "let the claim go")
    if annotations_of(step.body):
        said.append("mark claim")
    return " and ".join(said)
