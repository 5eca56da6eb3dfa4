"""The CRD in the app cluster: what follows from an export, and which write that takes."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from konnector import APP_CLUSTER
from konnector.binding import crd
from konnector.binding.crd import Owner, Plan
from reconciler.api import API_SERVICE_BINDING, claim_status, is_established
from reconciler.core.decision import Create, Patch
from reconciler.core.manifest import annotations_of, get_map
from reconciler.core.refs import CRD, Ref
from tests.kit.json_patch import merged
from tests.support.json_values import NO_OBJECTS
from tests.support.space_objects import deleting, live, live_like

NAME = "databases.shop.example"
BINDING = live(API_SERVICE_BINDING, NAME, namespace="klutch-bind", metadata={"uid": "new"})
OWNER = Owner(BINDING, frozenset({"new"}))
IN_SPACE = Owner(
    BINDING, frozenset({"new"}), space_uid="uid-of-space", marks=True, referenced=False
)
SHORT: Any = {"shortNames": ["db"], "categories": ["shop"]}
NAMES: Any = {"plural": "databases", "kind": "Database", **SHORT}
STATUS: Any = {"type": "object", "properties": {"phase": {"type": "string"}}}
SPEC: Any = {
    "type": "object",
    "required": ["tier"],
    "properties": {
        "tier": {"type": "string", "enum": ["small", ""], "default": ""},
        "count": {"type": "integer", "minimum": 0},
        "shards": {"type": "array", "items": {"type": "object", "nullable": True}},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}
SCHEMA: Any = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
BARE: Any = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
COLUMN: Any = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}


def wanted(offer, owner) -> Any:
    return crd.wanted(offer, owner)


def plan(offer, held, owner) -> Any:
    """Return a plan whose step may be looked into whatever it is."""
    return crd.plan(offer, held, owner)


def version(name="v1", *, storage=True, schema=SCHEMA, **more):
    held = {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}
    return {**held, "subresources": {"status": {}}, "additionalPrinterColumns": [COLUMN], **more}


def export(*versions, **more) -> Any:
    spec = {
        "group": "shop.example",
        "names": NAMES,
        "scope": "Namespaced",
        "informerScope": "Namespaced",
        "versions": list(versions) or [version()],
        "permissionClaims": [{"resource": "secrets"}],
        **more,
    }
    return {"metadata": {"name": NAME, "generation": 1}, "spec": spec}


def served(manifest, **metadata) -> Any:
    """Return what an API server makes of a CRD: names and conversion have defaults."""
    made = copy.deepcopy(dict(live_like(manifest, uid="uid-of-crd", resourceVersion="7")))
    names = made["spec"]["names"]
    made["spec"]["names"] = {"singular": "database", "listKind": "DatabaseList", **names}
    made["spec"]["conversion"] = {"strategy": "None"}
    conditions = [{"type": one, "status": "True"} for one in ("NamesAccepted", "Established")]
    made["status"] = {"conditions": conditions, "acceptedNames": made["spec"]["names"]}
    return live_like(made, **metadata)


def reference(uid, **more) -> Any:
    held = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceBinding"}
    return {**held, "name": NAME, "uid": uid, "controller": True, **more}


LIVE = served(wanted(export(), OWNER))


def changed(**spec):
    return {**LIVE, "spec": {**LIVE["spec"], **spec}}


def revised(**more):
    return changed(versions=[version(**more)])


def with_property(name, schema):
    properties = {**SPEC["properties"], name: schema}
    held = {**SCHEMA["properties"], "spec": {**SPEC, "properties": properties}}
    return version(schema={**SCHEMA, "properties": held})


def test_exactly_what_the_protocol_says():
    assert wanted(export(), OWNER) == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "ownerReferences": [reference("new")]},
        "spec": {
            "group": "shop.example",
            "names": NAMES,
            "scope": "Namespaced",
            "versions": [
                {**BARE, "subresources": {"status": {}}, "additionalPrinterColumns": [COLUMN]}
            ],
        },
    }


def test_a_missing_one_is_made():
    found = plan(export(), None, OWNER)
    assert found.step == Create(CRD, wanted(export(), OWNER), APP_CLUSTER)
    assert (found.standing, found.same_spec) == ("absent", False)


ALIKE = {
    "preserveUnknownFields told": changed(preserveUnknownFields=False),
    "a field of a newer API server": changed(novelty={"on": True}),
    "what is empty, left out": revised(
        deprecated=False, deprecationWarning="", selectableFields=[]
    ),
    "columns with what is empty": revised(
        additionalPrinterColumns=[{**COLUMN, "priority": 0, "format": ""}]
    ),
    "a schema with what is empty": revised(
        schema={**SCHEMA, "description": "", "required": [], "nullable": False}
    ),
}


@pytest.mark.parametrize("held", ALIKE.values(), ids=ALIKE.keys())
def test_nothing_is_written_that_is_already_so(held):
    found = plan(export(), held, OWNER)
    assert (found.standing, found.step, found.same_spec) == ("ours", None, True)


DIFFERENT = {
    "a property more": (changed(versions=[with_property("x", {})]), "versions"),
    "a property less": (revised(schema={"type": "object"}), "versions"),
    "a version less": (changed(versions=[]), "versions"),
    "a version more": (changed(versions=[version(), version("v2", storage=False)]), "versions"),
    "no status any more": (revised(subresources={}), "versions"),
    "a field to select by": (revised(selectableFields=[{"jsonPath": ".spec.tier"}]), "versions"),
    "a column edited": (
        *(revised(additionalPrinterColumns=[{**COLUMN, "priority": 1}]), "versions"),
    ),
    "true instead of 1": (revised(schema={**SCHEMA, "maxProperties": True}), "versions"),
    "conversion by webhook": (
        *(
            changed(conversion={"strategy": "Webhook", "webhook": {"clientConfig": {}}}),
            "conversion",
        ),
    ),
    "unknown fields preserved": (changed(preserveUnknownFields=True), "preserveUnknownFields"),
    "a name more": (changed(names={**LIVE["spec"]["names"], "shortNames": ["db", "x"]}), "names"),
    "versions that are no list": (changed(versions={"v1": {}}), "versions"),
}


@pytest.mark.parametrize(("held", "field"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_somebody_edited_is_mended(held, field):
    found = plan(export(), held, OWNER)
    assert isinstance(found.step, Patch)
    assert found.same_spec is False
    assert found.step.ref == Ref(APP_CLUSTER, CRD, "", NAME)
    assert found.step.body["metadata"] == {"uid": "uid-of-crd", "resourceVersion": "7"}
    assert field in get_map(found.step.body, "spec")
    assert plan(export(), merged(held, found.step.body), OWNER).step is None


FIXED = {
    "another scope": changed(scope="Cluster"),
    "another kind": changed(names={**LIVE["spec"]["names"], "kind": "Other"}),
}


@pytest.mark.parametrize("held", FIXED.values(), ids=FIXED)
def test_what_no_api_server_changes_is_left(held):
    found = plan(export(), held, OWNER)
    assert (found.step, found.same_spec, bool(found.replaced)) == (None, False, True)
    assert isinstance(plan(export(), {**held, "status": {}}, OWNER).step, Patch)


def test_a_limit_that_a_server_rounds_is_no_difference():
    """As kube-apiserver 1.36 answers: limits are floats to it."""
    offer = export(with_property("n", {"type": "integer", "maximum": 2**53 + 1}))
    held = changed(versions=[with_property("n", {"type": "integer", "maximum": 2**53})])
    assert plan(offer, held, OWNER).step is None
    far = export(with_property("n", {"type": "integer", "maximum": 10**400}))
    assert isinstance(plan(far, held, OWNER).step, Patch)


def test_an_empty_default_is_no_absent_one():
    held = changed(versions=[with_property("tier", {"type": "string", "enum": ["small", ""]})])
    assert isinstance(plan(export(), held, OWNER).step, Patch)


FOREIGN: dict[str, Any] = {
    "no owner": [],
    "another kind": [reference("new", kind="Application")],
    "another group": [reference("new", apiVersion="shop.example/v1")],
    "another binding": [reference("new", name="queues.shop.example")],
    "a binding that lives": [reference("other")],
    "of two bindings of this name one lives": [reference("gone"), reference("other")],
    "no list": "APIServiceBinding",
    "no objects": ["APIServiceBinding", None],
}


@pytest.mark.parametrize("owners", FOREIGN.values(), ids=FOREIGN.keys())
def test_g25_what_is_anybody_elses_is_left_alone(owners):
    held = live_like(changed(scope="Cluster"), ownerReferences=owners)
    found = plan(export(), held, Owner(BINDING, frozenset({"new", "other"})))
    assert (found.standing, found.step, found.same_spec) == ("foreign", None, False)


def test_h15_what_a_binding_left_that_is_gone_is_taken_over():
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    held = live_like(LIVE, ownerReferences=[other, reference("gone")])
    found = plan(export(), held, OWNER)
    assert (found.standing, found.same_spec) == ("left", True)
    owners = {"ownerReferences": [other, reference("new")]}
    assert found.step.body == {"metadata": {"uid": "uid-of-crd", "resourceVersion": "7", **owners}}
    assert plan(export(), merged(held, found.step.body), OWNER).standing == "ours"


@pytest.mark.parametrize(
    ("manager", "released", "standing"),
    [("konnector", True, "left"), ("konnector", False, "foreign"), ("kubectl", True, "foreign")],
)
def test_what_an_orphaning_deletion_left_says_that_it_was_released(manager, released, standing):
    held = live_like(LIVE, ownerReferences=[], managedFields=[{"manager": manager}])
    warns = claim_status.unserved(live_like(LIVE, managedFields=[{"manager": "konnector"}]))
    held = {**held, "spec": {**held["spec"], **(warns or {})}} if released else held
    found = plan(export(), held, OWNER)
    assert found.standing == standing
    if standing == "left":
        after = merged(held, found.step.body)
        assert after["metadata"]["ownerReferences"] == [reference("new")]
        assert not claim_status.is_unserved(after)


def test_what_another_binding_takes_that_no_view_shows_is_its_own():
    """Two konnectors that serve one app cluster do not take a CRD from each other for ever."""
    held = live_like(LIVE, ownerReferences=[reference("elsewhere")])
    owner = replace(OWNER, owned_crd="uid-of-crd")
    assert plan(export(), held, owner) == Plan("foreign")
    made_anew = live_like(held, uid="uid-of-another-crd")
    assert plan(export(), made_anew, owner).standing == "left"


def test_h15_taken_over_and_mended_in_one_write():
    held = live_like(changed(versions=[]), ownerReferences=[reference("gone")])
    body = plan(export(), held, OWNER).step.body
    assert body["metadata"]["ownerReferences"] == [reference("new")]
    assert body["spec"] == {"versions": crd.spec(export())["versions"]}


@pytest.mark.parametrize("uid", ["new", "gone"])
def test_what_is_being_deleted_is_not_written(uid):
    held = deleting(live_like(changed(versions=[]), ownerReferences=[reference(uid)]))
    assert plan(export(), held, OWNER).step is None


def test_without_an_owner_the_space_is_noted():
    made = plan(export(), None, IN_SPACE).step.manifest
    assert made["metadata"] == {
        "name": NAME,
        "annotations": {"klutchctl.dev/space-uid": "uid-of-space"},
    }
    found = plan(export(), served(made), IN_SPACE)
    assert (found.standing, found.step) == ("ours", None)
    another = Owner(BINDING, frozenset({"new"}), space_uid="uid-of-another-space")
    assert plan(export(), served(made), another).standing == "foreign"
    assert plan(export(), served(made), OWNER).standing == "foreign"


BESIDE = replace(IN_SPACE, referenced=True)
DEFAULT = replace(BESIDE, marks=False)
MARKED: dict[str, Any] = {
    "what this binding owns": (BESIDE, "new", "", "ours", False),
    "what a binding of this space owned": (BESIDE, "gone", "uid-of-space", "ours", False),
    "what one of another space owns, which no view shows": (
        BESIDE, "gone", "uid-of-another-space", "foreign", True,
    ),
    "what an original left, or has": (BESIDE, "gone", "", "left", True),
    "in default mode, what is gone left it": (DEFAULT, "gone", "", "left", False),
    "in default mode, what another space has": (
        DEFAULT, "gone", "uid-of-another-space", "foreign", True,
    ),
    "in default mode, what was of this space": (DEFAULT, "gone", "uid-of-space", "ours", False),
    "in default mode, what another binding has": (DEFAULT, "other", "", "foreign", True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "uid", "mark", "standing", "anothers"), MARKED.values(), ids=MARKED.keys()
)
def test_in_control_plane_mode_a_mark_tells_whose_a_crd_is(owner, uid, mark, standing, anothers):
    marks = {"annotations": {"klutchctl.dev/space-uid": mark}} if mark else {}
    held = live_like(LIVE, ownerReferences=[reference(uid)], **marks)
    owner = replace(owner, live=frozenset({"new", "other"}))
    found = plan(export(), held, owner)
    assert found.standing == standing
    assert crd.is_anothers(held, owner) is anothers
    if standing != "foreign":
        after = merged(held, found.step.body) if found.step else held
        assert plan(export(), after, owner) == Plan("ours", same_spec=True)
        assert [one["uid"] for one in after["metadata"]["ownerReferences"]] == ["new"]
        marked = after["metadata"].get("annotations", {}).get("klutchctl.dev/space-uid", "")
        assert marked == ("uid-of-space" if owner.marks else mark)


@pytest.mark.parametrize("held", [{}, {"api-approved.kubernetes.io": "old"}, {"a": "b"}])
def test_an_approval_comes_along_and_other_annotations_do_not(held):
    approval = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/1"}
    offer = live_like(export(), annotations={**approval, "note": "n"})
    assert annotations_of(wanted(offer, OWNER)) == approval
    step = plan(offer, live_like(LIVE, annotations=held), OWNER).step
    assert annotations_of(step.body) == approval
    assert "spec" not in step.body
    assert plan(offer, live_like(LIVE, annotations={**held, **approval}), OWNER).step is None


def test_an_owner_that_would_be_missed_is_taken_away():
    """The garbage collector of an app cluster with cluster-scoped bindings (mapping.md 8)."""
    found = plan(export(), LIVE, IN_SPACE)
    assert found.step.body["metadata"] == {
        "uid": "uid-of-crd",
        "resourceVersion": "7",
        "ownerReferences": None,
        "annotations": {"klutchctl.dev/space-uid": "uid-of-space"},
    }
    assert "spec" not in found.step.body
    assert plan(export(), merged(LIVE, found.step.body), IN_SPACE).step is None


def test_h14_the_storage_version_is_synced_wherever_it_is():
    assert crd.synced_version(export(version("v1", storage=False), version("v2"))) == "v2"


def in_app(*versions):
    return changed(versions=list(versions))


FOLLOWING = {
    "the best of the export, once it is served": (["v1", "*v2"], ["*v1", "v2"], "v2"),
    "one that both know rather": (["v2", "*v3"], ["*v1", "v2"], "v2"),
}


@pytest.mark.parametrize(("offered", "there", "want"), FOLLOWING.values(), ids=FOLLOWING.keys())
def test_only_what_the_app_cluster_serves_is_synced(offered, there, want):
    """Of versions; "*" is stored, "-" is not served."""

    def made(names):
        return [
            version(name.strip("*-"), storage=name[0] == "*", served=name[0] != "-")
            for name in names
        ]

    live = in_app(*made(there))
    assert crd.synced_version(export(*made(offered)), live) == want
    assert crd.instance_kind(export(*made(offered)), live).version == want


SWITCHES: dict[str, Any] = {
    "the only one, in one step": ([version("v2")], ["v1"], ["v2", "-v1"]),
    "what nothing is stored in goes": ([version("v2")], ["v2"], ["v2"]),
    "one of several that may be stored": (
        [version("v2"), version("v3", storage=False)], ["v1", "v2"], ["v2", "v3", "-v1"],
    ),
    "what the export has is as that says": (
        [version("v2"), version("v1", storage=False)], ["v1"], ["v2", "v1"],
    ),
    "what the CRD has not is not made up": ([version("v2")], ["v0"], ["v2"]),
    "odd": ([version("v2")], {"v1": 7}, ["v2"]),
}  # fmt: skip


@pytest.mark.parametrize(("offered", "stored", "want"), SWITCHES.values(), ids=SWITCHES.keys())
def test_h15_a_version_in_which_something_may_be_stored_stays_unserved(offered, stored, want):
    """An API server refuses a CRD without it; with two storage versions, or none, too."""
    held = {**LIVE, "status": {**LIVE["status"], "storedVersions": stored}}
    after = merged(held, plan(export(*offered), held, OWNER).step.body)
    found = after["spec"]["versions"]
    assert [f"{'' if one['served'] else '-'}{one['name']}" for one in found] == want
    assert [one["name"] for one in found if one["storage"]] == ["v2"]
    assert all(one["schema"] == {"openAPIV3Schema": SCHEMA} for one in found)
    assert plan(export(*offered), after, OWNER) == Plan("ours", same_spec=True)
    migrated = {**after, "status": {**LIVE["status"], "storedVersions": ["v2"]}}
    step = plan(export(*offered), migrated, OWNER).step
    left = merged(migrated, step.body) if step else migrated
    assert left["spec"]["versions"] == crd.spec(export(*offered))["versions"]


STRING: Any = {"type": "string"}
LISTED: Any = {"type": "array", "items": {"type": "object", "properties": {"a": STRING}}}
LABELS: Any = {"type": "object", "additionalProperties": STRING}
OPEN: Any = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# The spec as it is stored, as it is offered, and whether the change is held.
REPLACED: dict[str, tuple[Any, Any, bool]] = {
    "a field is of another type": ({"size": STRING}, {"size": {"type": "integer"}}, True),
    "a field of an item": ({"list": LISTED}, {"list": {**LISTED, "items": OPEN | {"x": 1}}}, False),
    "a field of an item goes": (
        {"list": LISTED}, {"list": {"type": "array", "items": {"type": "object"}}}, True,
    ),
    "keys go": ({"labels": LABELS}, {"labels": {"type": "object"}}, True),
    "what was open is closed": ({"any": OPEN}, {"any": {"type": "object"}}, True),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "held"), REPLACED.values(), ids=REPLACED)
def test_a_stored_version_is_replaced_only_where_no_claim_loses_a_field(old, new, held):
    def version_of(name, fields, **more):
        return version(name, schema={"type": "object", "properties": fields}, **more)

    before = in_app(version_of("v1", old))
    before["status"] = {**LIVE["status"], "storedVersions": ["v1"]}
    offer = export(version_of("v2", new))
    found = plan(offer, before, OWNER)
    assert found == Plan("ours", kept_version="v1") if held else found.step.body["spec"]
    assert (found.kept_version, found.same_spec) == ("v1" if held else "", False)
    # Each of these lets it follow: nothing is stored, the version stays, a person agrees.
    assert crd.plan(offer, before, OWNER, unclaimed=True).step is not None
    other = {**before, "status": {**LIVE["status"], "storedVersions": ["v0"]}}
    assert plan(offer, other, OWNER).step is not None
    both = export(version_of("v2", new), version_of("v1", old, storage=False))
    assert plan(both, before, OWNER).step is not None
    for agreed in ("v2", "v3"):
        binding = live_like(BINDING, annotations={"klutchctl.dev/confirm-version": agreed})
        goes = not held or agreed == "v2"
        assert (plan(offer, before, replace(OWNER, binding=binding)).step is not None) == goes


STATUSES = {
    "H13: not served": (export(version(subresources={})), False),
    "only in another version": (
        export(version("v1", storage=False), version("v2", subresources={})),
        False,
    ),
}


@pytest.mark.parametrize(("offer", "want"), STATUSES.values(), ids=STATUSES.keys())
def test_a_status_of_its_own(offer, want):
    assert crd.has_status(offer, crd.synced_version(offer)) is want


def test_h14_versions_that_lose_something():
    other = version("v2", storage=False, schema={"type": "object"})
    assert crd.lossy_versions(export(version(), version("v2", storage=False))) == ()
    assert crd.lossy_versions(export(version(), other)) == ("v2",)
    assert crd.lossy_versions(export(version(), {**other, "served": False})) == ()


ISOLATIONS = {
    "H32: None": ({"scope": "Cluster", "clusterScopedIsolation": "None"}, True),
    "of before isolation": ({"scope": "Cluster"}, False),
    "not cluster-scoped": ({"clusterScopedIsolation": "None"}, False),
}


@pytest.mark.parametrize(("spec", "wrong"), ISOLATIONS.values(), ids=ISOLATIONS.keys())
def test_isolation(spec, wrong):
    assert bool(crd.isolation_problem(export(**spec))) is wrong


PROBLEMS = {
    "fit": (export(), ""),
    "serves nothing": (export(version(served=False)), "serves no version"),
    "no schema": (export(version(), {"name": "v2", "served": True}), "version v2 has no schema"),
    "another group": (export(group="other.example"), "databases.other.example"),
}  # fmt: skip


@pytest.mark.parametrize(("offer", "sentence"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_exports_of_which_no_crd_follows(offer, sentence):
    said = crd.problem(offer)
    assert bool(said) is bool(sentence)
    assert sentence in said


HOSTILE = [*NO_OBJECTS, {}, {"spec": []}, {"metadata": [], "spec": {"names": []}}]


@pytest.mark.parametrize("odd", HOSTILE, ids=repr)
def test_odd_values_never_raise(odd):
    for offer in (
        {"metadata": {"name": NAME}, "spec": odd},
        export(names=odd),
        {"metadata": {"name": NAME}, "spec": {**export()["spec"], "versions": odd}},
        export({"name": odd, "served": odd, "schema": odd, "subresources": odd}),
        export(version(additionalPrinterColumns=odd, schema={"properties": odd, "items": odd})),
    ):
        plan(offer, LIVE, OWNER)
        plan(offer, {"metadata": odd, "spec": odd, "status": odd}, OWNER)
        crd.problem(offer)
        crd.instance_kind(offer)
        crd.lossy_versions(offer)
        crd.has_status(offer, "v1")
        is_established({"status": odd})
        crd.name_conflict({"status": {"conditions": odd}})


OWNED = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceBinding", "name": "a.b"}
# What the CRD says, which space asks ("" where bindings are in the app cluster), whether it is so.
MADE: Any = {
    "owned by a binding": ({"ownerReferences": [OWNED]}, "", True),
    "a space's": ({"annotations": {"klutchctl.dev/space-uid": "u"}}, "u", True),
    "a space's, asked for by the app cluster": (
        {"annotations": {"klutchctl.dev/space-uid": "u"}, "ownerReferences": [OWNED]}, "", False,
    ),
    "owned, asked for by a space": ({"ownerReferences": [OWNED]}, "u", False),
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "space", "made"), MADE.values(), ids=MADE.keys())
def test_whether_a_binding_brought_a_crd(metadata, space, made):
    live = {"metadata": {"name": "a.b", **metadata}}
    assert crd.was_made(live, space_uid=space) is made
