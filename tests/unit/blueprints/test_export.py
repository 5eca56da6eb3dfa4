"""What of a CRD goes to app clusters (protocol-bind.md C.3, E.31, F25)."""

from typing import Any

import pytest

from reconciler.api import by_resource, offered_resource
from reconciler.blueprints import export as exports_of
from reconciler.core.manifest import get, name_of, put
from tests.support.space_objects import SPACE, crd, live_like, template, version

WEBHOOK: Any = {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}}}}
VERSIONS = {
    "served ones only, in their order": (
        {"versions": [
            version("v1", storage=True), version("v1beta1"), version("v1alpha1", served=False),
        ]},
        [("v1", True), ("v1beta1", False)],
    ),
    "with conversion by webhook the stored one alone": (
        {"versions": [version("v1beta1"), version("v1", storage=True)], **WEBHOOK},
        [("v1", True)],
    ),
    "with conversion by webhook and nothing stored served, the best one": (
        {"versions": [
            version("v1alpha1", served=False, storage=True), version("v1beta1"), version("v1"),
        ], **WEBHOOK},
        [("v1", True)],
    ),
    "a stored one that is not served gives its place to the best": (
        {"versions": [
            version("v2alpha1"), version("v1beta10"), version("v1beta9"),
            version("v3", served=False, storage=True),
        ]},
        [("v2alpha1", False), ("v1beta10", True), ("v1beta9", False)],
    ),
    "a stable version is better than any beta": (
        {"versions": [
            version("v2beta1"), version("v1"), version("v0", served=False, storage=True),
        ]},
        [("v2beta1", False), ("v1", True)],
    ),
}  # fmt: skip


def exported(crd: Any) -> Any:
    return exports_of.exported(crd)


@pytest.mark.parametrize(("spec", "want"), VERSIONS.values(), ids=VERSIONS.keys())
def test_exactly_one_version_is_stored(spec, want):
    found = exported(crd(**spec))
    assert not isinstance(found, exports_of.Unexportable)
    assert [(one["name"], one["storage"]) for one in found["versions"]] == want


UNUSABLE = {
    "nothing served": ([version("v1", served=False, storage=True)], "serves no version"),
    "nothing at all": ([], "serves no version"),
    "a version that an export cannot name": ([version("one", storage=True)], "'one' is not named"),
    "no schema": ([{**version("v1", storage=True), "schema": {}}], "version v1 has no schema"),
}


@pytest.mark.parametrize(("versions", "want"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_exported_says_why(versions, want):
    found = exported(crd(versions=versions))
    assert isinstance(found, exports_of.Unexportable)
    assert found.why.startswith("CustomResourceDefinition databases.shop.example")
    assert want in found.why


def test_what_app_clusters_cannot_use_stays_behind():
    whole = crd(
        preserveUnknownFields=True,
        versions=[version("v1", storage=True, selectableFields=[{"jsonPath": ".spec.a"}])],
        **WEBHOOK,
    )
    assert exported(whole) == {
        "group": "shop.example",
        "names": {"plural": "databases", "kind": "Database", "shortNames": ["x"]},
        "scope": "Namespaced",
        "versions": [version("v1", storage=True, subresources={})],
    }


def test_an_export_has_an_isolation_exactly_if_it_is_cluster_scoped():
    terms = exports_of.Terms("Cluster", "None")
    made: list[Any] = [
        exports_of.new_export(SPACE, exported(crd(scope=scope)), [], terms=terms)["spec"]
        for scope in ("Namespaced", "Cluster")
    ]
    inside, outside = made
    assert "clusterScopedIsolation" not in inside
    assert outside["clusterScopedIsolation"] == "None"
    assert (inside["informerScope"], outside["informerScope"]) == ("Cluster", "Cluster")
    assert "permissionClaims" not in inside


@pytest.mark.parametrize(
    ("scope", "informer_scope", "refused"),
    [("Cluster", "Namespaced", True), ("Cluster", "Cluster", False),
     ("Namespaced", "Namespaced", False), ("Namespaced", "Cluster", False)],
)  # fmt: skip
def test_the_scope_that_an_api_server_would_refuse_is_known_before(scope, informer_scope, refused):
    assert bool(exports_of.scope_problem(crd(scope=scope), informer_scope)) == refused


def test_the_hash_is_that_of_the_content():
    one, other = exported(crd()), exported(crd(versions=[version("v2", storage=True)]))
    assert exports_of.source_hash(one) == exports_of.source_hash(dict(reversed(one.items())))
    assert exports_of.source_hash(one) != exports_of.source_hash(other)
    # Another hash would make every backend write every export anew.
    assert (
        exports_of.source_hash({"group": "shop.example"})
        == "bHPresnfgiklhO261sUF7T6s7QOrkPCqz4vsOw"
    )


def test_an_export_is_named_like_its_crd_and_bears_its_hash():
    spec = exported(crd())
    made = exports_of.new_export(SPACE, spec, [], terms=exports_of.Terms())
    assert name_of(made) == name_of(crd()) == offered_resource(template()).name
    annotations = get(made, "metadata", "annotations")
    assert annotations == {"klutch.anynines.com/source-spec-hash": exports_of.source_hash(spec)}


def test_of_several_templates_the_first_by_place_counts_that_is_not_being_deleted():
    first = live_like(template(name="z"), namespace="a")
    going = put(
        live_like(template(name="a"), namespace="a"), "now", "metadata", "deletionTimestamp"
    )
    counting = by_resource([template(name="b"), template(name="a"), first, going])
    assert list(counting.values()) == [first]
    assert by_resource([going]) == {}
