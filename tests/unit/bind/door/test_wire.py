"""The offers of a door, and documents as CLIs read them, held against the captures."""

import base64
import json
import re
from dataclasses import replace
from typing import Final

import pytest

from bind.door import catalogue
from bind.door.catalogue import Offer
from bind.door.handlers import answers
from bind.door.identity import Identity, Refused
from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints.export import Scope
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, GroupResource

CLAIM: Final[Manifest] = {"group": "", "resource": "secrets", "version": "v1", "required": True}
GROUP: Final = "shop.example"


def template(plural: str, name: str = "one", namespace: str = "shop", **notes: str) -> Manifest:
    return build(
        API_SERVICE_EXPORT_TEMPLATE,
        name,
        namespace=namespace,
        marks=Marks(annotations=notes),
        spec={
            "APIServiceSelector": {"group": GROUP, "resource": plural},
            "permissionClaims": [CLAIM],
        },
    )


def crd(plural: str, scope: str = "Namespaced", description: str = "") -> Manifest:
    versions: list[Manifest] = [
        {
            "name": name,
            "served": served,
            "schema": {"openAPIV3Schema": {"description": f"{description}{name}"}},
        }
        for name, served in (("v1beta1", True), ("v2", False), ("v1", True), ("v1alpha1", True))
    ]
    named = {"plural": plural, "kind": plural.title(), "singular": plural.rstrip("s")}
    spec: Manifest = {"group": GROUP, "scope": scope, "names": named, "versions": versions}
    return build(CRD, f"{plural}.{GROUP}", spec=spec)


def offers(
    templates: list[Manifest], crds: list[Manifest], scope: Scope = "Namespaced"
) -> list[Offer]:
    return catalogue.offers(templates, crds, consumer_scope=scope)


def test_a_template_whose_crd_is_there_is_offered() -> None:
    (offer,) = offers([template("caches"), template("queues")], [crd("caches")])
    assert offer == Offer(
        "shop",
        "one",
        GroupResource(GROUP, "caches"),
        kind="Caches",
        singular="cache",
        scope="Namespaced",
        title="Caches",
        description="v1",
        claims=(CLAIM,),
        versions=("v1", "v1beta1", "v1alpha1"),
    )


@pytest.mark.parametrize(("scope", "count"), [("Namespaced", 0), ("Cluster", 1)])
def test_the_consumer_scope_hides_what_nobody_could_bind(scope: Scope, count: int) -> None:
    assert len(offers([template("caches")], [crd("caches", "Cluster")], scope)) == count


@pytest.mark.parametrize("of", ["crd"])
def test_what_is_being_deleted_is_not_offered(of: str) -> None:
    objects = {"template": template("caches"), "crd": crd("caches")}
    at = ("metadata", "deletionTimestamp")
    objects[of] = manifest.put(objects[of], "2026-11-25T10:00:00Z", *at)
    assert offers([objects["template"]], [objects["crd"]]) == []


def test_the_annotations_of_a_template_say_it_better_than_its_crd() -> None:
    notes = {
        keys.TITLE: "Cache",
        keys.DESCRIPTION: "Keeps.",
        keys.DOCS_URL: "https://docs.example.org",
    }
    (offer,) = offers([template("caches", **notes)], [crd("caches")])
    assert (offer.title, offer.description, offer.docs_url) == tuple(notes.values())


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://docs.example.org", "//x", "data:,"])
def test_documents_are_linked_to_by_https_alone(url: str) -> None:
    (offer,) = offers([template("caches", **{keys.DOCS_URL: url})], [crd("caches")])
    assert offer.docs_url == ""


@pytest.mark.parametrize(
    ("plural", "code", "reason"),
    [("queues", "not_found", "template"), ("caches", "conflict", "scope")],
)
def test_what_cannot_be_bound_is_refused_with_its_reason(
    plural: str, code: str, reason: str
) -> None:
    with pytest.raises(Refused) as refused:
        catalogue.offered(
            [template("caches"), template("gone")],
            [crd("caches", "Cluster"), crd("queues")],
            GroupResource(GROUP, plural),
            consumer_scope="Namespaced",
        )
    assert (refused.value.code, refused.value.reason) == (code, reason)


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
    return answers.binding_response([DATABASES], **given)


def test_a_binding_response_is_the_captured_one():
    assert answers.text(response()).decode() == RESPONSE


def test_the_provider_document_is_the_captured_one():
    document = answers.binding_provider(
        authorize_url="http://backend.example/authorize", pretty_name=""
    )
    assert answers.text(document).decode() == EXPORT


def test_a_template_without_claims_asks_for_none():
    plain = Offer("n", "t", GroupResource("", "things"), "Thing", "thing", "Namespaced")
    resources = manifest.get_maps(answers.export_request(plain), "spec", "resources")
    assert resources == [{"group": "", "resource": "things"}]


def test_a_machine_gets_no_grant():
    assert response(identity=None, sid="")["authentication"] == {}


@pytest.mark.parametrize("length", range(3))
def test_a_response_is_padded_and_of_the_standard_alphabet(length):
    # `?` and `~` become the characters in which the alphabets differ, one time in three (F10).
    document = response(sid="?" * length + "?~?~?~")
    text = answers.encoded(document)
    assert re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", text)
    assert len(text) % 4 == 0
    assert json.loads(base64.b64decode(text, validate=True)) == document
    target = answers.with_query("http://localhost:1/callback", response=text)
    assert not re.search(r"[+/]", target.partition("?")[2])


def test_an_offer_of_the_catalogue_says_what_it_asks_for():
    offered = replace(DATABASES, title="Databases", description="A database", claims=(SECRETS,))
    without_group = {name: value for name, value in SECRETS.items() if name != "group"}
    assert answers.offer(offered) == {
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
    assert answers.failure("conflict", "It is another's") == {
        "kind": "Error",
        "apiVersion": "bind.klutchctl.dev/v1alpha1",
        "code": "conflict",
        "message": "It is another's",
    }
