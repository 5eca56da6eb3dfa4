"""What this konnector says beside what the original said, as captures recorded it.

Installations of the original are looked at object by object. Ours adds SchemaInSync, and with it
exports become Ready (H16); it tells InformersSynced of a binding that joined a running provider,
too; nothing else differs where all is well, and nothing else is written.
"""

import base64
import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.binding import crd
from konnector.binding import decide as binding_decide
from konnector.binding.crd import Owner
from konnector.binding.decide import Provider
from konnector.kubeconfig import judge
from konnector.space import decide as space_decide
from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT, CLUSTER_BINDING, secret_of
from reconciler.blueprints import objects as spaces
from reconciler.core import conditions
from reconciler.core import manifest as m
from reconciler.core.decision import status_patch
from reconciler.core.live import Address
from reconciler.core.refs import CRD, SECRET, Kind, ObjectKey
from reconciler.core.secret import Secret
from tests.support import capture_files
from tests.support.space_objects import live_like

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
VERSION = "v0.0.0"  # what the recorded builds said
CONTROL_PLANE_MODE = ("control-plane-mode", "two-app-clusters", "cluster-scoped")
CAPTURES = ("default-mode", *CONTROL_PLANE_MODE)
SPACES = {"default-mode": "cluster-q7x2d", "broken-kubeconfig": "cluster-space"}


@functools.cache
def recorded(capture):
    """Return the objects as they were written last, by cluster, kind and place."""
    found: dict[tuple[str, Kind, str, str], Any] = {}
    for write in capture_files.read(capture):
        manifest = capture_files.timed(write.manifest, NOW)
        key = (write.place, write.kind, *m.identity_of(manifest))
        found[key] = {**found.get(key, {}), **manifest}
    return found


def every(kind, captures=CAPTURES):
    found = {
        f"{capture} {namespace}/{name}": (capture, manifest)
        for capture in captures
        for (_, one, namespace, name), manifest in recorded(capture).items()
        if one == kind
    }
    assert found, kind
    return pytest.mark.parametrize(("capture", "live"), found.values(), ids=found.keys())


def space_of(capture, live):
    return SPACES.get(capture) or m.namespace_of(live)


def exported(capture, live):
    return recorded(capture).get(
        ("control-plane", API_SERVICE_EXPORT, space_of(capture, live), m.name_of(live))
    )


def installed(capture, live):
    """Return the CRD in the app cluster, with what its API server then said of it."""
    offer = exported(capture, live)
    for (_, kind, _, name), held in recorded(capture).items():
        owners = m.get_list(held, "metadata", "ownerReferences")
        if (
            kind == CRD
            and name == m.name_of(live)
            and m.get_text(owners, 0, "uid") == m.uid_of(live)
        ):
            return {
                **live_like(held, uid="uid-of-crd", resourceVersion="7"),
                "status": {**offer["status"], "conditions": of_crd(offer)},
            }
    raise AssertionError(m.name_of(live))


def of_crd(offer):
    found = m.get_list(offer, "status", "conditions")
    return [one for one in found if m.get_text(one, "type") in ("Established", "NamesAccepted")]


def kubeconfig_secret(capture, live, content=None):
    if content is None:
        plane = Address("https://plane.example", "")
        text = spaces.kubeconfig(plane, Secret("token"), namespace=space_of(capture, live))
        content = text.encode()
    return {"data": {"kubeconfig": base64.b64encode(content).decode()}}


def look_at(capture, live, **more):
    held = kubeconfig_secret(capture, live)
    mode = capture in CONTROL_PLANE_MODE
    facts = {
        "binding": live_like(live, resourceVersion="7"),
        "judged": judge.judge(live, held, control_plane_mode=mode),
        "provider": Provider(
            synced=True,
            heartbeat="",
            cluster_binding=recorded(capture)[
                "control-plane", CLUSTER_BINDING, space_of(capture, live), "cluster"
            ],
            export=exported(capture, live),
        ),
        "crd": None if "crd" in more else installed(capture, live),
        "live_uids": frozenset({m.uid_of(live)}),
    }
    return binding_decide.Seen(**{**facts, **more})


def patched(cluster, kind, live, decision):
    """Return the status that is written, {} for none."""
    patch = status_patch(live, m.ref_of(cluster, kind, live), decision, failed=(), now=NOW)
    return {} if patch is None else patch.body["status"]


def shown(status: Any) -> dict[str, Any]:
    """Return each condition without its time."""
    return {
        m.get_text(one, "type"): {key: one[key] for key in one if key != "lastTransitionTime"}
        for one in m.get_maps(status, "conditions")
    }


def only_step(decision) -> Any:
    ((step,),) = [task.steps for task in decision.tasks]
    return step


def true(*types):
    return {type_: {"type": type_, "status": "True"} for type_ in types}


@every(API_SERVICE_BINDING)
def test_bindings_get_what_the_original_never_said(capture, live):
    """Steps 02/10, 03/20 and 03/40."""
    decision = binding_decide.decide(look_at(capture, live))
    assert decision.tasks == ()
    status = patched(APP_CLUSTER, API_SERVICE_BINDING, live, decision)
    if m.get_list(live, "status", "conditions"):
        added = true("InformersSynced", "SchemaInSync")
        assert shown(status) == shown(live["status"]) | added
        assert set(status) == {"conditions"}
    else:  # recorded before its konnector ran
        names = ("Ready", "Connected", "Heartbeating", "InformersSynced", "SchemaInSync")
        assert shown(status) == true(*names, "SecretValid")
    types = [m.get_text(one, "type") for one in status["conditions"]]
    assert types == ["Ready", *sorted(set(types) - {"Ready"})]


@every(API_SERVICE_BINDING)
def test_their_crds_are_those_of_the_original(capture, live):
    """Steps 02/10 and 03/20; C.3."""
    held = installed(capture, live)
    offer = exported(capture, live)
    owner = Owner(live, frozenset({m.uid_of(live)}))
    made: Any = crd.wanted(offer, owner)
    assert made["metadata"] == {key: held["metadata"][key] for key in ("name", "ownerReferences")}
    assert made["spec"] == held["spec"]
    assert crd.plan(offer, held, owner).step is None


@every(CLUSTER_BINDING)
def test_cluster_bindings_are_taken_over_without_a_write(capture, live):
    """Steps 02/61 and 03/22: between two beats there is nothing to say."""
    look = space_decide.ClusterBindingView(
        cluster_binding=live,
        control_plane_mode=capture in CONTROL_PLANE_MODE,
        source=kubeconfig_secret(capture, live),
    )
    decision = space_decide.beat(look, now=NOW, version=VERSION)
    if not m.get_text(live, "status", "lastHeartbeatTime"):  # recorded before its konnector ran
        assert "lastHeartbeatTime" in decision.fields
        return
    assert patched(CONTROL_PLANE, CLUSTER_BINDING, live, decision) == {}
    later = space_decide.beat(look, now=NOW + timedelta(minutes=3), version=VERSION)
    assert set(patched(CONTROL_PLANE, CLUSTER_BINDING, live, later)) == {"lastHeartbeatTime"}
    assert shown(live["status"]).keys() >= {one.type for one in decision.conditions}


@every(API_SERVICE_EXPORT)
def test_exports_become_ready(capture, live):
    """Steps 02/10 and 03/22."""
    bound = next(
        held
        for (_, kind, _, name), held in recorded(capture).items()
        if kind == API_SERVICE_BINDING
        and name == m.name_of(live)
        and space_of(capture, held) == m.namespace_of(live)
    )
    look = space_decide.ExportView(
        export=live,
        binding={"metadata": bound["metadata"], "status": {"conditions": [
            {"type": "SchemaInSync", "status": "True"}]}},
        crd=installed(capture, bound),
    )  # fmt: skip
    status = patched(
        CONTROL_PLANE, API_SERVICE_EXPORT, live, space_decide.export_status(look, now=NOW)
    )
    assert shown(status) == shown(live["status"]) | true("Ready", "ConsumerInSync")
    assert set(status) <= {"conditions"}


@every(API_SERVICE_EXPORT)
def test_exports_that_nobody_binds_say_so_as_the_original_did(capture, live):
    """Step 03/80: the CRD stays in the app cluster."""
    status = {**live["status"], "conditions": of_crd(live)}
    look = space_decide.ExportView(export=live, crd={"status": status})
    shown_now = shown(
        patched(CONTROL_PLANE, API_SERVICE_EXPORT, live, space_decide.export_status(look, now=NOW))
    )
    common = {"status": "False", "severity": "Info", "message": "No APIServiceBinding exists."}
    not_found = {"reason": "APIServiceBindingNotFound", **common}
    assert shown_now == shown(live["status"]) | {
        "Ready": {"type": "Ready", **not_found},
        "Connected": {"type": "Connected", **not_found},
        "ConsumerInSync": {"type": "ConsumerInSync", "reason": "NA", **common},
    }


@every(API_SERVICE_EXPORT)
def test_exports_say_what_the_original_said_of_its_own_bindings(capture, live):
    """To the byte, where the binding does not tell of its schema."""
    look = space_decide.ExportView(
        export=live,
        binding={"metadata": live["metadata"]},
        crd={"status": {**live["status"], "conditions": of_crd(live)}},
    )
    assert (
        patched(CONTROL_PLANE, API_SERVICE_EXPORT, live, space_decide.export_status(look, now=NOW))
        == {}
    )


def test_a_deleted_secret_is_reported_as_the_original_reported_it():
    """Step 03/33; ours mends it, as its provider goes on (A.7)."""
    capture = "default-mode"
    live = recorded(capture)[
        "app-cluster", API_SERVICE_BINDING, "klutch-bind", "databases.shop.example"
    ]
    judged = judge.judge(live, None, control_plane_mode=False)
    message = "Kubeconfig secret klutch-bind/kubeconfig-9hk4v not found. "
    message += "Rerun kubectl bind for repair."
    common = {"status": "False", "severity": "Error", "reason": "KubeconfigSecretNotFound",
              "message": message}  # fmt: skip
    decision = binding_decide.decide(look_at(capture, live, judged=judged))
    assert shown(patched(APP_CLUSTER, API_SERVICE_BINDING, live, decision)) == {
        **shown(live["status"]),
        **true("SchemaInSync"),
        "Ready": {"type": "Ready", **common},
        "SecretValid": {"type": "SecretValid", **common},
    }
    held = kubeconfig_secret(capture, live)
    content = base64.b64decode(held["data"]["kubeconfig"])
    look = space_decide.ClusterBindingView(
        cluster_binding=recorded(capture)[
            "control-plane", CLUSTER_BINDING, "cluster-q7x2d", "cluster"
        ],
        source={**held, "type": "Opaque"},
        targets={secret_of(live): None},
        in_use=judge.fingerprint(content),
    )
    step = only_step(space_decide.mirror(look))
    assert m.identity_of(step.manifest) == ("klutch-bind", "kubeconfig-9hk4v")
    assert step.manifest["data"] == held["data"]


def test_h15_bound_again():
    """Step 03/81: the CRD is not foreign, its binding is gone."""
    capture = "default-mode"
    before = recorded(capture)[
        "app-cluster", API_SERVICE_BINDING, "klutch-bind", "databases.shop.example"
    ]
    live = {**live_like(before, uid="<uid-45>"), "status": {}}
    decision = binding_decide.decide(look_at(capture, live, crd=installed(capture, before)))
    step = only_step(decision)
    (owner,) = step.body["metadata"]["ownerReferences"]
    assert owner["uid"] == "<uid-45>"
    assert "spec" not in step.body
    status = patched(APP_CLUSTER, API_SERVICE_BINDING, live, decision)
    assert shown(status)["Connected"] == {"type": "Connected", "status": "True"}


def broken():
    capture = "broken-kubeconfig"
    live = recorded(capture)[
        "app-cluster", API_SERVICE_BINDING, "klutch-bind", "databases.shop.example"
    ]
    return capture, live


def test_h20_a_broken_kubeconfig_is_not_mirrored():
    """Step 06/80: what works stays, and the provider hears of it."""
    capture, live = broken()
    held = recorded(capture)["control-plane", CLUSTER_BINDING, "cluster-space", "cluster"]
    good = kubeconfig_secret(capture, live)
    look = space_decide.ClusterBindingView(
        cluster_binding=held,
        source=kubeconfig_secret(capture, live, b"this is no kubeconfig"),
        targets={ObjectKey("klutch-bind", "kubeconfig-a"): {**good, "metadata": {}}},
        in_use=judge.fingerprint(base64.b64decode(good["data"]["kubeconfig"])),
        verdict="",
    )
    assert space_decide.mirror(look).tasks == ()
    assert space_decide.to_probe(look) is None
    decision = space_decide.beat(look, now=NOW, version=VERSION)
    found = shown(patched(CONTROL_PLANE, CLUSTER_BINDING, held, decision))["SecretValid"]
    assert (found["status"], found["severity"], found["reason"]) == (
        "False",
        "Warning",
        "ProviderSecretInvalid",
    )


def test_h20_where_the_original_was_shut_out_nothing_is_pretended():
    """Step 06/81: ours cannot mend it either, and no condition goes on saying True."""
    capture, live = broken()
    held = kubeconfig_secret(capture, live, b"this is no kubeconfig")
    judged = judge.judge(live, held, control_plane_mode=False)
    look = look_at(capture, live, judged=judged, provider=None, crd=None)
    status = patched(APP_CLUSTER, API_SERVICE_BINDING, live, binding_decide.decide(look))
    found = conditions.parse(status["conditions"])
    assert {one.type: (one.status, one.severity, one.reason) for one in found} == {
        "Ready": ("False", "Error", "KubeconfigSecretInvalid"),
        "SecretValid": ("False", "Error", "KubeconfigSecretInvalid"),
        "Connected": ("Unknown", "", "Unknown"),
        "Heartbeating": ("Unknown", "", "Unknown"),
        "InformersSynced": ("Unknown", "", "Unknown"),
    }
    message = "Kubeconfig secret klutch-bind/kubeconfig-a has an invalid kubeconfig: "
    assert found[0].message.startswith(message)
    assert "providerPrettyName" not in status


def test_the_mirrored_secret_is_the_one_that_the_binding_names():
    """Step 03/31."""
    capture = "default-mode"
    live = recorded(capture)[
        "app-cluster", API_SERVICE_BINDING, "klutch-bind", "databases.shop.example"
    ]
    assert ("app-cluster", SECRET, *secret_of(live)) in recorded(capture)
    held = recorded(capture)["control-plane", CLUSTER_BINDING, "cluster-q7x2d", "cluster"]
    assert ("control-plane", SECRET, *space_decide.source_place(held)) in recorded(capture)
