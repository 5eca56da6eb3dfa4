"""Documents as CLIs read them, held against the captures of the original."""

import base64
import json
import re
from dataclasses import replace

import pytest

from bind.door import wire
from bind.door.catalogue import Offer
from bind.door.handlers import answers
from bind.door.identity import Identity
from reconciler.core import manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource

ALICE = Identity("http://idp.example", "alice", "oidc:alice")
SECRETS: Manifest = {
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
    "read": {},
    "required": True,
    "resource": "secrets",
    "group": "",
    "selector": {"names": ["*"], "namespaces": ["*"], "owner": "Provider"},
    "version": "v1",
}
SETTINGS: Manifest = {
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
    "read": {},
    "resource": "configmaps",
    "selector": {"names": ["backup-settings"], "namespaces": ["*"], "owner": "Consumer"},
    "version": "v1",
}
DATABASES = Offer(
    "klutch-bind",
    "databases",
    GroupResource("shop.example", "databases"),
    "Database",
    "database",
    "Namespaced",
    claims=(SECRETS, SETTINGS),
)
# What the original answered, word for word.
RESPONSE = (
    '{"kind":"BindingResponse","apiVersion":"klutch.anynines.com/v1alpha1","authentication":'
    '{"oauth2CodeGrant":{"sid":"h3Xk9a","id":"http://idp.example/alice"}},"kubeconfig":"YQ==",'
    '"requests":[{"kind":"APIServiceExportRequest","apiVersion":"klutch.anynines.com/v1alpha1",'
    '"metadata":{"name":"databases.shop.example"},"spec":{"resources":[{"group":"shop.example",'
    '"resource":"databases","permissionClaims":[{"resource":"secrets","version":"v1","selector":'
    '{"names":["*"],"namespaces":["*"],"owner":"Provider"},"required":true,"read":{},"onConflict":'
    '{"recreateWhenConsumerSideDeleted":true}},{"resource":"configmaps","version":"v1","selector":'
    '{"names":["backup-settings"],"namespaces":["*"],"owner":"Consumer"},"required":false,"read":'
    '{},"onConflict":{"recreateWhenConsumerSideDeleted":true}}]}]},"status":{}}]}'
)
EXPORT = (
    '{"kind":"BindingProvider","apiVersion":"v1alpha1","providerPrettyName":"example-backend",'
    '"version":"v0.0.0","authenticationMethods":[{"method":"OAuth2CodeGrant","oauth2CodeGrant":'
    '{"authenticatedURL":"http://backend.example/authorize"}}]}'
)


def response(**changes):
    given = {"kubeconfig": b"a", "identity": ALICE, "sid": "h3Xk9a", **changes}
    return wire.binding_response([DATABASES], **given)


def test_a_binding_response_is_the_captured_one():
    assert wire.text(response()).decode() == RESPONSE


def test_the_provider_document_is_the_captured_one():
    document = wire.binding_provider(
        authorize_url="http://backend.example/authorize", pretty_name=""
    )
    assert wire.text(document).decode() == EXPORT


def test_a_template_without_claims_asks_for_none():
    plain = Offer("n", "t", GroupResource("", "things"), "Thing", "thing", "Namespaced")
    resources = manifest.get_maps(wire.export_request(plain), "spec", "resources")
    assert resources == [{"group": "", "resource": "things"}]


def test_a_machine_gets_no_grant():
    assert response(identity=None, sid="")["authentication"] == {}


@pytest.mark.parametrize("length", range(3))
def test_a_response_is_padded_and_of_the_standard_alphabet(length):
    # `?` and `~` become the characters in which the alphabets differ, one time in three (F10).
    document = response(sid="?" * length + "?~?~?~")
    text = wire.encoded(document)
    assert re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", text)
    assert len(text) % 4 == 0
    assert json.loads(base64.b64decode(text, validate=True)) == document
    target = answers.with_query("http://localhost:1/callback", response=text)
    assert not re.search(r"[+/]", target.partition("?")[2])


@pytest.mark.parametrize(
    ("agreed", "states"),
    [
        ((0, 1), ["Accepted", "Accepted"]),
        ((0,), ["Accepted", "Rejected"]),
        ((), ["Rejected", "Rejected"]),
    ],
)
def test_what_was_agreed_to_is_said_for_each_claim(agreed, states):
    claims = manifest.get_maps({"consent": wire.consent_of(DATABASES, agreed)}, "consent")
    assert [claim["state"] for claim in claims] == states
    assert [claim["resource"] for claim in claims] == ["secrets", "configmaps"]


def test_where_nobody_was_asked_nothing_is_agreed_to():
    assert wire.consent_of(DATABASES, None) is None


def test_an_offer_of_the_catalogue_says_what_it_asks_for():
    offered = replace(DATABASES, title="Databases", description="A database", claims=(SECRETS,))
    without_group = {name: value for name, value in SECRETS.items() if name != "group"}
    assert wire.offer(offered) == {
        "namespace": "klutch-bind",
        "name": "databases",
        "group": "shop.example",
        "resource": "databases",
        "scope": "Namespaced",
        "title": "Databases",
        "description": "A database",
        "permissionClaims": [without_group],
    }


def test_a_refusal_is_a_document_with_its_code():
    assert wire.failure("conflict", "It is another's") == {
        "kind": "Error",
        "apiVersion": "bind.klutchctl.dev/v1alpha1",
        "code": "conflict",
        "message": "It is another's",
    }
