"""What a provider says of itself (A.12, D.3), and what app cluster and session are called."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from klutchctl.binding import provider, signed_in
from klutchctl.binding.progress import BadAnswer, Denied
from klutchctl.binding.provider import Device
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.web.outbound import Answer
from tests.support.binding_objects import front_door

BASE = "https://bind.example.org"
# 03-default-mode-oidc/01-routes.http.txt
CAPTURED = (
    b'{"kind":"BindingProvider","apiVersion":"v1alpha1","providerPrettyName":"example-backend",'
    b'"version":"v0.0.0","authenticationMethods":[{"method":"OAuth2CodeGrant","oauth2CodeGrant":'
    b'{"authenticatedURL":"http://backend.example/authorize"}}]}'
)
DOOR = {
    "apiVersion": "bind.klutchctl.dev/v1alpha1",
    "kind": "FrontDoor",
    "redeemURL": f"{BASE}/api/v1/redeem",
    "bindURL": f"{BASE}/api/v1/bind",
    "catalogueURL": f"{BASE}/api/v1/catalogue",
    "joinURL": f"{BASE}/api/v1/join",
    "audience": BASE,
    "konnectorImage": "registry.example/konnector:0.1.0",
    "device": {
        "issuer": "https://idp.example",
        "clientID": "klutchctl",
        "scopes": ["openid", "groups"],
        "token": "id_token",
    },
    "machines": {"issuer": "https://idp.example", "scopes": ["bind"]},
}


@pytest.mark.parametrize(
    ("url", "export", "front_door"),
    [
        (BASE, "/export", "/.well-known/klutch-bind"),
        (f"{BASE}/", "/export", "/.well-known/klutch-bind"),
        (f"{BASE}/export", "/export", "/.well-known/klutch-bind"),
        (f"{BASE}/shop/export", "/shop/export", "/shop/.well-known/klutch-bind"),
        (f"{BASE}/export?tenant=a", "/export?tenant=a", "/.well-known/klutch-bind"),
    ],
)
def test_a_provider_is_asked_at_its_base_or_at_export(url, export, front_door):
    assert provider.places(url) == (BASE + export, BASE + front_door)


@pytest.mark.parametrize(
    "url",
    ["bind.example.org", "ftp://a", "https://", "https://u:p@a", "https://a/#x", "https://a/\x1b"],
)
def test_what_is_no_url_of_a_provider_is_refused(url):
    with pytest.raises(ConfigError):
        provider.places(url)


def test_the_captured_document_says_where_to_sign_in():
    assert provider.authorize_url_of(CAPTURED) == "http://backend.example/authorize"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"apiVersion": "klutch.anynines.com/v1alpha1"}, "apiVersion"),
        ({"kind": "Status"}, "kind"),
        ({"version": "0.2.3"}, "too old"),
        ({"authenticationMethods": []}, "OAuth2CodeGrant"),
        ({"authenticationMethods": [{"method": "OAuth2CodeGrant"}]}, "OAuth2CodeGrant"),
    ],
)
def test_a_document_of_another_kind_is_refused(said, problem):
    with pytest.raises(BadAnswer, match=problem):
        provider.authorize_url_of(json.dumps({**json.loads(CAPTURED), **said}).encode())


@pytest.mark.parametrize(
    "url", ["https://[bad/x", "https://a\u2100b/x", "https://a:9x/", "ftp://a/"]
)
def test_a_sign_in_at_what_is_no_url_is_refused(url):
    method = {"method": "OAuth2CodeGrant", "oauth2CodeGrant": {"authenticatedURL": url}}
    said = {**json.loads(CAPTURED), "authenticationMethods": [method]}
    with pytest.raises(BadAnswer, match="with a URL"):
        provider.authorize_url_of(json.dumps(said).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"[" * 100_000, b'{"kind": NaN}', b'{"kind": "\\ud800"}',
        b'{"a":' * 65 + b"1" + b"}" * 65, b'{"a":' * 800 + b"1" + b"}" * 800,
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused(body):
    with pytest.raises(BadAnswer, match="no JSON object"):
        provider.authorize_url_of(body)


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("", "no version"),
        ("v0.0.0", ""),
        ("v0.0.0-master+$Format:%H$", ""),
        ("0.2.3", "too old"),
        ("v0.3.0-rc.1", "too old"),
        ("0.3.0", ""),
        ("v0.3.0", ""),
        ("0.3.5", ""),
        ("1.2.5", ""),
        ("v1.5.0+build", ""),
        ("latest", "no semantic version"),
        ("1.2", "no semantic version"),
        ("0.3.123456789", ""),
        ("9" * 5_000 + ".0.0", "no semantic version"),
        ("1.0.0-" + "a" * 5_000, ""),
    ],
)
def test_versions(version, problem):
    found = provider.version_problem(version)
    assert problem in found
    assert bool(problem) == bool(found)


def test_our_door_says_where_its_api_is():
    found = provider.front_door_of(json.dumps(DOOR).encode())
    assert found.redeem_url == f"{BASE}/api/v1/redeem"
    assert found.device == Device(
        "https://idp.example", "klutchctl", ("openid", "groups"), "id_token"
    )
    assert (found.machine_issuer, found.machine_scopes) == ("https://idp.example", ("bind",))
    provider.require_own(found, f"{BASE}/export")
    provider.require_own(found, "https://BIND.example.org:443/")


def test_a_door_without_a_client_for_devices_offers_none():
    assert provider.front_door_of(json.dumps({**DOOR, "device": {}}).encode()).device is None


FIELDS = ("audience", "redeemURL", "bindURL", "catalogueURL")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("nothing", ["", None, [], {}])
def test_a_door_that_does_not_say_what_is_its_own_is_none(field, nothing):
    with pytest.raises(BadAnswer, match=f"it names no {field}"):
        provider.front_door_of(json.dumps({**DOOR, field: nothing}).encode())


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("other", ["https://other.example", "http://bind.example.org"])
def test_a_door_may_not_ask_for_tokens_of_another(field, other):
    found = provider.front_door_of(json.dumps({**DOOR, field: other}).encode())
    with pytest.raises(ConfigError):
        provider.require_own(found, BASE)


@dataclass
class FakeHttp:
    """Answers each GET with this."""

    answer: Answer

    async def get(self, url: str, **_: Any) -> Answer:
        return self.answer


@pytest.mark.parametrize(
    "body", [b"", b"[NaN]", b'[{"group": "\\ud800"}]', b"[" * 65 + b"]" * 65, b"[" * 5000]
)
async def test_a_catalogue_that_cannot_be_used_is_refused(body):
    http: Any = FakeHttp(Answer(200, body))
    with pytest.raises(BadAnswer, match="no JSON, or too deep"):
        await provider.offered(http, front_door(), Secret("t"))


@pytest.mark.parametrize("body", [b'{"message": "\\ud800"}', b"[" * 5000, b'{"message": NaN}'])
async def test_an_error_that_cannot_be_read_is_its_status_alone(body):
    http: Any = FakeHttp(Answer(403, body))
    with pytest.raises(Denied) as caught:
        await provider.offered(http, front_door(), Secret("t"))
    assert str(caught.value) == "the catalogue answers 403"


def test_fields_join_the_query_that_a_url_has():
    url = provider.with_query("https://a/authorize?t=1", {"s": "x", "c": "a b"})
    assert url == "https://a/authorize?t=1&c=a+b&s=x"


@pytest.mark.parametrize(
    ("uid", "cluster_id"),
    [
        ("b5a0e9c2-1111-4222-8333-0123456789ab", "85FeR5"),  # G.2
        ("11111111-2222-3333-4444-555555555555", "cfWssD"),
        ("c08ca784-b565-4587-a124-9d4025536e35", "1w2IA5"),  # 03-default-mode-oidc/vectors.yaml
        ("f0ce07de-dfb5-4244-8c9b-e52ffb38a243", "z1CQT6"),
    ],
)
def test_an_app_cluster_is_known_by_its_namespace(uid, cluster_id):
    assert signed_in.cluster_id(uid) == cluster_id


def test_a_session_is_long_and_fits_a_cookie_name():
    assert signed_in.session_id(bytes(range(16))) == "000102030405060708090a0b0c0d0e0f"
