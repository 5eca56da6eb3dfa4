"""A ClusterBinding: beats, version, and the kubeconfig that comes into the app cluster."""

import base64
from datetime import timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.kubeconfig import judge
from konnector.space import decide
from konnector.space.decide import beat
from reconciler.api import CLUSTER_BINDING
from reconciler.blueprints import objects as spaces
from reconciler.core.decision import Apply, Decision, Patch, Task, status_patch
from reconciler.core.live import Address
from reconciler.core.manifest import ref_of
from reconciler.core.refs import SECRET, ObjectKey, Ref
from reconciler.core.secret import Secret
from reconciler.core.times import format_time
from tests.support.space_objects import NOW, SPACE, ago, deleting, live, live_like

PLACE = ObjectKey("klutch-bind", "kubeconfig-a")
UID = {"klutchctl.dev/space-uid": "uid-of-space"}


def kubeconfig_of(server="https://plane.example", namespace=SPACE, token="canary-token"):
    return spaces.kubeconfig(Address(server, ""), Secret(token), namespace=namespace).encode()


LAST = kubeconfig_of(token="canary-token-of-yesterday")
NEW = kubeconfig_of(token="canary-token-of-today")
REROUTED = kubeconfig_of(server="https://10.0.0.1", token="canary-token-of-today")
ELSEWHERE = kubeconfig_of(namespace="cluster-b2")
BROKEN = b"just text with a canary-token"


def encoded(content):
    return base64.b64encode(content).decode()


def target(content, *, annotations=UID, **more):
    data = {"kubeconfig": encoded(content), **more}
    return live(
        SECRET,
        PLACE.name,
        namespace=PLACE.namespace,
        metadata={"annotations": annotations},
        type="Opaque",
        data=data,
    )


def by(manager, content):
    """Return a copy whose kubeconfig one manager wrote, and its annotation another."""
    fields = {
        manager: {"f:data": {".": {}, "f:kubeconfig": {}}},
        "somebody": {"f:metadata": {"f:annotations": {"f:note": {}}}},
    }
    wrote = [
        {"manager": one, "operation": "Update", "fieldsV1": what} for one, what in fields.items()
    ]
    return live_like(target(content), managedFields=wrote)


def source(content=LAST, **more):
    data = {"kubeconfig": encoded(content), **more}
    return live(SECRET, "kubeconfig", namespace=SPACE, type="Opaque", data=data)


def cluster_binding(**status):
    spec = {"kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"}}
    return live(CLUSTER_BINDING, "cluster", namespace=SPACE, spec=spec, status=status)


def seen(held=LAST, **more):
    facts = {
        "cluster_binding": cluster_binding(),
        "source": source(),
        "targets": {PLACE: None if held is None else target(held)},
        "in_use": judge.fingerprint(LAST),
        "space_uid": "uid-of-space",
    }
    return decide.ClusterBindingView(**{**facts, **more})


def steps_of(look) -> list[Any]:
    """Return all that is written to Secrets, each step a task of its own."""
    tasks = decide.mirror(look).tasks
    assert all(len(task.steps) == 1 for task in tasks)
    return [task.steps[0] for task in tasks]


def written(look, *, now=NOW, version="v0.1.0"):
    ref = ref_of(CONTROL_PLANE, CLUSTER_BINDING, look.cluster_binding)
    decision = beat(look, now=now, version=version)
    patch = status_patch(look.cluster_binding, ref, decision, failed=(), now=now)
    return None if patch is None else patch.body["status"]


BEATS = {
    "a moment ago": ({"lastHeartbeatTime": ago(seconds=149)}, False, timedelta(seconds=1)),
    "in the future": ({"lastHeartbeatTime": ago(seconds=-20)}, True, decide.PULSE),
}


@pytest.mark.parametrize(("status", "beats", "again"), BEATS.values(), ids=BEATS.keys())
def test_beats(status, beats, again):
    decision = beat(seen(cluster_binding=cluster_binding(**status)), now=NOW, version="v0.1.0")
    assert decision.fields.get("lastHeartbeatTime") == (format_time(NOW) if beats else None)
    assert decision.again == again


def test_the_first_status_to_the_byte():
    """Section I, without what only the backend tells."""
    time = format_time(NOW)
    assert written(seen()) == {
        "heartbeatInterval": "5m0s",
        "konnectorVersion": "v0.1.0",
        "lastHeartbeatTime": time,
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": time},
            {"type": "SecretValid", "status": "True", "lastTransitionTime": time},
            {"type": "ValidVersion", "status": "True", "lastTransitionTime": time},
        ],
    }


def test_between_beats_nothing_is_written():
    first = cluster_binding(**written(seen()))
    assert written(seen(cluster_binding=first), now=NOW + timedelta(seconds=149)) is None
    later = NOW + timedelta(seconds=150)
    beat = {"lastHeartbeatTime": format_time(later)}
    assert written(seen(cluster_binding=first), now=later) == beat


def test_a_build_without_a_version():
    status = written(seen(), version=None)
    assert status["konnectorVersion"] == "unknown"
    (reported,) = [one for one in status["conditions"] if one["type"] == "ValidVersion"]
    assert (reported["status"], reported["severity"], reported["reason"]) == (
        "False",
        "Warning",
        "ParseError",
    )


def test_in_control_plane_mode_nothing_is_reported_or_done_about_secrets():
    look = seen(None, control_plane_mode=True, source=source(NEW))
    assert [one.type for one in beat(look, now=NOW, version="v0.1.0").conditions] == [
        "ValidVersion"
    ]
    assert decide.mirror(look) == Decision()
    assert decide.to_probe(look) is None


STATES = {
    "as it was": (seen(), "True", "", None),
    "no source": (seen(source=None), "False", "ProviderSecretNotFound", None),
    "a source that was not looked for yet": (seen(source=None, source_read=False), "", "", None),
    "no such key": (
        seen(source=live(SECRET, "kubeconfig", namespace=SPACE, data={"config": "eA=="})),
        "False",
        "ProviderSecretInvalid",
        None,
    ),
    "H20: a broken one": (seen(source=source(BROKEN)), "False", "ProviderSecretInvalid", None),
    "H20: one that leads elsewhere": (
        seen(source=source(ELSEWHERE)),
        "False",
        "ProviderSecretInvalid",
        None,
    ),
    "H20: a new one, not tried yet": (seen(source=source(NEW)), "", "", NEW),
    "H20: a new one that does not work": (
        seen(source=source(NEW), verdict="no answer"),
        "False",
        "ProviderSecretInvalid",
        NEW,
    ),
    "a new one that works": (seen(source=source(NEW), verdict=""), "True", "", NEW),
    "a new one that has arrived": (seen(NEW, source=source(NEW)), "True", "", None),
    "H20: another server chosen in the app cluster": (
        seen(REROUTED, source=source(NEW), in_use=judge.fingerprint(REROUTED)),
        "True",
        "",
        None,
    ),
    "the copy is gone, the source in use": (seen(None), "True", "", None),
    "the copy is gone, and the source is new": (seen(None, source=source(NEW)), "", "", NEW),
    "nobody refers to it": (seen(targets={}, source=source(NEW)), "True", "", None),
}


@pytest.mark.parametrize(("look", "status", "reason", "probe"), STATES.values(), ids=STATES.keys())
def test_secret_valid_and_what_has_to_be_tried(look, status, reason, probe):
    reported = {one.type: one for one in beat(look, now=NOW, version="v0.1.0").conditions}
    found = reported.get("SecretValid")
    assert (found.status if found else "") == status
    assert (found.reason if found else "") == reason
    assert decide.to_probe(look) == probe
    if found is not None and found.reason:
        assert found.severity == "Warning"
        assert found.message.startswith("Provider secret cluster-a1/kubeconfig ")
        assert "canary" not in found.message


NOT_MIRRORED = {
    "equal": seen(),
    "no source": seen(None, source=None),
    "H20: broken": seen(source=source(BROKEN)),
    "H20: broken, and the copy is gone": seen(None, source=source(BROKEN)),
    "H20: leads elsewhere": seen(source=source(ELSEWHERE), verdict=""),
    "H20: not tried": seen(source=source(NEW)),
    "H20: tried in vain": seen(source=source(NEW), verdict="no answer"),
    "H20: another server, chosen in the app cluster": seen(
        REROUTED, source=source(NEW), in_use=judge.fingerprint(REROUTED), verdict=""
    ),
    "H20: another server, chosen by a person": seen(
        source=source(NEW),
        targets={PLACE: by("kubectl-edit", REROUTED)},
        in_use=judge.fingerprint(REROUTED),
        verdict="",
    ),
    "a new server, not tried": seen(
        source=source(NEW), targets={PLACE: by("klutchctl", REROUTED)}, verdict=None
    ),
    "a new server that does not answer": seen(
        source=source(NEW), targets={PLACE: by("klutchctl", REROUTED)}, verdict="no answer"
    ),
    "a copy that goes": seen(targets={PLACE: deleting(target(BROKEN))}),
    "the copy was made to lead elsewhere": seen(targets={PLACE: target(ELSEWHERE, annotations={})}),
    "the ClusterBinding goes": seen(BROKEN, cluster_binding=deleting(cluster_binding())),
}


@pytest.mark.parametrize("look", NOT_MIRRORED.values(), ids=NOT_MIRRORED.keys())
def test_what_is_not_mirrored(look):
    assert decide.mirror(look).tasks == ()


def test_g20_a_missing_copy_is_made_and_nothing_but_it():
    made: Any = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kubeconfig-a", "namespace": "klutch-bind", "annotations": UID},
        "type": "Opaque",
        "data": {"kubeconfig": encoded(LAST), "more": "eA=="},
    }
    look = seen(None, source=source(LAST, more="eA=="))
    assert decide.mirror(look) == Decision((Task((Apply(SECRET, made, APP_CLUSTER),)),))


def test_a_copy_bears_no_uid_that_is_not_known():
    (step,) = steps_of(seen(None, space_uid=""))
    assert step.manifest["metadata"] == {"name": "kubeconfig-a", "namespace": "klutch-bind"}


MIRRORED = {
    "a copy that somebody broke": (seen(BROKEN), {"kubeconfig": encoded(LAST)}),
    "keys beside it": (
        seen(targets={PLACE: target(LAST, stale="eA==")}, source=source(fresh="eQ==")),
        {"stale": None, "fresh": "eQ=="},
    ),
}


@pytest.mark.parametrize(
    "manager", ["klutchctl", "kubectl-bind", "klutch.anynines.com", "konnector"]
)
def test_a_new_address_is_tried_and_mirrored_where_the_old_one_is_of_a_program(manager):
    targets = {PLACE: by(manager, REROUTED)}
    look = seen(source=source(NEW), targets=targets, in_use=judge.fingerprint(REROUTED))
    assert decide.to_probe(look) == NEW
    (step,) = steps_of(seen(source=source(NEW), targets=targets, verdict=""))
    assert step.body["data"] == {"kubeconfig": encoded(NEW)}


@pytest.mark.parametrize(("look", "data"), MIRRORED.values(), ids=MIRRORED.keys())
def test_what_is_mirrored_is_exactly_what_differs(look, data):
    (step,) = steps_of(look)
    ref = Ref(APP_CLUSTER, SECRET, *PLACE)
    metadata = {"uid": "uid-of-kubeconfig-a", "resourceVersion": "7"}
    assert step == Patch(ref, {"metadata": metadata, "data": data})


def test_whose_space_it_is_is_noted_once():
    look = seen(targets={PLACE: target(LAST, annotations={"note": "x"})})
    (step,) = steps_of(look)
    assert step.body == {
        "metadata": {"uid": "uid-of-kubeconfig-a", "resourceVersion": "7", "annotations": UID}
    }
    other = {"klutchctl.dev/space-uid": "uid-of-the-space-before"}
    assert decide.mirror(seen(targets={PLACE: target(LAST, annotations=other)})).tasks == ()


HOSTILE: list[Any] = [None, 7, "x", [], [7], {"data": [], "metadata": [], "spec": 7, "status": []}]


@pytest.mark.parametrize("odd", HOSTILE, ids=repr)
def test_odd_values_never_raise(odd):
    whole = odd if isinstance(odd, dict) else {"metadata": odd, "spec": odd, "data": odd}
    for facts in (
        {"source": whole},
        {"targets": {PLACE: whole}, "verdict": ""},
        {"cluster_binding": {**whole, "status": odd}},
        {"cluster_binding": live_like(cluster_binding(conditions=odd))},
    ):
        look = seen(**facts)
        beat(look, now=NOW, version="v0.1.0")
        decide.mirror(look)
        decide.to_probe(look)


def test_nothing_of_the_secrets_is_shown():
    assert "kubeconfig-a" in repr(seen().targets)
    assert encoded(LAST) not in repr(seen())


BUILDS = {
    "our own, before a release": ("1.2.3rc1.dev4+g1234abc", "v1.2.3"),
    "G 23: garbage": ("garbage", None),
}


@pytest.mark.parametrize(("build", "want"), BUILDS.values(), ids=BUILDS.keys())
def test_versions(build, want):
    assert decide.konnector_version(build) == want
