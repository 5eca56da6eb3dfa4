"""A claimed Secret on both sides, claims on it, and what was decided, in words."""

from typing import Any

from konnector.claim.orphans import Terms
from konnector.permission_claim.rules import rules_of
from konnector.permission_claim.ways import Seen
from reconciler.core.decision import Create, Delete, Patch
from reconciler.core.manifest import annotations_of, get_map
from reconciler.core.refs import SECRET, Kind, ObjectKey
from tests.support.space_objects import NOW

OWNER = "klutch.anynines.com/resource-owner"
ORIGIN, ORIGIN_SPACE = "klutchctl.dev/origin-uid", "klutchctl.dev/origin-space-uid"
ORPHANED, SINCE = "klutchctl.dev/orphaned", "2026-05-01T12:00:00Z"
APP, PLANE = ObjectKey("team-a", "creds"), ObjectKey("cluster-a1-team-a", "creds")
ONE, TWO = {"password": "b25l"}, {"password": "dHdv"}
HOLD = {"deletionTimestamp": "2026-06-01T12:00:00Z", "finalizers": ["somebody.example/x"]}
VOUCHER = Kind("shop.example", "v1", "Voucher", "vouchers")


def on(place, owner="", data=ONE, *, labels=None, annotations=None, hold=False, **more) -> Any:
    """Return a live Secret, or whatever `more` makes of it."""
    marks = {**({OWNER: owner} if owner else {}), **(annotations or {})}
    metadata = {
        "name": place.name,
        "namespace": place.namespace,
        "uid": uid_at(place),
        "resourceVersion": "7",
        **({"labels": labels} if labels else {}),
        **({"annotations": marks} if marks else {}),
        **(HOLD if hold else {}),
    }
    held = {} if data is None else {"data": data}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque",
            **held, **more}  # fmt: skip


def app(owner="", *args, annotations=None, **more):
    """Return an object of the app cluster: with owner Provider a copy, as it was brought."""
    marks = brought(PLANE) if owner == "Provider" else {}
    return on(APP, owner, *args, annotations={**marks, **(annotations or {})}, **more)


def plane(owner="", *args, annotations=None, **more):
    """Return an object of the control plane: with owner Consumer a copy, as it was brought."""
    marks = brought(APP) if owner == "Consumer" else {}
    return on(PLANE, owner, *args, annotations={**marks, **(annotations or {})}, **more)


def brought(origin, space="ours"):
    """Return what the copy of an origin at this place says of it."""
    return {ORIGIN: uid_at(origin), ORIGIN_SPACE: space}


def uid_at(place):
    return f"uid-{place.namespace}"


def rules(*selectors, **more):
    claims = [
        {"resource": "secrets", "version": "v1", "state": "Accepted", "selector": one, **more}
        for one in selectors
    ]
    metadata = {"name": "b", "annotations": {"klutchctl.dev/carries": "*"}}
    both_ways: Any = {"metadata": metadata, "spec": {"permissionClaims": claims}}
    return rules_of(both_ways, both_ways).rules


def looked(claims, provider, consumer, **more):
    """Return what is seen where a developer has an instance, unless `more` says otherwise."""
    facts = {
        "kind": SECRET,
        "rules": claims,
        "claim_place": APP,
        "copy_place": PLANE,
        "terms": Terms("secrets"),
        "now": NOW,
        "living": {"b"},
        "space_uid": "ours",
        **more,
    }
    return Seen(**facts, provider=provider, consumer=consumer)


def reported(decision):
    """Return the steps as words: a verb, the side, and an owner where only that is written."""
    return [_words(step) for task in decision.tasks for step in task.steps]


def _words(step: Any) -> str:
    match step:
        case Create(_, manifest, cluster):
            return f"create {cluster} {annotations_of(manifest)[OWNER]}"
        case Delete(ref):
            return f"delete {ref.cluster}"
        case Patch(ref, body):
            annotations = get_map(body, "metadata", "annotations")
            if annotations.get(ORPHANED):
                return f"orphan {ref.cluster}"
            marks = {OWNER, ORIGIN, ORIGIN_SPACE}
            alone = set(body) == {"metadata"} and marks >= set(annotations) > set()
            return (
                f"{'mark' if alone else 'patch'} {ref.cluster} {annotations.get(OWNER, '')}".strip()
            )
    raise AssertionError(step)


ANY = rules({})
DOWN = rules({"owner": "Provider"})
UP = rules({"owner": "Consumer"})
NAMED = rules({"names": ["creds"]})
CREATED_DOWN = ["create app-cluster Provider", "mark control-plane Provider"]
CREATED_UP = ["create control-plane Consumer", "mark app-cluster Consumer"]
BLUE, RED = {"color": "blue"}, {"color": "red"}
BLUE_ONLY = rules({"owner": "Provider", "labelSelectors": [BLUE]})
BLUE_UP = rules({"owner": "Consumer", "labelSelectors": [BLUE]})
TLS_UP = rules({"owner": "Consumer", "fieldSelectors": ["type=kubernetes.io/tls"]})
OTHER_NAME = rules({"names": ["other"]})
OTHER_PLACE = rules({"namespaces": ["team-b"]})
