"""What of a live object is kept, and that nothing secret is."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler import api
from reconciler.core import keys
from reconciler.core.documents import MAX_DEPTH
from reconciler.core.manifest import JSON, Manifest, get, get_text
from reconciler.core.refs import CRD, DEPLOYMENT, SECRET
from reconciler.core.secret import LAST_APPLIED
from reconciler.observe import objects
from reconciler.observe.objects import TOO_DEEP, export_body, kubeconfig_facts, observed

TOKEN = "eyJhbGciOiJSUzI1NiJ9.canary.c2lnbmF0dXJl"
CA = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"


def b64(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def secret(uid: str = "u1", type: str = "Opaque", **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": type,
        "metadata": {"name": "x", "namespace": "n", "uid": uid},
        "data": {key: b64(value) for key, value in data.items()},
    }


def config(*, cluster: Any = None, user: Any = None, **top: Any) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://cp.example"} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "s"}}],
        "current-context": "x",
    }
    return yaml.safe_dump(document | top)


FACTS = api.KubeconfigFacts("https://cp.example", "", "", "s", api.token_digest(TOKEN))
KUBECONFIGS: Mapping[str, tuple[str, api.KubeconfigFacts | None]] = {
    "all that is compared": (
        config(cluster={"certificate-authority-data": b64(CA), "tls-server-name": "api.example"}),
        api.KubeconfigFacts(
            "https://cp.example", api.ca_digest(CA), "api.example", "s", api.token_digest(TOKEN)
        ),
    ),
    "a slash at the end of the server means nothing": (
        config(cluster={"server": "https://cp.example/"}),
        FACTS,
    ),
    "JSON is YAML": (json.dumps(yaml.safe_load(config())), FACTS),
    "a client certificate is no token": (
        config(user={"client-certificate-data": "x", "client-key-data": "canary-key"}),
        api.KubeconfigFacts("https://cp.example", "", "", "s", ""),
    ),
    "no user": (
        config(contexts=[{"name": "x", "context": {"cluster": "c", "namespace": "s"}}]),
        api.KubeconfigFacts("https://cp.example", "", "", "s", ""),
    ),
    "no current context": (config(**{"current-context": ""}), None),
    "a context that is not there": (config(**{"current-context": "canary"}), None),
    "no server": (config(cluster={"server": ""}), None),
    "credentials in the server": (config(cluster={"server": "https://canary:pw@cp"}), None),
    "not YAML": ("current-context: [", None),
    "an alias": ("current-context: &a x\nkind: *a", None),
    "something else": ("hello", None),
}


@pytest.mark.parametrize(("text", "facts"), KUBECONFIGS.values(), ids=KUBECONFIGS.keys())
def test_facts_take_the_place_of_a_kubeconfig(text: str, facts: api.KubeconfigFacts | None) -> None:
    seen = observed(SECRET, secret(kubeconfig=text))
    assert api.kubeconfig_facts_of(seen) == facts
    assert "canary" not in repr(seen)
    assert b64(text) not in repr(seen)


def test_kubeconfigs_that_differ_by_their_token_alone_are_reported_apart() -> None:
    texts = [config(user={"token": f"canary-{n}"}) for n in (1, 2, 1)]
    one, other, again = (
        api.kubeconfig_facts_of(observed(SECRET, secret(kubeconfig=text))) for text in texts
    )
    assert one == again != other


def test_what_is_known_of_kubeconfigs_has_a_limit_and_no_token(monkeypatch) -> None:
    monkeypatch.setattr(objects, "_MOST_KNOWN", 2)
    for number in range(5):
        text = config(user={"token": f"canary-{number}"})
        facts = api.kubeconfig_facts_of(observed(SECRET, secret(kubeconfig=text)))
        assert facts is not None
        assert facts.token_digest == api.token_digest(f"canary-{number}")
    assert len(objects._KNOWN) <= 2
    assert "canary" not in repr(objects._KNOWN)


def test_a_kubeconfig_is_known_under_any_key() -> None:
    seen = observed(SECRET, secret(config=config()))
    assert get(seen, "data", "config") == api.kubeconfig_value(FACTS)


def test_no_token_is_never_the_same_token() -> None:
    tokenless = api.KubeconfigFacts("https://cp.example", "", "", "s", "")
    assert not tokenless.same_token("")
    assert not tokenless.same_token(FACTS.token_digest)
    assert FACTS.same_token(api.token_digest(TOKEN))
    assert not FACTS.same_token(api.token_digest("other"))


ACCOUNTS: Mapping[str, tuple[Manifest, api.ServiceAccountFacts | None]] = {
    "filled": (
        secret(type="kubernetes.io/service-account-token", token=TOKEN, **{"ca.crt": CA}),
        api.ServiceAccountFacts(api.ca_digest(CA), api.token_digest(TOKEN)),
    ),
    "not filled yet": (secret(type="kubernetes.io/service-account-token"), None),
    "half filled": (secret(type="kubernetes.io/service-account-token", token=TOKEN), None),
    "of another type": (secret(token=TOKEN, **{"ca.crt": CA}), None),
}


@pytest.mark.parametrize(("manifest", "facts"), ACCOUNTS.values(), ids=ACCOUNTS.keys())
def test_a_service_account_token(manifest: Manifest, facts: api.ServiceAccountFacts | None) -> None:
    seen = observed(SECRET, manifest)
    assert api.service_account_facts_of(seen) == facts
    assert "canary" not in repr(seen)


def test_line_breaks_at_the_end_of_a_ca_mean_nothing() -> None:
    assert api.ca_digest(CA) == api.ca_digest(CA.strip() + "\n\n")
    assert api.ca_digest(CA) != api.ca_digest(CA.replace("QUJD", "QUJE"))


def test_other_values_are_digests_of_one_object() -> None:
    one, other = (observed(SECRET, secret(uid, a="canary", b="canary")) for uid in ("u1", "u2"))
    assert get_text(one, "data", "a") == get_text(one, "data", "b") != ""
    assert get_text(one, "data", "a") != get_text(other, "data", "a")


@given(
    st.dictionaries(
        st.text("abc.-", min_size=1, max_size=8),
        st.binary(max_size=20).map(lambda tail: b"canary-1234" + tail),
        max_size=4,
    ),
    st.sampled_from(["data", "stringData"]),
)
def test_no_value_of_a_secret_is_ever_kept(data: dict[str, bytes], where: str) -> None:
    values = {
        key: b64(value) if where == "data" else value.decode("latin-1")
        for key, value in data.items()
    }
    annotations = {LAST_APPLIED: json.dumps({"kind": "Secret", "data": values})}
    annotations |= {f"copy-{key}": f"was {value}" for key, value in values.items()}
    manifest = secret()
    manifest = {**manifest, "metadata": {"uid": "u", "annotations": annotations}, where: values}
    seen = repr(observed(SECRET, manifest))
    assert "canary" not in seen
    assert b64("canary-1234")[:12] not in seen


def test_only_the_managed_fields_of_our_managers_are_kept_without_times() -> None:
    entry: dict[str, JSON] = {
        "operation": "Apply",
        "time": "2026-06-01T12:00:00Z",
        "fieldsV1": {"f:spec": {}},
    }
    managers = [keys.MANAGER_CLI, "kubectl", keys.MANAGER_BACKEND, "konnector", "Klutch"]
    fields: list[JSON] = [entry | {"manager": manager} for manager in managers]
    seen = observed(DEPLOYMENT, {"metadata": {"name": "x", "managedFields": fields}})
    assert get(seen, "metadata", "managedFields") == [
        {"operation": "Apply", "fieldsV1": {"f:spec": {}}, "manager": manager}
        for manager in (keys.MANAGER_CLI, keys.MANAGER_BACKEND, "konnector")
    ]


def test_what_ticks_is_not_kept() -> None:
    metadata: Manifest = {"name": "x", "uid": "u", "resourceVersion": "7", "generation": 3}
    seen = observed(DEPLOYMENT, {"kind": "PartialObjectMetadata", "metadata": metadata})
    assert seen == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "uid": "u", "generation": 3},
    }


def test_what_is_nested_too_deeply_is_cut() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = {"a": [deep]}
    seen: Any = observed(DEPLOYMENT, {"metadata": {}, "spec": deep})
    assert TOO_DEEP in repr(seen)
    assert repr(seen).count("{") <= MAX_DEPTH + 2


@pytest.mark.parametrize(("levels", "cut"), [(MAX_DEPTH - 1, False), (MAX_DEPTH, True)])
def test_nesting_is_cut_from_the_limit_on(levels: int, cut: bool) -> None:
    deep: Any = {}  # the manifest is a level too
    for _ in range(levels - 1):
        deep = {"a": deep}
    seen: Any = observed(DEPLOYMENT, {"metadata": {}, "spec": deep})
    assert (TOO_DEEP in repr(seen)) is cut


def test_the_body_of_an_export_has_no_schemas() -> None:
    spec: Manifest = {"group": "g", "versions": [{"name": "v1"}], "permissionClaims": []}
    body = export_body(DEPLOYMENT, {"metadata": {"name": "x"}, "spec": spec})
    assert body["spec"] == {"group": "g", "permissionClaims": []}


@given(st.binary(max_size=200))
def test_any_bytes_may_pose_as_a_kubeconfig(content: bytes) -> None:
    assert kubeconfig_facts(b"current-context: x\n" + content) is None


@pytest.mark.parametrize("kept", [{"name": "a.b"}, {"name": "a.klutch.anynines.com", "uid": "u"}])
def test_of_a_crd_only_its_being_there_is_kept(kept):
    metadata: Any = {**kept, "uid": "u", "labels": {"a": "b"}, "managedFields": [{}]}
    seen = observed(CRD, {"metadata": metadata, "spec": {"group": "shop.example"}})
    assert seen == {"apiVersion": CRD.api_version, "kind": CRD.kind, "metadata": kept}


@pytest.mark.parametrize("manager", ["konnector", "klutch.anynines.com"])
def test_of_a_crd_that_a_konnector_made_it_is_kept_that_it_did_and_for_which_bindings(manager):
    owner = {"kind": "APIServiceBinding", "name": "x", "uid": "b"}
    metadata: Any = {
        "name": "x",
        "ownerReferences": [
            owner | {"apiVersion": "klutch.anynines.com/v1alpha1", "controller": True},
            {"apiVersion": "v1", "kind": "Service", "uid": "s"},
        ],
        "managedFields": [
            {"manager": "helm", "operation": "Update", "fieldsV1": {}},
            {"manager": manager, "operation": "Update", "time": "now", "fieldsV1": {}},
        ],
    }
    seen = observed(CRD, {"metadata": metadata})
    assert get(seen, "metadata") == {
        "name": "x",
        "ownerReferences": [owner],
        "managedFields": [{"manager": manager}],
    }
