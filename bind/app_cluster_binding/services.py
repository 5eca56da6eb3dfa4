"""Turns spec.apiExports into APIServiceBindings, requests and exports of the space.

Steps 4 and 5 of protocol-bind.md C.6. Each resource is for itself: one that nobody offers is
named in a condition and holds up no other, and no pruning (F35).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from bind.app_cluster_binding import cleanup, facts
from bind.app_cluster_binding.cleanup import ReleaseTerms
from bind.app_cluster_binding.facts import RELEASE, Seen, Space, Terms
from bind.app_cluster_binding.space import is_ours
from reconciler import api
from reconciler.blueprints.objects import Marks, build
from reconciler.core import conditions, keys, manifest, names
from reconciler.core.decision import NOTHING, Create, Decision, Step, writes
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource
from reconciler.core.times import created, moment

# A request that is done is replaced only if its export is still not there after so long: the
# two come through two watches.
SETTLED: Final = timedelta(seconds=10)
_CLAIMS: Final = ("spec", "permissionClaims")


def bound(seen: Seen, space: Space, terms: Terms) -> Decision:
    """Return the part that makes and repairs the APIServiceBinding of each listed resource.

    Claims are decided once, and by whoever decides first: a binding that says nothing of claims
    gets all that its template offers, where the annotation accept-claims allows that. What the
    template offers later, or wider, is only offered (F22, F32).
    """
    live = {manifest.name_of(one): one for one in space.bindings}
    offered = templates(seen)
    return Decision.merge(
        _bound(seen, terms, resource, live.get(resource.name), offered.get(resource))
        for resource in seen.resources
    )


def requested(seen: Seen, space: Space, terms: Terms, now: datetime) -> Decision:
    """Return the part that requests listed resources that are offered and not exported (F43)."""
    exported = {manifest.name_of(one) for one in space.exports}
    live = {manifest.name_of(one): one for one in space.requests}
    asked: dict[str, tuple[GroupResource, Manifest]] = {}
    for resource, template in sorted(templates(seen).items(), key=lambda pair: pair[0]):
        if resource.name not in exported:
            # Templates of one name in two namespaces share a request: one after the other.
            asked.setdefault(_request_name(seen, template), (resource, template))
    return Decision.merge(
        _requested(terms, live.get(name), _request(seen, name, resource, template), now)
        for name, (resource, template) in asked.items()
    )


def pruned(seen: Seen, space: Space, terms: Terms, now: datetime) -> Decision:
    """Return the part that removes unlisted resources: binding, then request and export.

    The data in the service namespaces stays: taking a resource out of the list is a release. Who
    forces does not wait for the konnector.
    """
    lives = cleanup.konnector_lives(space, now) and not seen.is_forced
    listed = {resource.name for resource in seen.resources}
    how = ReleaseTerms(policy=RELEASE, lives=lives, failure=facts.BINDING_FAILED, now=now)
    leaving = [o for o in space.bindings if is_ours(o, seen) and manifest.name_of(o) not in listed]
    parts = [cleanup.let_go(one, how, terms) for one in leaving]
    if seen.is_forced:
        parts += [cleanup.force(one, facts.BINDING_FAILED, terms) for one in leaving]
    waiting = set() if seen.is_forced else {manifest.name_of(one) for one in leaving}
    exports = [one for one in space.exports if manifest.name_of(one) not in listed]
    unsure = [one for one in exports if cleanup.is_unconfirmed(one, lives=lives)]
    free = [one for one in exports if one not in unsure and manifest.name_of(one) not in waiting]
    requests = [one for one in space.requests if is_ours(one, seen) and not _is_asked(seen, one)]
    gone = [
        *((api.API_SERVICE_EXPORT_REQUEST, one) for one in requests),
        *((api.API_SERVICE_EXPORT, one) for one in free),
    ]
    slow = sorted(
        {manifest.name_of(one) for one in (*leaving, *unsure) if lives or manifest.is_deleting(one)}
    )
    if slow:
        draining = conditions.false(facts.BINDINGS_DRAINING, _slow(seen, slow))
        parts.append(Decision(conditions=(draining,), again=cleanup.RECHECK))
    return Decision.merge([*parts, terms.deletions(gone, facts.EXPORT_FAILED)])


def _slow(seen: Seen, names_: list[str]) -> str:
    waiting = f"Waiting for the konnector to release {', '.join(names_)}."
    if seen.is_forced:
        return f"{waiting} Their exports, and the rights with them, are taken away already."
    return (
        f"{waiting} If it never does, annotate this AppClusterBinding with"
        f" {keys.FORCE_CLEANUP}=true until it is done: the konnector is then not waited for."
    )


def templates(seen: Seen) -> Mapping[GroupResource, Manifest]:
    counting = api.by_resource(seen.templates)
    return {resource: counting[resource] for resource in seen.resources if resource in counting}


def _bound(
    seen: Seen,
    terms: Terms,
    resource: GroupResource,
    live: Manifest | None,
    template: Manifest | None,
) -> Decision:
    if template is None:
        message = f"No APIServiceExportTemplate offers {resource.name}."
        missing = facts.trouble(facts.TEMPLATE_NOT_FOUND, message)
        if live is None:
            return missing
        return Decision.merge([missing, _repaired(seen, terms, live, [])])
    claims = _accepted(seen, template)
    if live is not None:
        return _repaired(seen, terms, live, claims)
    spec: dict[str, JSON] = {"kubeconfigSecretRef": _secret_ref(seen)}
    if claims:
        spec["permissionClaims"] = claims
    made = build(
        api.API_SERVICE_BINDING,
        resource.name,
        namespace=seen.space_name,
        marks=Marks(seen.labels),
        spec=spec,
    )
    return writes(Create(api.API_SERVICE_BINDING, made), failure=facts.BINDING_FAILED)


def _repaired(seen: Seen, terms: Terms, live: Manifest, claims: list[Manifest]) -> Decision:
    if manifest.is_deleting(live):
        return Decision(again=cleanup.RECHECK)
    body: dict[str, JSON] = {}
    if not manifest.covers(manifest.labels_of(live), seen.labels):
        body["metadata"] = {"labels": seen.labels}
    if claims and "permissionClaims" not in manifest.get_map(live, "spec"):
        body["spec"] = {"permissionClaims": claims}
    found = [cleanup.keep(live, facts.BINDING_FAILED, terms)]
    if body and not found[0].tasks:
        step = terms.change(api.API_SERVICE_BINDING, live, **body)
        found.append(writes(step, failure=facts.BINDING_FAILED))
    ref = manifest.get_map(live, "spec", "kubeconfigSecretRef")
    if ref != _secret_ref(seen):
        other = "/".join(api.secret_of(live))
        message = (
            f"APIServiceBinding {manifest.name_of(live)} refers to Secret {other}"
            f" instead of {seen.space_name}/{seen.secret_name}, which"
            " cannot be changed: take it out of apiExports and put it in again."
        )
        found.append(facts.trouble(facts.BINDING_INVALID, message))
    return Decision.merge(found)


def _accepted(seen: Seen, template: Manifest) -> list[Manifest]:
    accept = manifest.annotations_of(seen.app_cluster_binding).get(keys.ACCEPT_CLAIMS)
    if accept != keys.ACCEPT_CLAIMS_TEMPLATE:
        return []
    return [{**claim, "state": "Accepted"} for claim in manifest.get_maps(template, *_CLAIMS)]


def _secret_ref(seen: Seen) -> Manifest:
    ref = manifest.get_map(seen.app_cluster_binding, "spec", "kubeconfigSecretRef")
    return {
        "name": seen.secret_name,
        "key": manifest.get_text(ref, "key"),
        "namespace": seen.space_name,
    }


def _request(seen: Seen, name: str, resource: GroupResource, template: Manifest) -> Manifest:
    item: dict[str, JSON] = {**resource.wire}
    claims = manifest.get_maps(template, *_CLAIMS)
    if claims:
        item["permissionClaims"] = claims
    return build(
        api.API_SERVICE_EXPORT_REQUEST,
        name,
        namespace=seen.space_name,
        marks=Marks(seen.labels),
        spec={"resources": [item]},
    )


def _request_name(seen: Seen, template: Manifest) -> str:
    return names.export_request(seen.place[1], manifest.name_of(template))


def _requested(terms: Terms, live: Manifest | None, made: Manifest, now: datetime) -> Decision:
    if live is None:
        return _making(Create(api.API_SERVICE_EXPORT_REQUEST, made))
    if manifest.is_deleting(live):
        return Decision(again=cleanup.RECHECK)
    phase = manifest.get_text(live, "status", "phase")
    replaced = _making(
        terms.deletion(api.API_SERVICE_EXPORT_REQUEST, live),
        Create(api.API_SERVICE_EXPORT_REQUEST, made),
    )
    ready = conditions.get(live, conditions.EXPORTS_READY)
    problem = "" if ready is None or ready.status != conditions.FALSE else ready.message
    name = f"APIServiceExportRequest {manifest.name_of(live)}"
    if phase not in ("Succeeded", "Failed"):
        waiting = facts.trouble(facts.REQUEST_WAITING, f"{name} waits: {problem}")
        return waiting if problem else NOTHING
    if _resources_of(live) != _resources_of(made):
        return replaced
    if phase == "Failed":
        reason = manifest.get_text(live, "status", "terminalMessage") or problem
        # The request is deleted once it is old enough, and then made again.
        return facts.trouble(facts.REQUEST_REFUSED, f"{name} failed: {reason}")
    since = None if ready is None else moment(ready.last_transition_time)
    left = SETTLED - (now - (since or created(live) or now))
    return replaced if left <= timedelta() else Decision(again=left)


def _making(*steps: Step) -> Decision:
    return writes(*steps, failure=facts.EXPORT_FAILED)


def _resources_of(request: Manifest) -> list[GroupResource]:
    return [
        GroupResource(manifest.get_text(one, "group"), manifest.get_text(one, "resource"))
        for one in manifest.get_maps(request, "spec", "resources")
    ]


def _is_asked(seen: Seen, request: Manifest) -> bool:
    """Return whether a request of ours is still wanted: its resource, by its template's name."""
    asked, offered = _resources_of(request), templates(seen)
    if len(asked) != 1 or asked[0] not in seen.resources:
        return False
    template = offered.get(asked[0])
    return template is None or _request_name(seen, template) == manifest.name_of(request)
