"""How exports follow CRDs and templates (protocol-bind.md C.3, F22, F25)."""

from datetime import timedelta

import pytest

from bind.export.decide import Seen, decide
from reconciler.blueprints.export import Terms, Unexportable, exported, source_hash
from reconciler.blueprints.objects import build
from reconciler.core import conditions, keys
from reconciler.core.decision import NOTHING, Delete, Patch
from reconciler.core.manifest import annotations_of, put
from reconciler.core.refs import COMPOSITE_DEFINITION
from tests.support.space_objects import (
    CONFIG_MAPS,
    CONTROL_PLANE,
    NOW,
    SECRETS,
    SPACE,
    ago,
    condition,
    crd,
    deleting,
    export,
    live_like,
    template,
    version,
)

GRACE = timedelta(minutes=10)
CARRIES = "klutchctl.dev/carries"
PARTS = "klutchctl.dev/adopt-controlled"
EVERYWHERE = Terms("Cluster", "Prefixed")


def seen(live=None, **facts):
    return Seen(CONTROL_PLANE, live or export(), **{"crd": crd(), "template": template(), **facts})


def look(facts, *, grace=GRACE):
    return decide(facts, isolation="None", grace=grace, now=NOW)


def reasons_of(decision):
    return {one.type: (one.status, one.reason) for one in decision.conditions}


def hash_of(of):
    spec = exported(of)
    assert not isinstance(spec, Unexportable)
    return source_hash(spec)


def patch_of(decision):
    ((task,),) = [decision.tasks]
    (step,) = task.steps
    assert isinstance(step, Patch)
    assert task.failure == conditions.EXPORT_UPDATE_FAILED
    assert (step.ref.cluster, step.ref.namespace, step.subresource) == (CONTROL_PLANE, SPACE, "")
    return step.body


IN_SYNC = {"ProviderInSync": ("True", "")}


def test_an_export_that_follows_is_reported_so_and_left_alone():
    decision = look(seen())
    assert (decision.tasks, reasons_of(decision), decision.again) == ((), IN_SYNC, None)


def test_the_export_of_an_original_is_not_written_for_its_hash_alone():
    notes = {
        "klutch.anynines.com/source-spec-hash": "5T7ZDiq",
        keys.CRD_UID: crd()["metadata"]["uid"],
    }
    assert look(seen(live_like(export(), annotations=notes))).tasks == ()


def test_an_export_says_of_which_crd_it_is():
    """Also one that another backend made, and where a provider made its CRD anew (S6)."""
    for notes in ({}, {keys.CRD_UID: "earlier"}):
        hashed = {"klutch.anynines.com/source-spec-hash": "5T7ZDiq"}
        (step,) = look(seen(live_like(export(), annotations=hashed | notes))).tasks[0].steps
        assert isinstance(step, Patch)
        assert annotations_of(step.body) == {keys.CRD_UID: crd()["metadata"]["uid"]}
        assert "spec" not in step.body


NAMES = {"plural": "databases", "kind": "Database"}
ANYTHING = {"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": True}}
V1, V2 = version("v1", storage=True), version("v2", deprecated=True)
CHANGES = {
    "a version more": (
        {"versions": [V1, V2]},
        {"versions": [{**V1, "subresources": {}}, {**V2, "subresources": {}}]},
    ),
    "a field that the schema no longer has": (
        {"versions": [{**V1, "schema": ANYTHING}]},
        {"versions": [{**V1, "schema": ANYTHING, "subresources": {}}]},
    ),
    "a name that was taken away goes": (
        {"names": {**NAMES, "categories": ["shop"]}},
        {"names": {**NAMES, "categories": ["shop"], "shortNames": None}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "want"), CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_crd_is_followed_in_one_write(spec, want):
    changed = crd(**spec)
    body = patch_of(look(seen(crd=changed)))
    assert body == {
        "metadata": {
            "uid": "uid-of-APIServiceExport",
            "resourceVersion": "7",
            "annotations": {"klutch.anynines.com/source-spec-hash": hash_of(changed)},
        },
        "spec": want,
    }


def test_what_somebody_changed_in_an_export_is_put_right():
    edited = export()
    edited = {**edited, "spec": {**edited["spec"], "versions": []}}
    assert list(patch_of(look(seen(edited)))["spec"]) == ["versions"]


SCOPES = {
    "made cluster-scoped, it gets an isolation": (
        export(terms=EVERYWHERE), "Cluster", {"scope": "Cluster", "clusterScopedIsolation": "None"},
    ),
    "made namespaced, it loses it": (
        export(crd(scope="Cluster"), terms=EVERYWHERE), "Namespaced",
        {"scope": "Namespaced", "clusterScopedIsolation": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("live", "scope", "want"), SCOPES.values(), ids=SCOPES.keys())
def test_a_crd_that_came_back_with_another_scope(live, scope, want):
    assert patch_of(look(seen(live, crd=crd(scope=scope))))["spec"] == want


def test_an_isolation_is_kept_whatever_the_flag_says_now():
    everywhere = crd(scope="Cluster")
    assert look(seen(export(everywhere, terms=EVERYWHERE), crd=everywhere)).tasks == ()


UNUSABLE = {
    "it serves nothing": crd(versions=[version("v1", served=False, storage=True)]),
    "its scope is beyond the export's, which cannot be changed": crd(scope="Cluster"),
}


@pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_crd_that_cannot_be_exported_leaves_the_export_as_it_is(unusable):
    decision = look(seen(crd=unusable))
    assert all("spec" not in step.body for step in decision.steps)
    want = {"ProviderInSync": ("False", "CustomResourceDefinitionUpdateFailed")}
    assert reasons_of(decision) == want


FULL = {
    **SECRETS,
    "read": {},
    "selector": {"names": ["*"], "namespaces": ["*"]},
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
}
OFFERS = {
    "the same": ([SECRETS, CONFIG_MAPS], [SECRETS, CONFIG_MAPS], None),
    "the same in another order, and with defaults": (
        [CONFIG_MAPS, FULL], [SECRETS, CONFIG_MAPS], None,
    ),
    "none and none": ([], [], None),
    "narrower": ([SECRETS, CONFIG_MAPS], [SECRETS], [SECRETS]),
    "wider, which is an offer": ([SECRETS], [SECRETS, CONFIG_MAPS], [SECRETS, CONFIG_MAPS]),
}  # fmt: skip


@pytest.mark.parametrize(("held", "offered", "want"), OFFERS.values(), ids=OFFERS.keys())
def test_claims_are_those_of_the_template(held, offered, want):
    decision = look(seen(export(claims=held), template=template(claims=offered)))
    if want is None:
        assert (decision.tasks, decision.notes) == ((), ())
        return
    body = patch_of(decision)
    assert body["spec"] == {"permissionClaims": want}
    assert annotations_of(body) == {}
    (note,) = decision.notes
    assert (note.reason, "before an app cluster accepts" in note.message) == ("OfferChanged", True)


def test_claims_that_are_all_withdrawn_leave_no_list():
    body = patch_of(look(seen(export(claims=[SECRETS]), template=template(claims=[]))))
    assert body["spec"] == {"permissionClaims": None}


# What the export names, what the template does, what is written.
NAMED = {
    "nothing": (None, None, None),
    "the same": ("team", "team", None),
    "more": (None, "team", {"klutchctl.dev/carries": "team"}),
    "no more": ("team", None, {"klutchctl.dev/carries": None}),
}


def test_the_template_lets_parts_of_services_be_adopted():
    live = put(export(), "true", "metadata", "annotations", PARTS)
    source = put(template(), "true", "metadata", "annotations", PARTS)
    assert look(seen(live, template=source)).tasks == ()
    assert patch_of(look(seen(template=source)))["metadata"]["annotations"] == {PARTS: "true"}
    assert patch_of(look(seen(live)))["metadata"]["annotations"] == {PARTS: None}


def test_wishes_to_a_broker_go_up_with_its_kinds():
    of_broker = put(crd(), "acme", "metadata", "labels", "klutchctl.dev/osb-broker")
    source = put(template(), "team", "metadata", "annotations", CARRIES)
    body = patch_of(look(seen(export(), crd=of_broker, template=source)))
    assert body["metadata"]["annotations"] == {CARRIES: "team,klutchctl.dev/osb-retry"}


@pytest.mark.parametrize(("held", "offered", "want"), NAMED.values(), ids=NAMED.keys())
def test_what_goes_up_is_named_by_the_template(held, offered, want):
    live, source = (
        one if value is None else put(one, value, "metadata", "annotations", CARRIES)
        for one, value in ((export(), held), (template(), offered))
    )
    decision = look(seen(live, template=source))
    if want is None:
        assert decision.tasks == ()
        return
    body = patch_of(decision)
    assert body["metadata"]["annotations"] == want
    assert "spec" not in body
    assert (
        look(seen(put(export(), "x", "metadata", "annotations", CARRIES), template=None)).tasks
        == ()
    )


DEFINITION = build(COMPOSITE_DEFINITION, "xdatabases.shop.example")
# The CRD, and what Crossplane makes it from; what is going.
GOING = {
    "the CRD is gone": (None, None, "CustomResourceDefinition"),
    "the CRD goes": (deleting(crd()), DEFINITION, "CustomResourceDefinition"),
    "Crossplane withdraws it": (crd(), deleting(DEFINITION), "CompositeResourceDefinition x"),
    "it is another one": (crd(scope="Cluster"), None, "CustomResourceDefinition"),
    "it stays": (crd(), DEFINITION, None),
}


@pytest.mark.parametrize(("defined", "definition", "word"), GOING.values(), ids=GOING)
def test_an_export_says_that_its_kind_is_going(defined, definition, word):
    facts = {"crd": defined, "definition": definition}
    noted = put(export(), "earlier", "metadata", "annotations", keys.WITHDRAWN)
    said = patch_of(look(seen(noted, **facts)))["metadata"]["annotations"]
    if word is None:
        assert said == {keys.WITHDRAWN: None}
        return
    assert said[keys.WITHDRAWN].startswith(word)
    assert said.keys() == {keys.WITHDRAWN}
    again = put(export(), said[keys.WITHDRAWN], "metadata", "annotations", keys.WITHDRAWN)
    assert look(seen(again, **facts)).tasks == ()


def test_an_export_outlives_its_template_and_says_so():
    decision = look(seen(export(claims=[SECRETS]), template=None))
    assert decision.tasks == ()
    assert reasons_of(decision) == {**IN_SYNC, "Offered": ("False", "TemplateNotFound")}


def test_an_offer_that_came_back_is_reported_because_its_absence_was():
    withdrawn = export(conditions=[condition("Offered", "False", "TemplateNotFound")])
    assert reasons_of(look(seen(withdrawn))) == {**IN_SYNC, "Offered": ("True", "")}


def missing(since, reason="CustomResourceDefinitionNotFound"):
    said = condition("ProviderInSync", "False", reason, lastTransitionTime=since)
    return seen(export(conditions=[said]), crd=None)


AWAY = {
    "seen for the first time": (seen(crd=None), GRACE),
    "for a while": (missing(ago(minutes=4)), timedelta(minutes=6)),
    "nearly too long": (missing(ago(minutes=9, seconds=59)), timedelta(seconds=1)),
    "since a time ahead of our clock": (missing(ago(minutes=-30)), GRACE),
    "since no time": (missing("long ago"), GRACE),
    "after another trouble": (missing(ago(hours=1), "CustomResourceDefinitionUpdateFailed"), GRACE),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "again"), AWAY.values(), ids=AWAY.keys())
def test_a_crd_that_is_away_deletes_nothing_yet(facts, again):
    decision = look(facts)
    assert not [step for step in decision.steps if isinstance(step, Delete)]
    assert decision.again == again
    assert reasons_of(decision) == {"ProviderInSync": ("False", "CustomResourceDefinitionNotFound")}


def test_a_crd_that_stayed_away_takes_the_export_along():
    decision = look(missing(ago(minutes=10)))
    ((task,),) = [decision.tasks]
    (step,) = task.steps
    assert isinstance(step, Delete)
    assert (step.uid, step.resource_version) == ("uid-of-APIServiceExport", "7")
    (note,) = decision.notes
    assert (note.type, note.reason) == ("Warning", "ExportDeleted")


def test_without_grace_it_goes_at_once_as_with_the_original():
    assert look(seen(crd=None), grace=timedelta()).tasks


def test_nothing_follows_from_what_may_only_be_unseen():
    decision = look(Seen(CONTROL_PLANE, export(), unsure="403"), grace=timedelta())
    assert (decision.tasks, decision.conditions) == ((), ())
    assert decision.again
    kept = look(seen(template=None, unsure="403"))
    assert (reasons_of(kept), bool(kept.again)) == (IN_SYNC, True)


def test_an_export_that_goes_is_left_alone():
    assert look(seen(deleting(export()), crd=None), grace=timedelta()) == NOTHING
