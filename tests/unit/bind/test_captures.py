"""What this backend makes beside what the original made, as captures recorded it.

Installations of the original are looked at object by object: without it, ours makes the same one;
with it, ours has nothing to write. What is known to be a defect is left out, and says so.
"""

import copy
import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bind.cluster_binding import decide as cluster_binding_decide
from bind.export import decide as export_decide
from bind.service_namespace import decide as service_namespace_decide
from bind.service_namespace.facts import Mapped, Seen
from reconciler import api
from reconciler.blueprints import rbac
from reconciler.blueprints.export import Scope, Terms
from reconciler.core import conditions, keys, names, refs
from reconciler.core import manifest as m
from reconciler.core.decision import Create, Patch
from reconciler.core.normalize import normalize
from reconciler.core.refs import Kind
from tests.support import capture_files
from tests.support.space_objects import CONTROL_PLANE, live_like

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
SCOPES: dict[str, Scope] = {
    "control-plane-mode": "Namespaced",
    "default-mode": "Namespaced",
    "two-app-clusters": "Namespaced",
    "cluster-scoped": "Cluster",
}
GRACE = timedelta(minutes=10)


@functools.cache
def recorded(capture):
    """Return the control plane's objects as they were written last, by kind and place."""
    found: dict[tuple[Kind, str, str], Any] = {}
    for name in ("catalogue", capture):
        for write in capture_files.read(name):
            if write.place != "control-plane":
                continue
            manifest = capture_files.timed(write.manifest, NOW)
            key = (write.kind, *m.identity_of(manifest))
            found[key] = {**found.get(key, {}), **manifest}
    return found


def every(kind):
    """Return all objects of a kind, each with its capture, that are not on their way out."""
    return {
        f"{capture} {namespace}/{name}": (capture, manifest)
        for capture in SCOPES
        for (one, namespace, name), manifest in recorded(capture).items()
        if one == kind and not m.is_deleting(manifest)
    }


def cases(kind):
    found = every(kind)
    assert found, kind
    return pytest.mark.parametrize(("capture", "live"), found.values(), ids=found.keys())


def at(capture, kind, name, namespace=""):
    return recorded(capture).get((kind, namespace, name))


def inside(capture, kind, namespace):
    return [
        manifest
        for (one, place, _), manifest in recorded(capture).items()
        if (one, place) == (kind, namespace)
    ]


def space_of(capture, name):
    return live_like(at(capture, refs.NAMESPACE, name), resourceVersion="7")


def crd_of(capture, space, name):
    """Return a CRD as it was when that space was recorded: its provider added a field in between.

    Step 60 of capture 02; the second space of capture 05 came later, the first is of before.
    """
    held = at(capture, refs.CRD, name)
    if (space, name) != ("klutch-bind-team-b-billing", "databases.shop.example"):
        return held
    changed = copy.deepcopy(held)
    (version,) = changed["spec"]["versions"]
    of_spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    of_spec["region"] = {"type": "string"}
    return changed


def template_for(capture, resource):
    found = [
        manifest
        for (kind, *_), manifest in recorded(capture).items()
        if kind == api.API_SERVICE_EXPORT_TEMPLATE
        and api.offered_resource(manifest).name == resource
    ]
    return next(iter(api.by_resource(found).values()), None)


def creations(decision):
    """Return what would be made, by kind; it is all that would be written."""
    steps = [step for task in decision.tasks for step in task.steps]
    assert all(isinstance(step, Create) for step in steps), steps
    return {step.kind: step.manifest for step in steps}


def alike(manifest):
    """Return an object without what a server made up, RBAC rules as sets (F21)."""
    metadata = m.get_map(manifest, "metadata")
    kept = ("name", "namespace", "annotations", "labels", "ownerReferences")
    stated = {key: metadata[key] for key in kept if key in metadata}
    return normalize({**m.drop(manifest, "status"), "metadata": stated})


def said(shown):
    return {one.type: one for one in shown}


def recorded_conditions(live, *types):
    held = said(conditions.parse(m.get_list(live, "status", "conditions")))
    return {type_: held[type_] for type_ in types}


def agree(shown, live, *types):
    """Return whether the conditions of these types are those that were recorded, but for times."""
    held = recorded_conditions(live, *types)
    return all(said(shown)[type_].agrees_with(held[type_]) for type_ in types)


def terms(capture):
    return Terms(SCOPES[capture], "Prefixed")


@cases(api.CLUSTER_BINDING)
def test_rights_of_a_space(capture, live):
    space = m.namespace_of(live)
    role_name = names.space_cluster_role(space)
    facts = {
        "binding": live,
        "space": space_of(capture, space),
        "exports": inside(capture, api.API_SERVICE_EXPORT, space),
    }
    held = {
        "role_binding": at(capture, refs.ROLE_BINDING, names.BINDER, space),
        "cluster_role": at(capture, refs.CLUSTER_ROLE, role_name),
    }
    if SCOPES[capture] == "Cluster":  # in any other it is there because of F1 only
        held["cluster_role_binding"] = at(capture, refs.CLUSTER_ROLE_BINDING, role_name)

    def look(**more):
        seen = cluster_binding_decide.Seen(CONTROL_PLANE, **facts, **more)
        return cluster_binding_decide.decide(seen, scope=SCOPES[capture], now=NOW)

    made = creations(look())
    assert [alike(one) for one in made.values()] == [alike(one) for one in held.values()]
    assert look(**held).tasks == ()


@cases(api.CLUSTER_BINDING)
def test_health_of_an_app_cluster(capture, live):
    seen = cluster_binding_decide.Seen(CONTROL_PLANE, live)
    shown = cluster_binding_decide.decide(seen, scope=SCOPES[capture], now=NOW).conditions
    (healthy,) = shown
    (recorded_one,) = recorded_conditions(live, "Healthy").values()
    # F2: the original took a beat of just now for drift.
    assert recorded_one.reason in ("", "HeartbeatTimeDrift", "FirstHeartbeatPending")
    if recorded_one.reason == "HeartbeatTimeDrift":
        assert healthy.status == "True"
    else:
        assert healthy.agrees_with(recorded_one)


def test_the_role_of_every_konnector():
    held = at("control-plane-mode", refs.CLUSTER_ROLE, names.BINDER)
    assert alike(rbac.binder_role()) == alike(held)


@cases(api.API_SERVICE_EXPORT_REQUEST)
def test_answers_to_requests(capture, live):
    space, wanted = m.namespace_of(live), export_decide.resources(live)
    exports = {name: at(capture, api.API_SERVICE_EXPORT, name, space) for name in wanted}
    fresh = m.drop(live, "status")
    seen = export_decide.RequestView(
        CONTROL_PLANE,
        fresh,
        crds={name: crd_of(capture, space, name) for name in wanted},
        templates={name: template_for(capture, name) for name in wanted},
    )
    (made,) = creations(export_decide.answer(seen, terms=terms(capture), now=NOW)).values()
    (held,) = exports.values()
    assert unhashed(made) == unhashed(held)

    seen = export_decide.RequestView(CONTROL_PLANE, fresh, crds=seen.crds, exports=exports)
    answer = export_decide.answer(seen, terms=terms(capture), now=NOW)
    assert answer.tasks == ()
    assert answer.fields == {"phase": m.get_text(live, "status", "phase")}
    assert agree(answer.conditions, live, "ExportsReady")
    summed = conditions.summarize(answer.conditions, now=NOW)
    assert agree(summed, live, "Ready", "ExportsReady")


def unhashed(manifest):
    """Leave out the text of the hash: only the backend that made it reads it (G.2)."""
    stated = alike(manifest)
    assert stated["metadata"]["annotations"][keys.SOURCE_SPEC_HASH]
    return m.drop(stated, "metadata", "annotations", keys.SOURCE_SPEC_HASH)


@cases(api.API_SERVICE_EXPORT)
def test_exports_are_taken_over_without_another_write(capture, live):
    name = m.name_of(live)
    crd = crd_of(capture, m.namespace_of(live), name)
    seen = export_decide.Seen(CONTROL_PLANE, live, crd=crd, template=template_for(capture, name))
    decision = export_decide.decide(seen, isolation="Prefixed", grace=GRACE, now=NOW)
    # Of ours alone: which CRD it is.
    (step,) = (step for task in decision.tasks for step in task.steps)
    assert isinstance(step, Patch)
    assert m.annotations_of(step.body) == {keys.CRD_UID: m.uid_of(crd)}
    assert "spec" not in step.body
    assert set(said(decision.conditions)) == {"ProviderInSync"}
    assert agree(decision.conditions, live, "ProviderInSync")


@cases(api.API_SERVICE_NAMESPACE)
def test_service_namespaces(capture, live):
    home = Mapped(m.namespace_of(live), m.name_of(live))
    scope = SCOPES[capture]
    facts = {"key": home, "mapping": live, "space": space_of(capture, home.space)}
    held = {
        "namespace": at(capture, refs.NAMESPACE, home.target),
        "role_binding": at(capture, refs.ROLE_BINDING, names.BINDER, home.target),
    }
    fresh = Seen(CONTROL_PLANE, **facts)
    made = creations(service_namespace_decide.decide(fresh, scope=scope, now=NOW))
    # Of ours alone, so that what comes from a backup is known.
    ours = {
        key: m.annotations_of(made[refs.NAMESPACE]).get(key, "")
        for key in (keys.MADE_AT, keys.SPACE_UID)
    }
    for key in ours:
        made[refs.NAMESPACE] = m.drop(made[refs.NAMESPACE], "metadata", "annotations", key)
    if held["role_binding"] is None and scope == "Namespaced":
        assert capture == "default-mode"  # of its service namespace the rights were not recorded
        held["role_binding"] = made[refs.ROLE_BINDING]
    assert [alike(one) for one in made.values()] == [alike(one) for one in held.values() if one]

    stamped = m.put(
        held["namespace"], m.annotations_of(held["namespace"]) | ours, "metadata", "annotations"
    )
    seen = Seen(
        CONTROL_PLANE, **facts, namespaces=[stamped], role_bindings=[held["role_binding"] or {}]
    )
    done = service_namespace_decide.decide(seen, scope=scope, now=NOW)
    assert done.tasks == ()
    assert done.fields == m.get_map(live, "status")
