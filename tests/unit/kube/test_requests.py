"""Calls as values: their paths and queries, and when they are repeated."""

from typing import Any

import orjson
import pytest

from reconciler.core.errors import Rejected
from reconciler.core.refs import CLUSTER_ROLE, CONFIG_MAP, NAMESPACE, Kind, Ref
from reconciler.http.stream import NoAnswer, explain
from reconciler.kube import requests
from reconciler.kube.client import delay_before_retry
from reconciler.kube.requests import ListQuery, Preconditions, Propagation
from reconciler.kube.transport import Answer

EXPORT = Kind("klutch.anynines.com", "v1alpha1", "APIServiceExport", "apiserviceexports")

PATHS = {
    "a core object": (Ref("c", CONFIG_MAP, "ns", "x"), "", "/api/v1/namespaces/ns/configmaps/x"),
    "a core collection of one namespace": (
        Ref("c", CONFIG_MAP, "ns", ""),
        "",
        "/api/v1/namespaces/ns/configmaps",
    ),
    "a collection of all namespaces": (Ref("c", CONFIG_MAP, "", ""), "", "/api/v1/configmaps"),
    "a cluster-scoped object": (Ref("c", NAMESPACE, "", "ns"), "", "/api/v1/namespaces/ns"),
    "a custom resource and its status": (
        Ref("c", EXPORT, "ns", "databases.shop.example"),
        "status",
        "/apis/klutch.anynines.com/v1alpha1/namespaces/ns/apiserviceexports"
        "/databases.shop.example/status",
    ),
    "a role name with colons stays readable": (
        Ref("c", CLUSTER_ROLE, "", "system:node"),
        "",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
    ),
    "odd characters are encoded, so that a name cannot add a query": (
        Ref("c", CLUSTER_ROLE, "", "a?b#c d"),
        "",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Fb%23c%20d",
    ),
}


@pytest.mark.parametrize(("ref", "subresource", "path"), PATHS.values(), ids=PATHS.keys())
def test_path(ref, subresource, path):
    assert requests.path_of(ref, subresource=subresource) == path


@pytest.mark.parametrize("name", [".", "..", "a/b", "../secrets/x", "a%2Fb"])
def test_a_name_cannot_leave_its_collection(name):
    with pytest.raises(ValueError, match="cannot be a name"):
        requests.path_of(Ref("c", CONFIG_MAP, "ns", name))
    with pytest.raises(ValueError, match="cannot be a name"):
        requests.path_of(Ref("c", CONFIG_MAP, name, "x"))


@pytest.mark.parametrize("name", ["..", "a/b", "a%b", "\ud800"])
def test_a_call_that_no_path_can_name_is_rejected_with_its_object(name):
    with pytest.raises(Rejected, match="c: get ConfigMap ns/"):
        requests.get(Ref("c", CONFIG_MAP, "ns", name), metadata_only=False)
    manifest = {"metadata": {"name": "x", "namespace": name}}
    with pytest.raises(Rejected, match="c: create ConfigMap"):
        requests.create("c", manifest, CONFIG_MAP, manager="m", dry_run=False)
    for group, version in ((name, "v1"), ("", name)):
        with pytest.raises(Rejected, match="c: get Gadget"):
            requests.resources("c", Kind(group, version, "Gadget", "gadgets"))


def test_a_namespaced_object_needs_its_namespace():
    with pytest.raises(ValueError, match="needs a namespace"):
        requests.path_of(Ref("c", CONFIG_MAP, "", "x"))


def test_a_list_states_only_what_was_asked():
    ref = Ref("c", CONFIG_MAP, "ns", "")
    assert requests.list_page(ref, ListQuery()).target == "/api/v1/namespaces/ns/configmaps"
    query = ListQuery(labels="a=b,c in (d)", fields="metadata.name=x", limit=5, token="t/=")
    assert requests.list_page(ref, query).target == (
        "/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db%2Cc+in+%28d%29"
        "&fieldSelector=metadata.name%3Dx&limit=5&continue=t%2F%3D"
    )


def test_metadata_only_reads_ask_for_partial_objects():
    ref = Ref("c", CONFIG_MAP, "ns", "")
    assert "PartialObjectMetadataList" in (
        requests.list_page(ref, ListQuery(metadata_only=True)).accept
    )
    accept = requests.get(Ref("c", CONFIG_MAP, "ns", "x"), metadata_only=True).accept
    assert "PartialObjectMetadata;" in accept


DELETES = {
    "whatever it is now": (Preconditions(uid=None), None, False),
    "this very object": (Preconditions(uid="u"), {"uid": "u"}, True),
    "this very object, unchanged": (
        Preconditions(uid="u", resource_version="7"),
        {"uid": "u", "resourceVersion": "7"},
        True,
    ),
}


@pytest.mark.parametrize(
    ("preconditions", "wire", "repeatable"), DELETES.values(), ids=DELETES.keys()
)
def test_delete(preconditions, wire, repeatable):
    request = requests.delete(
        Ref("c", CONFIG_MAP, "ns", "x"),
        preconditions=preconditions,
        propagation=Propagation.ORPHAN,
        dry_run=False,
    )
    assert request.body is not None
    body = orjson.loads(request.body)
    assert body.get("preconditions") == wire
    assert body["propagationPolicy"] == "Orphan"
    assert request.repeatable is repeatable, "only a delete with a uid may be sent twice"


def test_a_write_is_not_repeatable_but_its_dry_run_is():
    manifest = {"metadata": {"name": "x", "namespace": "ns"}}
    for dry_run in (False, True):
        made = requests.create("c", manifest, CONFIG_MAP, manager="m", dry_run=dry_run)
        assert made.repeatable is dry_run
        assert ("dryRun=All" in made.target) is dry_run


def test_what_json_cannot_hold_is_rejected_with_its_object():
    manifest: Any = {"metadata": {"name": "x", "namespace": "ns"}, "data": {"a": object()}}
    with pytest.raises(Rejected, match="create ConfigMap ns/x: cannot be written as JSON"):
        requests.create("c", manifest, CONFIG_MAP, manager="m", dry_run=False)


READ = requests.get(Ref("c", CONFIG_MAP, "ns", "x"), metadata_only=False)
WRITE = requests.create(
    "c", {"metadata": {"name": "x", "namespace": "ns"}}, CONFIG_MAP, manager="m", dry_run=False
)


def answer(status, retry_after=None):
    return Answer(status, {} if retry_after is None else {"retry-after": retry_after}, b"")


LOST = NoAnswer("cut", sent=True)
NOT_SENT = NoAnswer("refused", sent=False)
UNTRUSTED = NoAnswer("certificate", sent=False, permanent=True)
SILENT = explain(TimeoutError(), proxied=False)

CASES = {
    "a read that met a 500 is repeated": (READ, answer(500), 1, True),
    "a write that met a 500 is not": (WRITE, answer(500), 1, False),
    "a read whose answer was lost is repeated": (READ, LOST, 1, True),
    "a write whose answer was lost is not": (WRITE, LOST, 1, False),
    "a write that was never sent is": (WRITE, NOT_SENT, 1, True),
    "a certificate does not become trusted by trying": (READ, UNTRUSTED, 1, False),
    "a server that accepts no connection in all that time has had it": (READ, SILENT, 1, False),
    "a read is tried three times": (READ, answer(500), 3, False),
    "a write turned away with 429 was not executed": (WRITE, answer(429), 1, True),
    "429 is waited for as long as the deadline allows": (WRITE, answer(429), 9, True),
    "a refusal is final": (READ, answer(403), 1, False),
    "a wait beyond the deadline is not begun": (READ, answer(429, "120"), 1, False),
    "a Retry-After that is no number is ignored": (READ, answer(429, "soon"), 1, True),
}


@pytest.mark.parametrize(
    ("request_", "outcome", "tries", "again"), CASES.values(), ids=CASES.keys()
)
def test_whether(request_, outcome, tries, again):
    delay = delay_before_retry(request_, outcome, tries=tries, left=60, jitter=0.5)
    assert (delay is not None) is again


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_never_cut_short(status):
    delay = delay_before_retry(READ, answer(status, "2"), tries=1, left=60, jitter=0)
    assert delay is not None
    assert 2 <= delay < 3
