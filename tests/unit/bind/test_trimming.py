"""What is kept of objects that app clusters write."""

from typing import Any

from bind import bounds
from bind.export import decide
from bind.export.decide import RequestView
from reconciler.blueprints.export import Terms
from reconciler.core import keys
from reconciler.core.times import format_time
from tests.unit.bind.app_cluster_world import NOW

HUGE = "x" * 10_000
METADATA: Any = {
    "name": "a",
    "namespace": "s",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": format_time(NOW),
    "managedFields": [{"manager": HUGE}],
    "annotations": {"a": HUGE, keys.DELETION_POLICY: HUGE},
    "labels": {keys.APP_CLUSTER_BINDING_NAME: "shop", "other": "x"},
    "finalizers": [f"a.example/{n}" for n in range(100)],
}
WHOLE: Any = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "K", "metadata": METADATA}


def test_of_a_request_what_it_asks_for():
    resources = [
        {"group": "a.example", "resource": f"r{n}", "permissionClaims": [HUGE]} for n in range(500)
    ]
    live: Any = {
        **WHOLE,
        "spec": {"parameters": {"a": HUGE}, "resources": resources, "b": HUGE},
        "status": {"phase": "Pending"},
    }
    kept: Any = bounds.trimmed_request(live)
    assert len(str(kept)) < 10_000
    assert kept["status"] == {"phase": "Pending"}
    assert kept["metadata"]["labels"] == {keys.APP_CLUSTER_BINDING_NAME: "shop"}
    assert decide.resources(kept)[:2] == ["r0.a.example", "r1.a.example"]
    decision = decide.answer(
        RequestView("cp", kept), terms=Terms("Namespaced", "Prefixed"), now=NOW
    )
    (told,) = decision.conditions
    assert (told.type, told.reason) == ("ExportsReady", "TooManyResources")


def test_of_a_name_no_more_than_shows_that_it_is_too_long():
    resources = [{"group": HUGE, "resource": HUGE}]
    kept: Any = bounds.trimmed_request({**WHOLE, "spec": {"resources": resources}})
    assert len(decide.resources(kept)[0]) < 600


def test_of_a_binding_whether_it_says_anything_of_claims():
    spec: Any = {"kubeconfigSecretRef": {"name": "k"}, "permissionClaims": [HUGE]}
    kept: Any = bounds.trimmed_binding({**WHOLE, "spec": spec})
    assert kept["spec"] == {"kubeconfigSecretRef": {"name": "k"}, "permissionClaims": []}
    assert len(kept["metadata"]["finalizers"]) == 100
    assert len(kept["metadata"]["annotations"][keys.DELETION_POLICY]) < 2000
    bare: Any = bounds.trimmed_binding({**WHOLE, "spec": {}})
    assert "permissionClaims" not in bare["spec"]


def test_of_the_others_hardly_anything():
    for trim in (
        bounds.trimmed_service_namespace,
        bounds.trimmed_marks,
        bounds.trimmed_cluster_binding,
    ):
        kept: Any = trim({**WHOLE, "spec": {"serviceProviderSpec": HUGE}, "data": {"a": HUGE}})
        assert len(str(kept)) < 1000
