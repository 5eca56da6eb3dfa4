"""What the door offers."""

from typing import Final

import pytest

from bind.door import catalogue
from bind.door.catalogue import Offer
from bind.door.refusals import Refused
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


def test_offers_stand_in_the_order_of_their_crds() -> None:
    templates = [template("queues", "a"), template("caches", "z")]
    found = offers(templates, [crd("queues"), crd("caches")])
    assert [one.resource.plural for one in found] == ["caches", "queues"]


def test_of_two_templates_the_first_by_name_counts() -> None:
    (offer,) = offers([template("caches", "b"), template("caches", "a")], [crd("caches")])
    assert offer.name == "a"


@pytest.mark.parametrize(("scope", "count"), [("Namespaced", 0), ("Cluster", 1)])
def test_the_consumer_scope_hides_what_nobody_could_bind(scope: Scope, count: int) -> None:
    assert len(offers([template("caches")], [crd("caches", "Cluster")], scope)) == count


@pytest.mark.parametrize("of", ["template", "crd"])
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
